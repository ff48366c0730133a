// Integer vectors of the quantised kernels with AVX2. The same names as in vec_quant_avx512.h.
#pragma once
#include "cpu/vec.h"

typedef __m256i ivec;

enum {
    QUANT_TILE_ROWS = 4,
    QUANT_TILE_VECS = 2,
    QUANT_TALL_ROWS = 8
}; // 8 integer sums in 16 registers; 8 float ones, some of them in L1

VEC_INLINE ivec ivec_zero(void)
{
    return _mm256_setzero_si256();
}
VEC_INLINE ivec ivec_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
VEC_INLINE void ivec_store(void *p, ivec x)
{
    _mm256_storeu_si256(p, x);
}
VEC_INLINE void ivec_store_narrow(int16_t *to, ivec x) // no value is beyond 16 bits
{
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
VEC_INLINE ivec ivec_set(int32_t x)
{
    return _mm256_set1_epi32(x);
}
VEC_INLINE vec ivec_to_float(ivec x)
{
    return _mm256_cvtepi32_ps(x);
}
VEC_INLINE ivec ivec_round(vec x)
{
    return _mm256_cvtps_epi32(x);
}

// sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1], of 16-bit elements.
VEC_INLINE ivec ivec_dot(ivec sum, ivec a, ivec b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

// sum[i] += four products of 8-bit elements, a's without sign.
VEC_INLINE ivec ivec_dot8(ivec sum, ivec a, ivec b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}

// The largest magnitude of n vectors, compared as bits: a NaN is larger than any number.
VEC_INLINE float largest_magnitude(const vec *x, int n)
{
    const ivec magnitude = _mm256_set1_epi32(0x7fffffff);
    ivec most = ivec_zero();
    for (int i = 0; i < n; i++)
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

// Quants as 16-bit numbers, even and odd columns apart, of the group at p. `alone` is always so here.
VEC_INLINE void quants_apart(enum dtype type, const uint8_t *p, bool alone, ivec *even, ivec *odd)
{
    (void)alone;
    if (type == DTYPE_Q8) {
        const ivec w = ivec_load(p);
        *even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
        *odd = _mm256_srai_epi16(w, 8);
    } else {
        const ivec w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
        *even = _mm256_srai_epi16(_mm256_slli_epi16(w, 12), 12);
        *odd = _mm256_srai_epi16(w, 4);
    }
}

// The quants of one group in their order, as 16-bit numbers.
VEC_INLINE void quants_in_order(enum dtype type, int16_t *to, const uint8_t *p)
{
    for (int i = 0; i < 2; i++)
        if (type == DTYPE_Q8) {
            ivec_store(to + 16 * i, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16 * i))));
        } else {
            const ivec w = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8 * i))); // a byte is two columns
            const ivec low = _mm256_srli_epi32(_mm256_slli_epi32(_mm256_srai_epi32(_mm256_slli_epi32(w, 28), 28), 16), 16);
            ivec_store(to + 16 * i, _mm256_or_si256(low, _mm256_slli_epi32(_mm256_srai_epi32(w, 4), 16)));
        }
}

// Which of 8 groups' scales belong to which lane of a chunk's products: `chunk` counts from 0.
VEC_INLINE vec scales_of(vec scales, int chunk)
{
    return _mm256_permutevar8x32_ps(scales, _mm256_set1_epi32(chunk));
}
