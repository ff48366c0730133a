// Vectors of integers with AVX-512. The same names as in vec/ivec_avx2.h.
#pragma once
#include "cpu/kernels/vec/quant_six.h"
#include "cpu/kernels/vec/vec.h"

typedef __m512i ivec;

// 12 integer sums and 12 float ones in 32 registers. With two vectors of tokens, or one, 16 integer sums, and their float ones
// in L1. Each sum is added to only every 5 cycles: 8 would keep one of two units waiting.
enum { PART_ROWS = 2 }; // that are multiplied together with each of several tokens: 16 registers of q4

enum { QUANT_TILE_ROWS = 4, QUANT_TILE_VECS = 3, QUANT_TWO_ROWS = 8, QUANT_TALL_ROWS = 16 };

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
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return _mm512_sub_epi32(a, b);
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
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)));
#endif
}

// The largest of numbers without sign, compared as bits.
VEC_INLINE float ivec_most(ivec magnitudes)
{
    const int32_t bits = _mm512_reduce_max_epi32(magnitudes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The largest magnitude of n vectors, compared as bits: a NaN is larger than any number.
VEC_INLINE float largest_magnitude(const vec *x, int n)
{
    const ivec magnitude = _mm512_set1_epi32(0x7fffffff);
    ivec most = ivec_zero();
    for (int i = 0; i < n; i++)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x[i]), magnitude));
    return ivec_most(most);
}

// The larger of each pair, compared as bits, of numbers without sign.
VEC_INLINE ivec ivec_larger(ivec a, vec b)
{
    return _mm512_max_epi32(a, _mm512_castps_si512(b));
}
VEC_INLINE vec ivec_as_floats(ivec bits)
{
    return _mm512_castsi512_ps(bits);
}

VEC_INLINE vec vec_where_above(vec x, float least, vec y) // y where x is above, else 0
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, vec_set(least), _CMP_GT_OQ), y);
}

// The lowest 8 bits of each element of four.
VEC_INLINE ivec ivec_low_bytes(const vec x[4])
{
    enum { OR_AND = 0xf8 }; // of bits a, b, c: a | (b & c)
    const ivec first = _mm512_and_si512(_mm512_castps_si512(x[0]), _mm512_set1_epi32(0xff));
    const ivec second =
        _mm512_ternarylogic_epi32(first, _mm512_slli_epi32(_mm512_castps_si512(x[1]), 8), _mm512_set1_epi32(0xff00), OR_AND);
    const ivec third = _mm512_ternarylogic_epi32(second, _mm512_slli_epi32(_mm512_castps_si512(x[2]), 16),
                                                 _mm512_set1_epi32(0xff0000), OR_AND);
    return _mm512_or_si512(third, _mm512_slli_epi32(_mm512_castps_si512(x[3]), 24));
}

// The lower 16 bits of each element of a, and above them those of b.
VEC_INLINE ivec ivec_low_halves(vec a, vec b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(b), 16));
}

// (a & mask) | b, and a shifted by bits to the left, within four bytes (to the right, where less than 0).
VEC_INLINE ivec ivec_and_or(ivec a, ivec mask, ivec b)
{
    enum { AND_OR = 0xea };
    return _mm512_ternarylogic_epi32(a, mask, b, AND_OR);
}
VEC_INLINE ivec ivec_shift(ivec a, int bits)
{
    return bits >= 0 ? _mm512_slli_epi32(a, (unsigned)bits) : _mm512_srai_epi32(a, (unsigned)-bits);
}
VEC_INLINE ivec ivec_set8(int x)
{
    return _mm512_set1_epi8((char)x);
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm512_xor_si512(a, b);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return _mm512_add_epi32(a, b);
}

// table[nibble] + plus for each byte, and of 32 numbers, the second half's where the bytes of `high` are below 0.
VEC_INLINE ivec ivec_table(const int8_t table[16], int plus)
{
    return _mm512_broadcast_i32x4(_mm256_castsi256_si128(six_bit_table(table, plus)));
}
VEC_INLINE ivec ivec_look_up(const int8_t table[16], int plus, ivec nibbles)
{
    return _mm512_shuffle_epi8(ivec_table(table, plus), nibbles);
}
VEC_INLINE ivec ivec_look_up_32(const int8_t table[32], int plus, ivec nibbles, ivec high)
{
    return _mm512_mask_shuffle_epi8(ivec_look_up(table, plus, nibbles), _mm512_movepi8_mask(high), ivec_table(table + 16, plus),
                                    nibbles);
}

// sum[i] += four products of a's and x's 8-bit elements, and of b's and y's, a's and b's without sign and below 64.
VEC_INLINE ivec ivec_dot8_two(ivec sum, ivec a, ivec x, ivec b, ivec y)
{
#ifdef __AVX512VNNI__
    return ivec_dot8(ivec_dot8(sum, a, x), b, y);
#else
    const ivec both = _mm512_add_epi16(_mm512_maddubs_epi16(a, x), _mm512_maddubs_epi16(b, y));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(both, _mm512_set1_epi16(1)));
#endif
}
