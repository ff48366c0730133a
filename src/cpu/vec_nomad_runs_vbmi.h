// Scores from codes in runs (kernels_nomad.h) with AVX-512, VBMI and VNNI. Four sub-quantisers' lines are interleaved so that a slot's four bytes lie together,
// then looked up and added up as in vec_nomad_avx512.h: `vpermb` in their four rows of the table, and `vpdpbusd`.
//
// Memory gives a run's bytes the faster, the more of them are read one after another. So a block of 1,024 slots goes through eight sub-quantisers at a time, 512 bytes of
// each, while the next eight's are fetched. Between, the sums are in the scores' place, in the L1 cache.
#pragma once
#include "cpu/vec_nomad_avx512.h"

enum {
    RUN_BLOCK = 8,   // groups
    RUN_QUERIES = 4, // at a time
    RUN_FOURS = NOMAD_TOGETHER / 4,
};

// What a block's pass through NOMAD_TOGETHER sub-quantisers reads and adds to.
struct run_pass {
    const struct nomad_run_args *args;
    int query, sub; // the first of each
    int groups;     // of the block
    float *scores;
    const uint8_t *runs[NOMAD_TOGETHER], *next[NOMAD_TOGETHER]; // of the block, and of the next pass
};

// x: the lines of four sub-quantisers; then their bytes of 16 slots each, together.
VEC_INLINE void run_interleave(__m512i x[4])
{
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), b = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i c = _mm512_unpacklo_epi8(x[2], x[3]), d = _mm512_unpackhi_epi8(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi16(a, c);
    x[1] = _mm512_unpackhi_epi16(a, c);
    x[2] = _mm512_unpacklo_epi16(b, d);
    x[3] = _mm512_unpackhi_epi16(b, d);
}

// Sums of 16 slots and of the 16 that have their bytes' high halves, and n_queries queries, a constant where this is inlined.
VEC_INLINE void run_add(int n_queries, const struct run_pass *p, const struct nomad_constants *c, const __m512i x[RUN_FOURS],
                        float *scores)
{
    const struct nomad_run_args *a = p->args;
    const bool last = p->sub + NOMAD_TOGETHER == a->n_subs;
    const __mmask16 before = p->sub > 0 ? 0xffff : 0;
    const uint8_t *entries = a->entries + ((ptrdiff_t)p->query * a->n_subs + p->sub) * NOMAD_ROW;
    __m512i low[RUN_FOURS], high[RUN_FOURS];
#pragma GCC unroll 2
    for (int f = 0; f < RUN_FOURS; f++) {
        low[f] = nomad_index(c, x[f]);
        high[f] = nomad_index(c, _mm512_srli_epi16(x[f], 4));
    }
#pragma GCC unroll 4
    for (int i = 0; i < n_queries; i++) {
        float *to = scores + i * a->ld;
        struct nomad_sums l = {_mm512_maskz_loadu_epi32(before, to)},
                          h = {_mm512_maskz_loadu_epi32(before, to + NOMAD_GROUP / 2)};
#pragma GCC unroll 2
        for (int f = 0; f < RUN_FOURS; f++) {
            const __m512i table = _mm512_load_si512(entries + (ptrdiff_t)i * a->n_subs * NOMAD_ROW + f * 64);
            nomad_sums_add(&l, table, low[f]);
            nomad_sums_add(&h, table, high[f]);
        }
        if (last) {
            const __m512 step = _mm512_set1_ps(a->step[p->query + i]), base = _mm512_set1_ps(a->base[p->query + i]);
            _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(l.keys), step, base));
            _mm512_storeu_ps(to + NOMAD_GROUP / 2, _mm512_fmadd_ps(_mm512_cvtepi32_ps(h.keys), step, base));
        } else {
            _mm512_storeu_si512(to, l.keys);
            _mm512_storeu_si512(to + NOMAD_GROUP / 2, h.keys);
        }
    }
}

VEC_INLINE void run_add_block(int n_queries, const struct run_pass *p)
{
    const struct nomad_constants c = nomad_constants();
    for (int group = 0; group < p->groups; group++) {
        const ptrdiff_t at = (ptrdiff_t)group * NOMAD_GROUP_BYTES;
        __m512i x[RUN_FOURS][4];
#pragma GCC unroll 2
        for (int f = 0; f < RUN_FOURS; f++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __builtin_prefetch(p->next[f * 4 + i] + at);
                x[f][i] = _mm512_loadu_si512(p->runs[f * 4 + i] + at);
            }
            run_interleave(x[f]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i of[RUN_FOURS] = {x[0][i], x[1][i]};
            run_add(n_queries, p, &c, of, p->scores + group * NOMAD_GROUP + i * 16);
        }
    }
}

// A block, and up to RUN_QUERIES queries from `query` on; `next`: the block that is read next.
VEC_INLINE void run_scores_block(const struct nomad_run_args *a, int block, int groups, int query, int next)
{
    const int n_queries = a->n_queries - query;
    struct run_pass p = {.args = a, .query = query, .groups = groups};
    p.scores = a->scores + query * a->ld + (ptrdiff_t)block * NOMAD_GROUP;
    for (p.sub = 0; p.sub < a->n_subs; p.sub += NOMAD_TOGETHER) {
        const bool last = p.sub + NOMAD_TOGETHER == a->n_subs;
        for (int i = 0; i < NOMAD_TOGETHER; i++) {
            p.runs[i] = a->runs + a->subs[p.sub + i] * a->stride + (ptrdiff_t)block * NOMAD_GROUP_BYTES;
            p.next[i] = a->runs + a->subs[last ? i : p.sub + NOMAD_TOGETHER + i] * a->stride +
                        (ptrdiff_t)(last ? next : block) * NOMAD_GROUP_BYTES;
        }
        if (n_queries >= 4)
            run_add_block(4, &p);
        else if (n_queries == 3)
            run_add_block(3, &p);
        else if (n_queries == 2)
            run_add_block(2, &p);
        else
            run_add_block(1, &p);
    }
}

// Slots are mostly scored a run after another: what is fetched beyond the end is where the next one begins.
VEC_INLINE void nomad_run_scores(const struct nomad_run_args *a)
{
    for (int block = 0, n; block < a->n_groups; block += n) {
        n = a->n_groups - block < RUN_BLOCK ? a->n_groups - block : RUN_BLOCK;
        for (int query = 0; query < a->n_queries; query += RUN_QUERIES)
            run_scores_block(a, block, n, query, query + RUN_QUERIES < a->n_queries ? block : block + n);
    }
}
