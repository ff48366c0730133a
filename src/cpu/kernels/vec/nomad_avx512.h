// NoMAD's scores with AVX-512: four rows of a block are one vector, each nibble half of it 4 rows x 16 keys.
//
// With VBMI and VNNI `vpermb` first brings the four rows' bytes of a key together, once for all queries. Then it looks up 64
// codes in a vector that holds the four rows' tables; two bits of the index choose the table. `vpdpbusd` adds each key's four
// entries to a 32-bit sum. Without: `vpshufb` looks up within each 128 bits, which hold one row and its table, and 16-bit sums
// take the words as in vec/nomad_avx2.h.
#pragma once
#include "cpu/kernels/vec/nomad.h"

#ifdef __AVX512VBMI__

struct nomad_sums {
    __m512i keys; // of 16 keys
};

struct nomad_constants {
    __m512i gather, nibble, table;
};

VEC_INLINE struct nomad_constants nomad_constants(void)
{
    uint8_t gather[64];
    for (int i = 0; i < 64; i++)
        gather[i] = (uint8_t)(i % 4 * NOMAD_ROW + i / 4);
    return (struct nomad_constants){_mm512_loadu_si512(gather), _mm512_set1_epi8(15), _mm512_set1_epi32(0x30201000)};
}

// (x & 15) | the number of the table in bits 4 and 5.
VEC_INLINE __m512i nomad_index(const struct nomad_constants *c, __m512i x)
{
    return _mm512_ternarylogic_epi32(x, c->nibble, c->table, 0xea);
}

VEC_INLINE __m512i nomad_arrange(const struct nomad_constants *c, __m512i codes)
{
    return _mm512_permutexvar_epi8(c->gather, codes);
}

VEC_INLINE void nomad_sums_add(struct nomad_sums *sums, __m512i table, __m512i index)
{
    sums->keys = _mm512_dpbusd_epi32(sums->keys, _mm512_permutexvar_epi8(index, table), _mm512_set1_epi8(1));
}

VEC_INLINE __m512i nomad_sums_total(const struct nomad_sums *sums)
{
    return sums->keys;
}

#else

struct nomad_sums {
    __m512i words, highs; // of bytes: 4 rows x 16 keys
};

struct nomad_constants {
    __m512i nibble;
};

VEC_INLINE struct nomad_constants nomad_constants(void)
{
    return (struct nomad_constants){_mm512_set1_epi8(15)};
}

VEC_INLINE __m512i nomad_index(const struct nomad_constants *c, __m512i x)
{
    return _mm512_and_si512(x, c->nibble);
}

VEC_INLINE __m512i nomad_arrange(const struct nomad_constants *c, __m512i codes)
{
    (void)c;
    return codes;
}

VEC_INLINE void nomad_sums_add(struct nomad_sums *sums, __m512i table, __m512i index)
{
    const __m512i looked_up = _mm512_shuffle_epi8(table, index);
    sums->words = _mm512_add_epi16(sums->words, looked_up);
    sums->highs = _mm512_add_epi16(sums->highs, _mm512_srli_epi16(looked_up, 8));
}

// Four rows' 16-bit sums added up.
VEC_INLINE __m128i nomad_rows_total(__m512i x)
{
    const __m256i half = _mm256_add_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    return _mm_add_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

VEC_INLINE __m512i nomad_sums_total(const struct nomad_sums *sums)
{
    const __m128i even = nomad_rows_total(_mm512_sub_epi16(sums->words, _mm512_slli_epi16(sums->highs, 8)));
    const __m128i odd = nomad_rows_total(sums->highs);
    return _mm512_cvtepu16_epi32(_mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd)));
}

#endif

// One block and n_queries queries, a constant where this is inlined.
VEC_INLINE void nomad_scores_block(int n_queries, float *scores, const uint8_t *block, ptrdiff_t ahead,
                                   const struct nomad_score_args *a, int query)
{
    const struct nomad_constants c = nomad_constants();
    const ptrdiff_t bytes = (ptrdiff_t)a->rows * NOMAD_ROW;
    const uint8_t *entries = a->entries + query * bytes;
    struct nomad_sums low[4] = {0}, high[4] = {0};
    for (ptrdiff_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(block + at + ahead);
        const __m512i x = nomad_arrange(&c, _mm512_loadu_si512(block + at));
        const __m512i first = nomad_index(&c, x), second = nomad_index(&c, _mm512_srli_epi16(x, 4));
#pragma GCC unroll 4
        for (int i = 0; i < n_queries; i++) {
            const __m512i table = _mm512_load_si512(entries + i * bytes + at);
            nomad_sums_add(&low[i], table, first);
            nomad_sums_add(&high[i], table, second);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n_queries; i++) {
        const __m512 step = _mm512_set1_ps(a->step[query + i]), base = _mm512_set1_ps(a->base[query + i]);
        const __m512i l = nomad_sums_total(&low[i]), h = nomad_sums_total(&high[i]);
        _mm512_storeu_ps(scores + i * a->ld, _mm512_fmadd_ps(_mm512_cvtepi32_ps(l), step, base));
        _mm512_storeu_ps(scores + i * a->ld + NOMAD_ROW, _mm512_fmadd_ps(_mm512_cvtepi32_ps(h), step, base));
    }
}

VEC_INLINE void nomad_scores_queries(const struct nomad_score_args *a, ptrdiff_t b, ptrdiff_t ahead)
{
    const uint8_t *block = a->codes + b * a->rows * NOMAD_ROW;
    for (int i = 0; i < a->n_queries; i += 4) {
        float *scores = a->scores + i * a->ld + b * NOMAD_BLOCK;
        const int n = a->n_queries - i;
        if (n >= 4)
            nomad_scores_block(4, scores, block, ahead, a, i);
        else if (n == 3)
            nomad_scores_block(3, scores, block, ahead, a, i);
        else if (n == 2)
            nomad_scores_block(2, scores, block, ahead, a, i);
        else
            nomad_scores_block(1, scores, block, ahead, a, i);
    }
}

#include "cpu/kernels/vec/nomad_streams.h"
