// Vectors of integers with AVX-512. The same names as in vec/ivec_avx2.h.
#pragma once
#include "cpu/kernels/vec/quant_six.h"
#include "cpu/kernels/vec/vec.h"

typedef __m512i ivec;

#ifdef __AVX512VNNI__
#define VNNI(operation) __asm__(operation " %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b))
#endif
#include "cpu/kernels/vec/ivec_x86.h"

// 12 integer sums and 12 float ones in 32 registers. With two vectors of tokens, or one, 16 integer sums, and their float ones
// in L1. Each sum is added to only every 5 cycles: 8 would keep one of two units waiting.
enum { PART_ROWS = 2 }; // that are multiplied together with each of several tokens: 16 registers of q4

enum { QUANT_TILE_ROWS = 4, QUANT_TILE_VECS = 3, QUANT_TWO_ROWS = 8, QUANT_TALL_ROWS = 16 };

VEC_INLINE void ivec_store_narrow(int16_t *to, ivec x) // no value is beyond 16 bits
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(x));
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

// (a & mask) | b
VEC_INLINE ivec ivec_and_or(ivec a, ivec mask, ivec b)
{
    enum { AND_OR = 0xea };
    return _mm512_ternarylogic_epi32(a, mask, b, AND_OR);
}
// Bits of a where the mask has them, else of b.
VEC_INLINE ivec ivec_choose(ivec mask, ivec a, ivec b)
{
    enum { CHOOSE = 0xca };
    return _mm512_ternarylogic_epi32(mask, a, b, CHOOSE);
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
