// Integer vectors of the quantised kernels with AVX-512 (F, BW, DQ, VL), and VNNI where the file is compiled for it. The same names as in
// vec_quant_avx2.h.
#pragma once
#include "cpu/vec.h"

typedef __m512i ivec;

enum { QUANT_TILE_ROWS = 4, QUANT_TILE_VECS = 3, QUANT_TALL_ROWS = 8 }; // 12 integer sums and 12 float ones in 32 registers

VEC_INLINE ivec ivec_zero(void)
{
    return _mm512_setzero_si512();
}
VEC_INLINE ivec ivec_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
VEC_INLINE void ivec_store(void *p, ivec x)
{
    _mm512_storeu_si512(p, x);
}
VEC_INLINE void ivec_store_narrow(int16_t *to, ivec x) // no value is beyond 16 bits
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(x));
}
VEC_INLINE ivec ivec_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
VEC_INLINE vec ivec_to_float(ivec x)
{
    return _mm512_cvtepi32_ps(x);
}
VEC_INLINE ivec ivec_round(vec x)
{
    return _mm512_cvtps_epi32(x);
}

// sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1], of 16-bit elements.
VEC_INLINE ivec ivec_dot(ivec sum, ivec a, ivec b)
{
#ifdef __AVX512VNNI__
    // Not the intrinsic: gcc 12 copies every sum before and after it, which the tiles have no registers for.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

// sum[i] += four products of 8-bit elements, a's without sign.
VEC_INLINE ivec ivec_dot8(ivec sum, ivec a, ivec b)
{
#ifdef __AVX512VNNI__
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)));
#endif
}

// The largest magnitude of n vectors, compared as bits: a NaN is larger than any number.
VEC_INLINE float largest_magnitude(const vec *x, int n)
{
    const ivec magnitude = _mm512_set1_epi32(0x7fffffff);
    ivec most = ivec_zero();
    for (int i = 0; i < n; i++)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x[i]), magnitude));
    const int32_t bits = _mm512_reduce_max_epi32(most);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Quants as 16-bit numbers, even and odd columns apart: those of the two groups at p, or, where `alone`, of one, then zeros.
VEC_INLINE void quants_apart(enum dtype type, const uint8_t *p, bool alone, ivec *even, ivec *odd)
{
    if (type == DTYPE_Q8) {
        const ivec w = alone ? _mm512_maskz_loadu_epi64(0x0f, p) : ivec_load(p);
        *even = _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8);
        *odd = _mm512_srai_epi16(w, 8);
    } else {
        const __m256i bytes =
            alone ? _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p)) : _mm256_loadu_si256((const __m256i *)p);
        const ivec w = _mm512_cvtepi8_epi16(bytes);
        *even = _mm512_srai_epi16(_mm512_slli_epi16(w, 12), 12);
        *odd = _mm512_srai_epi16(w, 4);
    }
}

// The quants of one group in their order, as 16-bit numbers.
VEC_INLINE void quants_in_order(enum dtype type, int16_t *to, const uint8_t *p)
{
    if (type == DTYPE_Q8) {
        ivec_store(to, _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)));
    } else {
        const ivec w =
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); // a byte is two columns: the low four bits first
        const ivec low = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_srai_epi32(_mm512_slli_epi32(w, 28), 28), 16), 16);
        ivec_store(to, _mm512_or_si512(low, _mm512_slli_epi32(_mm512_srai_epi32(w, 4), 16)));
    }
}

// Which of 16 groups' scales belong to which lane of a chunk's products: `chunk` counts from 0.
VEC_INLINE vec scales_of(vec scales, int chunk)
{
    const ivec first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return _mm512_permutexvar_ps(_mm512_add_epi32(first, _mm512_set1_epi32(2 * chunk)), scales);
}
