// Scores from codes in runs (kernels_nomad.h) by `pshufb`, in vectors of 256 bits: 32 bytes of a sub-quantiser, half of a group, are looked up in its row of the
// table, low and high halves of the bytes each. 16-bit sums take them as in vec_nomad_avx2.h: whole words, modulo 2^16, and their high bytes.
#pragma once
#include "cpu/vec_nomad.h"

struct run_sums {
    __m256i words, highs; // of 32 bytes
};

VEC_INLINE void run_sums_add(struct run_sums *sums, __m256i looked_up)
{
    sums->words = _mm256_add_epi16(sums->words, looked_up);
    sums->highs = _mm256_add_epi16(sums->highs, _mm256_srli_epi16(looked_up, 8));
}

// Eight scores of each 16 slots: of these, the bytes of two of the four 128 bits that a group has are eight slots that follow one another.
VEC_INLINE void run_sums_store(float *scores, const struct run_sums *sums, __m256 step, __m256 base)
{
    const __m256i zero = _mm256_setzero_si256(), even = _mm256_sub_epi16(sums->words, _mm256_slli_epi16(sums->highs, 8));
    const __m256i halves[2] = {_mm256_unpacklo_epi16(even, sums->highs), _mm256_unpackhi_epi16(even, sums->highs)};
    for (int i = 0; i < 2; i++) {
        const __m256i first = _mm256_unpacklo_epi16(halves[i], zero), second = _mm256_unpackhi_epi16(halves[i], zero);
        _mm256_storeu_ps(scores + i * 32, _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), step, base));
        _mm256_storeu_ps(scores + i * 32 + 16, _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), step, base));
    }
}

// The first or second 32 bytes of a group, and n_queries queries, a constant where this is inlined.
VEC_INLINE void run_scores_half(int n_queries, const struct nomad_run_args *a, int query, int group, int half)
{
    enum { AHEAD = 512 };
    const __m256i nibble = _mm256_set1_epi8(15);
    const ptrdiff_t bytes = (ptrdiff_t)a->n_subs * NOMAD_ROW;
    const uint8_t *entries = a->entries + query * bytes, *runs = a->runs + (ptrdiff_t)group * NOMAD_GROUP_BYTES + half * 32;
    struct run_sums low[2] = {0}, high[2] = {0};
    for (int s = 0; s < a->n_subs; s++) {
        const uint8_t *from = runs + a->subs[s] * a->stride;
        if (half == 0)
            __builtin_prefetch(from + AHEAD);
        const __m256i codes = _mm256_loadu_si256((const __m256i *)from);
        const __m256i first = _mm256_and_si256(codes, nibble), second = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
#pragma GCC unroll 2
        for (int i = 0; i < n_queries; i++) {
            const __m256i table =
                _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(entries + i * bytes + (ptrdiff_t)s * NOMAD_ROW)));
            run_sums_add(&low[i], _mm256_shuffle_epi8(table, first));
            run_sums_add(&high[i], _mm256_shuffle_epi8(table, second));
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < n_queries; i++) {
        const __m256 step = _mm256_set1_ps(a->step[query + i]), base = _mm256_set1_ps(a->base[query + i]);
        float *scores = a->scores + (query + i) * a->ld + (ptrdiff_t)group * NOMAD_GROUP + half * 8;
        run_sums_store(scores, &low[i], step, base);
        run_sums_store(scores + NOMAD_GROUP / 2, &high[i], step, base);
    }
}

VEC_INLINE void nomad_run_scores(const struct nomad_run_args *a)
{
    for (int group = 0; group < a->n_groups; group++)
        for (int query = 0; query < a->n_queries; query += 2)
            for (int half = 0; half < 2; half++)
                if (a->n_queries - query == 1)
                    run_scores_half(1, a, query, group, half);
                else
                    run_scores_half(2, a, query, group, half);
}
