// fp16 and bf16 weights as 16-bit integers, by integer operations alone; included by vnni/fixed.h. AVX-512 (BW).
//
// A number is a sign, an exponent e and a fraction of `bits` bits. In units of the least number that there is, its magnitude is
// (2^bits + fraction) 2^(e - 1) or, with e = 0, fraction. Where E is the block's largest exponent, the integer is what makes
// 2^13 of 2^E, to nearest: so the least number with E's exponent is 2^13 units.
#pragma once
#include "cpu/kernels/vec/quant.h"

enum {
    FP16_BITS = 10,
    BF16_BITS = 7,
    // Blocks of bfloat16 whose largest exponent is smaller, below 2^-100, count as 0. half_integers() wants 16 at least.
    BF16_LEAST = 27,
    AND_OR = 0xea, // of bits a, b, c: (a & b) | c
};

// x, loaded once: compilers else load it anew for each operation, and loads are what a core has but two of in a cycle.
VEC_INLINE ivec ivec_once(ivec x)
{
    __asm__("" : "+v"(x));
    return x;
}

// What half_integers() wants to know of a block.
struct half_scale {
    ivec powers;  // fp16: for each exponent, what its numbers are to be multiplied by. bf16: E, above a fraction of ones
    ivec negated; // fp16: these for negative numbers
};

// 32 numbers from the i-th 32 of `from` on, of which there are n in all, and zeros.
VEC_INLINE ivec half_load(const uint16_t *from, int i, int n)
{
    const int left = n - 32 * i;
    if (left >= 32)
        return ivec_load(from + (ptrdiff_t)i * 32);
    return left > 0 ? _mm512_maskz_loadu_epi16(~0u >> (32 - left), from + (ptrdiff_t)i * 32) : ivec_zero();
}

VEC_INLINE int half_largest_of(const uint16_t *from, int n, int cols)
{
    const ivec magnitude = _mm512_set1_epi16(0x7fff);
    ivec most = ivec_zero();
#pragma GCC unroll 8
    for (int i = 0; i < cols / 32; i++)
        most = _mm512_max_epu16(most, _mm512_and_si512(half_load(from, i, n), magnitude));
    const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    const __m128i quarter = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // There is an instruction for the least of eight.
    return (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)))) ^ 0xffff) & 0xffff;
}

static __attribute__((noinline, cold)) int half_largest_tail(const uint16_t *from, int n, int cols)
{
    return half_largest_of(from, n, cols);
}

// The largest magnitude of `cols` numbers (a multiple of 32), n of them and zeros, as bits.
VEC_INLINE int half_largest(const uint16_t *from, int n, int cols)
{
    return n >= cols ? half_largest_of(from, cols, cols) : half_largest_tail(from, n, cols);
}

// The largest exponent, given the largest magnitude, and in *unit what the integers are multiples of: not a number where a
// number of the block is none, or infinite.
VEC_INLINE int half_exponent(enum dtype type, int largest, float *unit)
{
    const bool fp16 = type == DTYPE_FP16;
    const int e = largest >> (fp16 ? FP16_BITS : BF16_BITS), infinite = fp16 ? 31 : 255, bias = fp16 ? 15 : 127;
    const int exponent = e > 0 ? e : 1;
    uint32_t size = (uint32_t)(exponent + 127 - bias - 13) << 23;
    size = !fp16 && e < BF16_LEAST ? 0 : size;
    size = e == infinite ? 0x7fc00000 : size;
    memcpy(unit, &size, sizeof size);
    return exponent;
}

VEC_INLINE struct half_scale half_scale(enum dtype type, int exponent)
{
    if (type == DTYPE_BF16)
        return (struct half_scale){.powers = _mm512_set1_epi16((int16_t)(exponent << 8 | 0xff))};
    static const _Alignas(64) int16_t exponents[32] = {1,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                       16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    // Where the sum is below 0, as beyond 15, nothing is left of the 1.
    const ivec powers = _mm512_sllv_epi16(_mm512_set1_epi16(1),
                                          _mm512_add_epi16(ivec_load(exponents), _mm512_set1_epi16((int16_t)(14 - exponent))));
    return (struct half_scale){powers, _mm512_sub_epi16(ivec_zero(), powers)};
}

// 32 numbers.
VEC_INLINE ivec half_integers(enum dtype type, ivec w, const struct half_scale *s)
{
    if (type == DTYPE_BF16) {
        // As if of exponent E, with its sign, in halves of units; shifted down by as many exponents as it is below E (zeros and
        // subnormal numbers by E, which is 16 at least, so that nothing is left); and rounded.
        const ivec whole = _mm512_ternarylogic_epi32(w, _mm512_set1_epi16(0x7f), _mm512_set1_epi16(0x80), AND_OR);
        const ivec factor =
            _mm512_ternarylogic_epi32(_mm512_srai_epi16(w, 15), _mm512_set1_epi16(-256), _mm512_set1_epi16(128), AND_OR);
        const ivec below = _mm512_srli_epi16(_mm512_sub_epi16(s->powers, _mm512_add_epi16(w, w)), 8);
        return _mm512_mulhrs_epi16(_mm512_srav_epi16(_mm512_mullo_epi16(whole, factor), below), _mm512_set1_epi16(0x4000));
    }
    const ivec power = _mm512_permutex2var_epi16(s->powers, _mm512_srli_epi16(w, FP16_BITS), s->negated);
    const ivec first = _mm512_min_epu16(_mm512_and_si512(w, _mm512_set1_epi16(0x7c00)), _mm512_set1_epi16(0x0400));
    const ivec whole = _mm512_ternarylogic_epi32(w, _mm512_set1_epi16(0x03ff), first, AND_OR);
    return _mm512_mulhrs_epi16(_mm512_slli_epi16(whole, 4), power);
}

VEC_INLINE float half_block_of(enum dtype type, int16_t *to, const uint16_t *from, int n, int cols, int largest)
{
    float unit;
    const struct half_scale scale = half_scale(type, half_exponent(type, largest, &unit));
#pragma GCC unroll 8
    for (int i = 0; i < cols / 32; i++)
        ivec_store(to + (ptrdiff_t)i * 32, half_integers(type, ivec_once(half_load(from, i, n)), &scale));
    return unit;
}

static __attribute__((noinline, cold)) float half_block_tail(enum dtype type, int16_t *to, const uint16_t *from, int n,
                                                             int cols, int largest)
{
    return half_block_of(type, to, from, n, cols, largest);
}

// These numbers as integers, given half_largest(); returns their unit.
VEC_INLINE float half_block(enum dtype type, int16_t *to, const uint16_t *from, int n, int cols, int largest)
{
    return n >= cols ? half_block_of(type, to, from, cols, cols, largest) : half_block_tail(type, to, from, n, cols, largest);
}
