// Scores from codes in runs (codes.h) with AVX-512, VBMI and VNNI. Four components' lines are interleaved so that a slot's four
// bytes lie together. `vpermb` looks them up in the four tables, once for all queries. `vpdpbusd` multiplies them with a
// query's weights and adds them up.
//
// Memory gives a run's bytes the faster, the more of them are read one after another. So a block of 1,024 slots goes through 16
// components at a time (or 8, of those that are left), 512 bytes of each. Meanwhile those of the next 16 are fetched. Between,
// the sums are in the scores' place, in the L1 cache.
#pragma once
#include "cpu/kernels/codes.h"
#include "cpu/kernels/vnni/fours.h"

enum {
    CODE_BLOCK = 8,            // groups
    CODE_QUERIES = 4,          // at a time
    CODE_WIDE = 2 * CODE_LIST, // components of a pass: with CODE_LIST the sums' stores take as long as the products
    CODE_FOURS = CODE_WIDE / 4,
};

// What a block's pass through components [c, c + CODE_WIDE), or fewer, reads and adds to.
struct code_pass {
    const struct code_score_args *a;
    const uint8_t *const *lines; // of these components, the block's first; and then of those that are to be fetched
    float *scores;               // of the block, of query `query`
    int c, query, groups;
};

// The values of four components' codes, in the low halves of the bytes. (x & 15) | the number of the table in bits 4 and 5;
// vpermb looks at no more.
VEC_INLINE __m512i code_values(__m512i x, __m512i table)
{
    return _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(x, _mm512_set1_epi8(15), _mm512_set1_epi32(0x30201000), 0xea),
                                   table);
}

// n_queries, fours, to_l2: constants where this is inlined, and, but for the few components of a narrow pass, first and last.
// Lines are named between the products: sixteen at once are more than a core keeps in mind.
VEC_INLINE void code_pass_add(int n_queries, int fours, bool first, bool last, bool to_l2, const struct code_pass *pass)
{
    const struct code_score_args *a = pass->a;
    const uint8_t *const *lines = pass->lines; // pointers are better read again than kept in vectors
    const ptrdiff_t end = (ptrdiff_t)pass->groups * CODE_GROUP_BYTES;
    __m512i tables[CODE_FOURS], weights[CODE_QUERIES][CODE_FOURS];
    float *scores[CODE_QUERIES], step[CODE_QUERIES], base[CODE_QUERIES]; // own: what is stored could else have changed them
    int offset[CODE_QUERIES];
#pragma GCC unroll 4
    for (int f = 0; f < fours; f++)
        tables[f] = _mm512_load_si512(a->values + (pass->c + (ptrdiff_t)f * 4) * CODE_VALUES);
#pragma GCC unroll 4
    for (int q = 0; q < n_queries; q++) {
        const int query = pass->query + q;
        scores[q] = pass->scores + q * a->ld;
        step[q] = a->step[query];
        base[q] = a->base[query];
        offset[q] = a->offset[query];
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            weights[q][f] = repeat_four(a->weights + (ptrdiff_t)query * a->n + pass->c + (ptrdiff_t)f * 4);
    }
    for (ptrdiff_t at = 0; at < end; at += CODE_GROUP_BYTES) {
        __m512i x[CODE_FOURS][4];
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                x[f][i] = _mm512_loadu_si512(lines[f * 4 + i] + at);
            interleave_fours(x[f]);
        }
#pragma GCC unroll 8
        for (int part = 0; part < 8; part++) { // of the group, 16 slots each
            const bool high = part >= 4;
            __m512i values[CODE_FOURS];
#pragma GCC unroll 2
            for (int f = 0; f < fours / 2; f++)
                fetch_line((const char *)lines[CODE_WIDE + part * (fours / 2) + f] + at, to_l2);
#pragma GCC unroll 4
            for (int f = 0; f < fours; f++)
                values[f] = code_values(high ? _mm512_srli_epi16(x[f][part % 4], 4) : x[f][part % 4], tables[f]);
#pragma GCC unroll 4
            for (int q = 0; q < n_queries; q++) {
                float *to = scores[q] + at / CODE_GROUP_BYTES * CODE_GROUP + part * VEC;
                __m512i sum = first ? _mm512_set1_epi32(offset[q]) : _mm512_loadu_si512(to);
#pragma GCC unroll 4
                for (int f = 0; f < fours; f++)
                    sum = _mm512_dpbusd_epi32(sum, values[f], weights[q][f]);
                if (last)
                    vec_store(to, vec_fma(_mm512_cvtepi32_ps(sum), vec_set(step[q]), vec_set(base[q])));
                else
                    _mm512_storeu_si512(to, sum);
            }
        }
    }
}

VEC_INLINE void code_pass_any(int n_queries, int n, bool to_l2, const struct code_pass *p)
{
    const bool first = p->c == 0, last = p->c + n == p->a->n;
    if (n < CODE_WIDE)
        code_pass_add(n_queries, CODE_LIST / 4, first, last, to_l2, p);
    else if (first)
        code_pass_add(n_queries, CODE_FOURS, true, false, to_l2, p);
    else if (last)
        code_pass_add(n_queries, CODE_FOURS, false, true, to_l2, p);
    else
        code_pass_add(n_queries, CODE_FOURS, false, false, to_l2, p);
}

VEC_INLINE void code_pass_run(int n_queries, int n, bool to_l2, const struct code_pass *p)
{
    if (n_queries == 4)
        code_pass_any(4, n, to_l2, p);
    else if (n_queries == 3)
        code_pass_any(3, n, to_l2, p);
    else if (n_queries == 2)
        code_pass_any(2, n, to_l2, p);
    else
        code_pass_any(1, n, to_l2, p);
}

static __attribute__((noinline)) void code_pass_near(int n_queries, int n, const struct code_pass *p)
{
    code_pass_run(n_queries, n, false, p);
}
static __attribute__((noinline)) void code_pass_far(int n_queries, int n, const struct code_pass *p)
{
    code_pass_run(n_queries, n, true, p);
}

// Up to CODE_QUERIES queries, from `query` on, of a block. lines: (n + CODE_WIDE), of which the last are made here; next: the
// bytes between the block's lines and those that are read after them.
VEC_INLINE void code_scores_block(const struct code_score_args *a, const uint8_t **lines, int block, int groups, int query,
                                  ptrdiff_t next)
{
    const int n_queries = a->n_queries - query < CODE_QUERIES ? a->n_queries - query : CODE_QUERIES;
    struct code_pass p = {
        .a = a, .scores = a->scores + query * a->ld + (ptrdiff_t)block * CODE_GROUP, .query = query, .groups = groups};
    for (int i = 0; i < CODE_WIDE; i++)
        lines[a->n + i] = lines[i % a->n] + next;
    for (int n; p.c < a->n; p.c += n) {
        n = a->n > CODE_WIDE && a->n - p.c >= CODE_WIDE ? CODE_WIDE : CODE_LIST;
        p.lines = lines + p.c;
        (a->to_l2 ? code_pass_far : code_pass_near)(n_queries, n, &p);
    }
}

// Slots are mostly scored a run after another: what is fetched beyond the end is where the next one begins.
VEC_INLINE void code_scores(const struct code_score_args *a)
{
    const uint8_t *lines[CODE_MOST + CODE_WIDE];
    int c = 0;
    do
        lines[c] = a->runs + a->run_of[c] * a->stride;
    while (++c < a->n); // one at least
    for (int block = 0, n; block < a->n_groups; block += n) {
        n = a->n_groups - block < CODE_BLOCK ? a->n_groups - block : CODE_BLOCK;
        const ptrdiff_t bytes = (ptrdiff_t)n * CODE_GROUP_BYTES;
        for (int query = 0; query < a->n_queries; query += CODE_QUERIES)
            code_scores_block(a, lines, block, n, query, query + CODE_QUERIES < a->n_queries ? 0 : bytes);
        for (c = 0; c < a->n; c++)
            lines[c] += bytes;
    }
}
