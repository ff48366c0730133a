// Vectors of integers with AVX2. The same names as in vec/ivec_avx512.h.
#pragma once
#include "cpu/kernels/vec/quant_six.h"
#include "cpu/kernels/vec/vec.h"

typedef __m256i ivec;

#ifdef __AVXVNNI__
#define VNNI(operation) __asm__("%{vex%} " operation " %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b))
#endif
#include "cpu/kernels/vec/ivec_x86.h"

enum { PART_ROWS = 1 }; // that are multiplied together with each of several tokens: 8 registers

enum {
    QUANT_TILE_ROWS = 4,
    QUANT_TILE_VECS = 2,
    QUANT_TWO_ROWS = 4,
    QUANT_TALL_ROWS = 8
}; // 8 integer sums in 16 registers; 8 float ones, some of them in L1

VEC_INLINE void ivec_store_narrow(int16_t *to, ivec x) // no value is beyond 16 bits
{
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
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

// (a & mask) | b
VEC_INLINE ivec ivec_and_or(ivec a, ivec mask, ivec b)
{
    return _mm256_or_si256(_mm256_and_si256(a, mask), b);
}
// Bits of a where the mask has them, else of b.
VEC_INLINE ivec ivec_choose(ivec mask, ivec a, ivec b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
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
