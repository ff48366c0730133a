// NoMAD's kernels for either vector width, but for the scores (vec/nomad_avx2.h, vec/nomad_avx512.h); included by nomad.c. What they
// compute is in nomad.h. A row of 16 centroids is one vector of AVX-512, two of AVX2.
#pragma once
#include <math.h>

#include "cpu/kernels/nomad.h"
#include "cpu/kernels/vec/vec.h"

enum { PIECES = NOMAD_CENTROIDS / VEC }; // vectors in a row
enum { NOMAD_AHEAD = 4096 };             // bytes of codes that are fetched before they are needed

// Bits of the lanes that equal x.
VEC_INLINE unsigned vec_equal_bits(vec a, vec b)
{
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
#else
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
#endif
}

// Lanes from 0 to 255, rounded to nearest even, as bytes.
VEC_INLINE void vec_store_bytes(uint8_t *p, vec x)
{
#ifdef __AVX512F__
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x)));
#else
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
#endif
}

VEC_INLINE float vec_least(vec x)
{
    return -vec_largest(vec_sub(vec_zero(), x));
}

VEC_INLINE void nomad_encode(int d_sub, uint8_t *codes, const float *key, const struct nomad_book *book)
{
    const float *centroids = book->centroids;
    for (int s = 0; s < book->n_sub; s++, key += d_sub, centroids += d_sub * NOMAD_CENTROIDS) {
        vec distance[PIECES], least = vec_set(INFINITY);
        for (int p = 0; p < PIECES; p++) {
            distance[p] = vec_zero();
            for (int i = 0; i < d_sub; i++) {
                const vec x = vec_sub(vec_set(key[i]), vec_load(centroids + i * NOMAD_CENTROIDS + p * VEC));
                distance[p] = vec_fma(x, x, distance[p]);
            }
            least = vec_min(distance[p], least);
        }
        least = vec_set(vec_least(least));
        unsigned equal = 0;
        for (int p = 0; p < PIECES; p++)
            equal |= vec_equal_bits(distance[p], least) << p * VEC;
        codes[s] = equal ? (uint8_t)__builtin_ctz(equal) : 0;
    }
}

VEC_INLINE void nomad_encode_any(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    if (book->d_sub == 1)
        nomad_encode(1, codes, key, book);
    else if (book->d_sub == 2)
        nomad_encode(2, codes, key, book);
    else
        nomad_encode(4, codes, key, book);
}

VEC_INLINE void nomad_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    struct nomad_range range = {0};
    const int n_sub = book->n_sub, d_sub = book->d_sub;
    for (int s = 0; s < n_sub; s++) {
        vec row[PIECES], least = vec_set(INFINITY), largest = vec_set(-INFINITY);
        for (int p = 0; p < PIECES; p++) {
            row[p] = vec_zero();
            for (int i = 0; i < d_sub; i++)
                row[p] = vec_fma(vec_set(q[s * d_sub + i]),
                                 vec_load(book->centroids + (s * d_sub + i) * NOMAD_CENTROIDS + p * VEC), row[p]);
            least = vec_min(least, row[p]);
            largest = vec_max(largest, row[p]);
        }
        const float low = vec_least(least);
        nomad_range_add(&range, low, vec_largest(largest));
        for (int p = 0; p < PIECES; p++)
            vec_store(scratch + s * NOMAD_CENTROIDS + p * VEC, vec_sub(row[p], vec_set(low)));
    }
    const float a = nomad_factor(&range, n_sub, table->base, table->step);
    memset(table->entries, 0, nomad_block_bytes(n_sub));
    for (int i = 0; a > 0 && i < n_sub * NOMAD_CENTROIDS; i += VEC)
        vec_store_bytes(table->entries + i, vec_mul(vec_load(scratch + i), vec_set(a)));
}

// The VEC values that VEC numbers (0 … 15) stand for.
VEC_INLINE vec nomad_look_up(const float *centroids, const uint8_t *bytes, bool high)
{
#ifdef __AVX512F__
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
    return _mm512_permutexvar_ps(high ? _mm512_srli_epi32(wide, 4) : wide, _mm512_loadu_ps(centroids)); // looks at four bits
#else
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    const __m256i code = high ? _mm256_srli_epi32(wide, 4) : wide;
    const __m256 lower = _mm256_permutevar8x32_ps(_mm256_loadu_ps(centroids), code); // looks at three bits
    const __m256 upper = _mm256_permutevar8x32_ps(_mm256_loadu_ps(centroids + 8), code);
    return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
#endif
}

VEC_INLINE void nomad_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    enum { COLUMNS = 16 };
    const int d = book->n_sub * book->d_sub;
    float tile[COLUMNS * NOMAD_BLOCK]; // (components, keys)
    for (int first = 0; first < d; first += COLUMNS) {
        const int n = d - first < COLUMNS ? d - first : COLUMNS;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < NOMAD_BLOCK; j += VEC)
                vec_store(tile + i * NOMAD_BLOCK + j,
                          nomad_look_up(book->centroids + (first + i) * NOMAD_CENTROIDS,
                                        block + (first + i) / book->d_sub * NOMAD_ROW + j % NOMAD_ROW, j >= NOMAD_ROW));
        transpose(y + first, d, tile, NOMAD_BLOCK, n, NOMAD_BLOCK);
    }
}
