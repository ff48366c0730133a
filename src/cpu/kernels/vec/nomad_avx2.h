// NoMAD's scores with AVX2: two rows of a block are one vector, `pshufb` looks up 32 bytes in the two rows' tables, and 16-bit
// sums take them. Even and odd bytes of the looked-up words are not taken apart. Whole words are summed (modulo 2^16), and so
// are their high bytes. The low bytes' sum is then the first less 256 times the second, exactly, since no sum exceeds 16 bits.
#pragma once
#include "cpu/kernels/vec/nomad.h"

struct nomad_sums {
    __m256i words, highs; // of bytes: 2 rows x 16 keys
};

VEC_INLINE void nomad_sums_add(struct nomad_sums *sums, __m256i looked_up)
{
    sums->words = _mm256_add_epi16(sums->words, looked_up);
    sums->highs = _mm256_add_epi16(sums->highs, _mm256_srli_epi16(looked_up, 8));
}

// The scores of 16 keys.
VEC_INLINE void nomad_sums_store(float *scores, const struct nomad_sums *sums, __m256 step, __m256 base)
{
    const __m256i lows = _mm256_sub_epi16(sums->words, _mm256_slli_epi16(sums->highs, 8));
    const __m128i even = _mm_add_epi16(_mm256_castsi256_si128(lows), _mm256_extracti128_si256(lows, 1));
    const __m128i odd = _mm_add_epi16(_mm256_castsi256_si128(sums->highs), _mm256_extracti128_si256(sums->highs, 1));
    const __m256i first = _mm256_cvtepu16_epi32(_mm_unpacklo_epi16(even, odd));
    const __m256i second = _mm256_cvtepu16_epi32(_mm_unpackhi_epi16(even, odd));
    _mm256_storeu_ps(scores, _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), step, base));
    _mm256_storeu_ps(scores + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), step, base));
}

// One block and n_queries queries, a constant where this is inlined.
VEC_INLINE void nomad_scores_block(int n_queries, float *scores, const uint8_t *block, ptrdiff_t ahead,
                                   const struct nomad_score_args *a, int query)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const ptrdiff_t bytes = (ptrdiff_t)a->rows * NOMAD_ROW;
    const uint8_t *entries = a->entries + query * bytes;
    struct nomad_sums low[2] = {0}, high[2] = {0};
    for (ptrdiff_t at = 0; at < bytes; at += 32) {
        if (at % 64 == 0)
            __builtin_prefetch(block + at + ahead);
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(block + at));
        const __m256i first = _mm256_and_si256(codes, nibble), second = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
#pragma GCC unroll 2
        for (int i = 0; i < n_queries; i++) {
            const __m256i table = _mm256_load_si256((const __m256i *)(entries + i * bytes + at));
            nomad_sums_add(&low[i], _mm256_shuffle_epi8(table, first));
            nomad_sums_add(&high[i], _mm256_shuffle_epi8(table, second));
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < n_queries; i++) {
        const __m256 step = _mm256_set1_ps(a->step[query + i]), base = _mm256_set1_ps(a->base[query + i]);
        nomad_sums_store(scores + i * a->ld, &low[i], step, base);
        nomad_sums_store(scores + i * a->ld + NOMAD_ROW, &high[i], step, base);
    }
}

VEC_INLINE void nomad_scores_queries(const struct nomad_score_args *a, ptrdiff_t b, ptrdiff_t ahead)
{
    const uint8_t *block = a->codes + b * a->rows * NOMAD_ROW;
    for (int i = 0; i < a->n_queries; i += 2) {
        float *scores = a->scores + i * a->ld + b * NOMAD_BLOCK;
        if (a->n_queries - i == 1)
            nomad_scores_block(1, scores, block, ahead, a, i);
        else
            nomad_scores_block(2, scores, block, ahead, a, i);
    }
}

#include "cpu/kernels/vec/nomad_streams.h"
