// Scores from codes in runs (codes.h) with AVX2, and for AVX-512 without VBMI: `pshufb` looks up 32 bytes of a component, low
// or high halves. Four components' bytes are interleaved; each slot's four are then two pairs of 16-bit numbers, which
// `pmaddwd` multiplies with the components' weights.
#pragma once
#include "cpu/kernels/codes.h"
#include "cpu/kernels/vec/vec.h"

// Weights of four components, as pairs of 16 bits: the first and the third, the second and the fourth.
struct code_weights {
    __m256i even, odd;
};

VEC_INLINE struct code_weights code_weights(const int8_t *w)
{
    return (struct code_weights){_mm256_set1_epi32((int)((uint32_t)(uint16_t)w[0] | (uint32_t)(uint16_t)w[2] << 16)),
                                 _mm256_set1_epi32((int)((uint32_t)(uint16_t)w[1] | (uint32_t)(uint16_t)w[3] << 16))};
}

// The values of four components' codes, `high`: in the high halves of their bytes; then of eight slots each, together.
VEC_INLINE void code_look_up(__m256i x[4], const struct code_score_args *a, int component, ptrdiff_t at, bool high)
{
    const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(a->runs + a->run_of[component + i] * a->stride + at));
        const __m128i *values = (const __m128i *)(a->values + (ptrdiff_t)(component + i) * CODE_VALUES);
        x[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(values)),
                                   _mm256_and_si256(high ? _mm256_srli_epi16(codes, 4) : codes, nibble));
    }
    const __m256i e = _mm256_unpacklo_epi8(x[0], x[1]), f = _mm256_unpackhi_epi8(x[0], x[1]);
    const __m256i g = _mm256_unpacklo_epi8(x[2], x[3]), h = _mm256_unpackhi_epi8(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi16(e, g);
    x[1] = _mm256_unpackhi_epi16(e, g);
    x[2] = _mm256_unpacklo_epi16(f, h);
    x[3] = _mm256_unpackhi_epi16(f, h);
}

// Half of a group's bytes, half of their bits, and n_queries queries, a constant where this is inlined: 32 slots, by eights.
VEC_INLINE void code_scores_quarter(int n_queries, const struct code_score_args *a, int query, ptrdiff_t group, int half,
                                    bool high)
{
    enum { AHEAD = 512 }; // bytes of each run
    const __m256i byte = _mm256_set1_epi16(255);
    const ptrdiff_t at = group * CODE_GROUP_BYTES + half * 32;
    __m256i sums[2][4];
#pragma GCC unroll 2
    for (int q = 0; q < n_queries; q++)
        for (int i = 0; i < 4; i++)
            sums[q][i] = _mm256_set1_epi32(a->offset[query + q]);
    for (int c = 0; c < a->n; c += 4) {
        __m256i x[4];
        code_look_up(x, a, c, at, high);
        if (half == 0 && !high)
            for (int i = 0; i < 4; i++)
                fetch_line((const char *)a->runs + a->run_of[c + i] * a->stride + at + AHEAD, a->to_l2);
#pragma GCC unroll 2
        for (int q = 0; q < n_queries; q++) {
            const struct code_weights w = code_weights(a->weights + (ptrdiff_t)(query + q) * a->n + c);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x[i], byte), w.even);
                const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x[i], 8), w.odd);
                sums[q][i] = _mm256_add_epi32(sums[q][i], _mm256_add_epi32(even, odd));
            }
        }
    }
#pragma GCC unroll 2
    for (int q = 0; q < n_queries; q++) {
        const __m256 step = _mm256_set1_ps(a->step[query + q]), base = _mm256_set1_ps(a->base[query + q]);
        float *scores = a->scores + (query + q) * a->ld + group * CODE_GROUP + (high ? CODE_GROUP / 2 : 0) + half * 8;
        for (int i = 0; i < 4; i++)
            _mm256_storeu_ps(scores + i * 16, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[q][i]), step, base));
    }
}

VEC_INLINE void code_scores(const struct code_score_args *a)
{
    for (int group = 0; group < a->n_groups; group++)
        for (int query = 0; query < a->n_queries; query += 2)
            for (int part = 0; part < 4; part++)
                if (a->n_queries - query == 1)
                    code_scores_quarter(1, a, query, group, part / 2, part % 2);
                else
                    code_scores_quarter(2, a, query, group, part / 2, part % 2);
}
