// Vectors of integers with AVX2. The same names as in vec/ivec_avx512.h.
#pragma once
#include "cpu/kernels/vec/quant_six.h"
#include "cpu/kernels/vec/vec.h"

typedef __m256i ivec;

enum { PART_ROWS = 1 }; // that are multiplied together with each of several tokens: 8 registers

enum {
    QUANT_TILE_ROWS = 4,
    QUANT_TILE_VECS = 2,
    QUANT_TWO_ROWS = 4,
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
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return _mm256_sub_epi32(a, b);
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
#ifdef __AVXVNNI__
    // Not the intrinsic: see vec/quant_avx512.h.
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b));
    return sum;
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

// sum[i] += four products of 8-bit elements, a's without sign.
VEC_INLINE ivec ivec_dot8(ivec sum, ivec a, ivec b)
{
#ifdef __AVXVNNI__
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b));
    return sum;
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
#endif
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

// The larger of each pair, compared as bits, of numbers without sign.
VEC_INLINE ivec ivec_larger(ivec a, vec b)
{
    return _mm256_max_epi32(a, _mm256_castps_si256(b));
}
VEC_INLINE vec ivec_as_floats(ivec bits)
{
    return _mm256_castsi256_ps(bits);
}

VEC_INLINE vec vec_where_above(vec x, float least, vec y) // y where x is above, else 0
{
    return _mm256_and_ps(_mm256_cmp_ps(x, vec_set(least), _CMP_GT_OQ), y);
}

// The lowest 8 bits of each element of four.
VEC_INLINE ivec ivec_low_bytes(const vec x[4])
{
    const ivec lowest = _mm256_set1_epi32(0xff);
    const ivec first = _mm256_and_si256(_mm256_castps_si256(x[0]), lowest),
               second = _mm256_and_si256(_mm256_castps_si256(x[1]), lowest),
               third = _mm256_and_si256(_mm256_castps_si256(x[2]), lowest);
    return _mm256_or_si256(_mm256_or_si256(first, _mm256_slli_epi32(second, 8)),
                           _mm256_or_si256(_mm256_slli_epi32(third, 16), _mm256_slli_epi32(_mm256_castps_si256(x[3]), 24)));
}

// The lower 16 bits of each element of a, and above them those of b.
VEC_INLINE ivec ivec_low_halves(vec a, vec b)
{
    return _mm256_blend_epi16(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(b), 16), 0xaa);
}

// (a & mask) | b, and a shifted by bits to the left, within four bytes (to the right, where less than 0).
VEC_INLINE ivec ivec_and_or(ivec a, ivec mask, ivec b)
{
    return _mm256_or_si256(_mm256_and_si256(a, mask), b);
}
VEC_INLINE ivec ivec_shift(ivec a, int bits)
{
    return bits >= 0 ? _mm256_slli_epi32(a, bits) : _mm256_srai_epi32(a, -bits);
}
VEC_INLINE ivec ivec_set8(int x)
{
    return _mm256_set1_epi8((char)x);
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm256_xor_si256(a, b);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return _mm256_add_epi32(a, b);
}

// table[nibble] + plus for each byte, and of 32 numbers, the second half's where the bytes of `high` are below 0.
VEC_INLINE ivec ivec_look_up(const int8_t table[16], int plus, ivec nibbles)
{
    return _mm256_shuffle_epi8(six_bit_table(table, plus), nibbles);
}
VEC_INLINE ivec ivec_look_up_32(const int8_t table[32], int plus, ivec nibbles, ivec high)
{
    return _mm256_blendv_epi8(ivec_look_up(table, plus, nibbles), ivec_look_up(table + 16, plus, nibbles), high);
}

// sum[i] += four products of a's and x's 8-bit elements, and of b's and y's, a's and b's without sign and below 64.
VEC_INLINE ivec ivec_dot8_two(ivec sum, ivec a, ivec x, ivec b, ivec y)
{
#ifdef __AVXVNNI__
    return ivec_dot8(ivec_dot8(sum, a, x), b, y);
#else
    const ivec both = _mm256_add_epi16(_mm256_maddubs_epi16(a, x), _mm256_maddubs_epi16(b, y));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(both, _mm256_set1_epi16(1)));
#endif
}
