// Scores from codes in runs (kernels_codes.h) with AVX-512, VBMI and VNNI. Four components' lines are interleaved so that a slot's four bytes lie together; `vpermb`
// looks them up in the four tables, once for all queries, and `vpdpbusd` multiplies them with a query's weights and adds them up.
//
// Memory gives a run's bytes the faster, the more of them are read one after another. So a block of 1,024 slots goes through eight components at a time, 512 bytes of
// each, while those of the pass after the next one are fetched. Between, the sums are in the scores' place, in the L1 cache.
#pragma once
#include <string.h>

#include "cpu/kernels_codes.h"
#include "cpu/vec.h"

enum {
    CODE_BLOCK = 8,   // groups
    CODE_QUERIES = 4, // at a time
    CODE_AHEAD = 2,   // passes whose bytes are fetched before they are needed: one takes 50 to 130 ns
    CODE_FOURS = CODE_LIST / 4,
};

// What a block's pass through CODE_LIST components reads and adds to.
struct code_pass {
    int groups; // of the block
    bool first, last;
    const uint8_t *runs[CODE_LIST], *next[CODE_LIST]; // of the block, and what is fetched
    const uint8_t *values;
    float *scores[CODE_QUERIES];
    const int8_t *weights[CODE_QUERIES];
    int offset[CODE_QUERIES];
    float step[CODE_QUERIES], base[CODE_QUERIES];
};

// x: the lines of four components; then their bytes of 16 slots each, together.
VEC_INLINE void code_interleave(__m512i x[4])
{
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), b = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i c = _mm512_unpacklo_epi8(x[2], x[3]), d = _mm512_unpackhi_epi8(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi16(a, c);
    x[1] = _mm512_unpackhi_epi16(a, c);
    x[2] = _mm512_unpacklo_epi16(b, d);
    x[3] = _mm512_unpackhi_epi16(b, d);
}

// The values of four components' codes, in the low halves of the bytes. (x & 15) | the number of the table in bits 4 and 5; vpermb looks at no more.
VEC_INLINE __m512i code_values(__m512i x, __m512i table)
{
    return _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(x, _mm512_set1_epi8(15), _mm512_set1_epi32(0x30201000), 0xea),
                                   table);
}

VEC_INLINE __m512i four_weights(const int8_t *w)
{
    int32_t four;
    memcpy(&four, w, sizeof four);
    return _mm512_set1_epi32(four);
}

// The pass's further variables are the function's own: what is stored could else have changed them. Its pointers are better read again than kept in vectors.
VEC_INLINE void code_pass_add(int n_queries, bool last, const struct code_pass *pass)
{
    const struct code_pass p = *pass;
    const __mmask16 before = p.first ? 0 : 0xffff;
    __m512i tables[CODE_FOURS], weights[CODE_QUERIES][CODE_FOURS];
#pragma GCC unroll 2
    for (int f = 0; f < CODE_FOURS; f++) {
        tables[f] = _mm512_load_si512(p.values + (ptrdiff_t)f * 4 * CODE_VALUES);
#pragma GCC unroll 4
        for (int q = 0; q < n_queries; q++)
            weights[q][f] = four_weights(p.weights[q] + (ptrdiff_t)f * 4);
    }
    for (ptrdiff_t group = 0; group < p.groups; group++) {
        __m512i x[CODE_FOURS][4];
#pragma GCC unroll 2
        for (int f = 0; f < CODE_FOURS; f++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __builtin_prefetch(pass->next[f * 4 + i] + group * CODE_GROUP_BYTES);
                x[f][i] = _mm512_loadu_si512(pass->runs[f * 4 + i] + group * CODE_GROUP_BYTES);
            }
            code_interleave(x[f]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int high = 0; high < 2; high++) {
                __m512i values[CODE_FOURS];
#pragma GCC unroll 2
                for (int f = 0; f < CODE_FOURS; f++)
                    values[f] = code_values(high ? _mm512_srli_epi16(x[f][i], 4) : x[f][i], tables[f]);
#pragma GCC unroll 4
                for (int q = 0; q < n_queries; q++) {
                    float *to = p.scores[q] + group * CODE_GROUP + high * (CODE_GROUP / 2) + i * 16;
                    __m512i sum = _mm512_mask_loadu_epi32(_mm512_set1_epi32(p.offset[q]), before, to);
#pragma GCC unroll 2
                    for (int f = 0; f < CODE_FOURS; f++)
                        sum = _mm512_dpbusd_epi32(sum, values[f], weights[q][f]);
                    if (last)
                        _mm512_storeu_ps(
                            to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(p.step[q]), _mm512_set1_ps(p.base[q])));
                    else
                        _mm512_storeu_si512(to, sum);
                }
            }
    }
}

static __attribute__((noinline)) void code_pass_run(int n_queries, const struct code_pass *p)
{
    if (n_queries == 4)
        p->last ? code_pass_add(4, true, p) : code_pass_add(4, false, p);
    else if (n_queries == 3)
        p->last ? code_pass_add(3, true, p) : code_pass_add(3, false, p);
    else if (n_queries == 2)
        p->last ? code_pass_add(2, true, p) : code_pass_add(2, false, p);
    else
        p->last ? code_pass_add(1, true, p) : code_pass_add(1, false, p);
}

// A block, and up to CODE_QUERIES queries from `query` on; `next`: the block that is read next.
VEC_INLINE void code_scores_block(const struct code_score_args *a, int block, int groups, int query, int next)
{
    const int n_queries = a->n_queries - query < CODE_QUERIES ? a->n_queries - query : CODE_QUERIES;
    struct code_pass p = {.groups = groups, .first = true, .values = a->values};
    for (int q = 0; q < n_queries; q++) {
        p.scores[q] = a->scores + (query + q) * a->ld + (ptrdiff_t)block * CODE_GROUP;
        p.weights[q] = a->weights + (ptrdiff_t)(query + q) * a->n;
        p.offset[q] = a->offset[query + q];
        p.step[q] = a->step[query + q];
        p.base[q] = a->base[query + q];
    }
    for (int c = 0; c < a->n; c += CODE_LIST, p.first = false) {
        const int then = c + CODE_AHEAD * CODE_LIST;
        const ptrdiff_t then_block = then < a->n ? block : next;
        p.last = c + CODE_LIST == a->n;
        for (int i = 0; i < CODE_LIST; i++) {
            p.runs[i] = a->runs + a->run_of[c + i] * a->stride + (ptrdiff_t)block * CODE_GROUP_BYTES;
            p.next[i] = a->runs + a->run_of[then % a->n + i] * a->stride + then_block * CODE_GROUP_BYTES;
        }
        code_pass_run(n_queries, &p);
        p.values += (ptrdiff_t)CODE_LIST * CODE_VALUES;
        for (int q = 0; q < n_queries; q++)
            p.weights[q] += CODE_LIST;
    }
}

// Slots are mostly scored a run after another: what is fetched beyond the end is where the next one begins.
VEC_INLINE void code_scores(const struct code_score_args *a)
{
    for (int block = 0, n; block < a->n_groups; block += n) {
        n = a->n_groups - block < CODE_BLOCK ? a->n_groups - block : CODE_BLOCK;
        for (int query = 0; query < a->n_queries; query += CODE_QUERIES)
            code_scores_block(a, block, n, query, query + CODE_QUERIES < a->n_queries ? block : block + n);
    }
}
