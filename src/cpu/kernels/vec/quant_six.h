// Integers of six bits on their way to a product: what of them does not depend on the width of x86's vectors. Included by
// vec/quant_avx2.h and vec/quant_avx512.h.
#pragma once
#include "cpu/kernels/vec/quant_planes.h"
#include "cpu/kernels/vec/vec_256.h"

// Sixteen of a table's numbers, and `plus` more, in both halves.
VEC_INLINE __m256i six_bit_table(const int8_t table[16], int plus)
{
    const __m128i numbers = _mm_add_epi8(_mm_loadu_si128((const __m128i *)table), _mm_set1_epi8((char)plus));
    return _mm256_broadcastsi128_si256(numbers);
}

// Two bits of each of a group's columns, in their order: q6's second plane, or the first one of q3, q2, q3k and q2k.
VEC_INLINE __m256i two_bits(const uint8_t p[QUANT_GROUP / 4])
{
    int64_t word;
    memcpy(&word, p, sizeof word);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi64x(word), _mm256_set1_epi64x(0x0703060205010400));
    return _mm256_and_si256(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 2, 4, 6)), _mm256_set1_epi8(3));
}

// All bits of the columns whose bit is set, in their order: q5's second plane, q3's and q3k's.
VEC_INLINE __m256i one_bit(const uint8_t p[QUANT_GROUP / 8])
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), _mm256_set1_epi64x(0x0303020201010000));
    const __m256i bit =
        _mm256_setr_epi64x(0x0201020102010201, 0x0804080408040804, 0x2010201020102010, (int64_t)0x8040804080408040);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

// Four bits of each of a group's columns, in their order: a byte is two columns, the low four bits first.
VEC_INLINE __m256i nibbles_in_order(const uint8_t p[QUANT_GROUP / 2])
{
    const __m256i twice = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm256_and_si256(_mm256_or_si256(twice, _mm256_slli_epi16(twice, 4)), _mm256_set1_epi8(15));
}

// A group's values in their order, and `plus` more.
VEC_INLINE __m256i six_bit_group(enum dtype type, struct quants_at at, int plus)
{
    type = dtype_quants[type];
    if (dtype_low_pairs(type)) {
        const __m256i four = _mm256_set1_epi8(4), bits = two_bits(at.low);
        if (dtype_table(type))
            return _mm256_shuffle_epi8(six_bit_table(dtype_table(type), plus),
                                       type == DTYPE_Q2 ? bits
                                                        : _mm256_or_si256(bits, _mm256_and_si256(one_bit(at.high), four)));
        const __m256i pairs = _mm256_add_epi8(bits, _mm256_set1_epi8((char)plus));
        return type == DTYPE_Q2K ? pairs : _mm256_sub_epi8(pairs, _mm256_and_si256(one_bit(at.high), four));
    }
    const __m256i nibbles = nibbles_in_order(at.low);
    if (dtype_table(type))
        return _mm256_shuffle_epi8(six_bit_table(dtype_table(type), plus), nibbles);
    if (type == DTYPE_Q5K) // the bit counts -16
        return _mm256_sub_epi8(_mm256_add_epi8(nibbles, _mm256_set1_epi8((char)plus)),
                               _mm256_and_si256(one_bit(at.high), _mm256_set1_epi8(16)));
    if (type == DTYPE_Q5)
        return _mm256_blendv_epi8(_mm256_shuffle_epi8(six_bit_table(q5_values, plus), nibbles),
                                  _mm256_shuffle_epi8(six_bit_table(q5_values + 16, plus), nibbles), one_bit(at.high));
    const __m256i bits = _mm256_or_si256(nibbles, _mm256_slli_epi16(two_bits(at.high), 4));
    return _mm256_add_epi8(_mm256_xor_si256(bits, _mm256_set1_epi8(32)), _mm256_set1_epi8((char)(plus - 32)));
}
