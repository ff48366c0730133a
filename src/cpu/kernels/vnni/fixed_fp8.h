// fp8 weights as 16-bit integers, by integer operations alone; included by vnni/fixed.h. AVX-512 (BW).
//
// A code is a sign, an exponent e and a fraction of `bits` bits. In units of the least number that there is, its magnitude is
// (2^bits + fraction) 2^(e - 1) or, with e = 0, fraction. Where E is the block's largest exponent, the integer is what makes
// 2^13 of 2^E: (2^bits + fraction) 2^(14 - bits), shifted down by E - e + 1, to nearest. That is a multiplication by a power of
// two, of which the instruction keeps the upper half.
#pragma once
#include <math.h>

#include "cpu/kernels/vec/quant.h"

struct fp8_code {
    int bits;       // of the fraction
    int exponents;  // the largest that there is
    int least;      // the least number is 2^this
    int not_finite; // codes of magnitudes from this on are not; E4M3 has none that the format allows (docs/format.md)
};
VEC_INLINE struct fp8_code fp8_code(enum dtype type)
{
    return type == DTYPE_FP8 ? (struct fp8_code){.bits = 3, .exponents = 15, .least = -9, .not_finite = 0x80}
                             : (struct fp8_code){.bits = 2, .exponents = 31, .least = -16, .not_finite = 0x7c};
}

// The i-th 64 codes from `from` on, of which there are n in all, and zeros.
VEC_INLINE ivec fp8_load(const uint8_t *from, int i, int n)
{
    const int left = n - 64 * i;
    if (left >= 64)
        return ivec_load(from + (ptrdiff_t)i * 64);
    return left > 0 ? _mm512_maskz_loadu_epi8(~0ull >> (64 - left), from + (ptrdiff_t)i * 64) : ivec_zero();
}

// The largest magnitude's code, of `cols` (a multiple of 64), n of them and zeros.
VEC_INLINE int fp8_largest(const uint8_t *from, int n, int cols)
{
    const ivec magnitude = _mm512_set1_epi8(0x7f);
    ivec most = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < cols / 64; i++)
        most = _mm512_max_epu8(most, _mm512_and_si512(fp8_load(from, i, n), magnitude));
    const __m256i half = _mm256_max_epu8(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    const __m128i quarter = _mm_max_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // In the upper bytes of words, whose lower bytes do not matter. There is an instruction for the least of eight words.
    const __m128i words = _mm_max_epu8(quarter, _mm_slli_epi16(quarter, 8));
    return (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(words, _mm_set1_epi16(-1)))) ^ 0xffff) >> 8 & 0xff;
}

// 32 codes. largest: the block's largest exponent, 1 at least.
VEC_INLINE ivec fp8_integers(enum dtype type, __m256i codes, int largest)
{
    const struct fp8_code code = fp8_code(type);
    const ivec exponents = _mm512_set1_epi16((int16_t)(code.exponents << code.bits)), implicit = _mm512_set1_epi16(1 << 14);
    const ivec w = _mm512_cvtepi8_epi16(codes), one = _mm512_set1_epi16(1);
    const ivec exponent = _mm512_max_epi16(_mm512_srli_epi16(_mm512_and_si512(w, exponents), (unsigned)code.bits), one);
    // Where the sum is below 0, as beyond 15, nothing is left of the 1.
    const ivec power = _mm512_sllv_epi16(one, _mm512_add_epi16(exponent, _mm512_set1_epi16((int16_t)(14 - largest))));
    const ivec fraction = _mm512_and_si512(_mm512_set1_epi16((1 << 14) - 1), _mm512_slli_epi16(w, 14u - (unsigned)code.bits));
    const ivec whole = _mm512_mask_add_epi16(fraction, _mm512_test_epi16_mask(w, exponents), fraction, implicit);
    const ivec magnitude = _mm512_mulhrs_epi16(whole, power);
    return _mm512_mask_sub_epi16(magnitude, _mm512_movepi16_mask(w), ivec_zero(), magnitude);
}

// These codes as integers, given fp8_largest(); returns their unit.
VEC_INLINE float fp8_block(enum dtype type, int16_t *to, const uint8_t *from, int n, int cols, int largest)
{
    const struct fp8_code code = fp8_code(type);
    const int exponent = largest >> code.bits > 0 ? largest >> code.bits : 1;
    const uint32_t size = (uint32_t)(127 + code.least + code.bits + exponent - 1 - 13) << 23;
    float unit;
    memcpy(&unit, &size, sizeof size);
#pragma GCC unroll 4
    for (int i = 0; i < cols / 64; i++) {
        const ivec codes = fp8_load(from, i, n);
        ivec_store(to + i * 64, fp8_integers(type, _mm512_castsi512_si256(codes), exponent));
        ivec_store(to + i * 64 + 32, fp8_integers(type, _mm512_extracti64x4_epi64(codes, 1), exponent));
    }
    return largest >= code.not_finite ? NAN : unit;
}
