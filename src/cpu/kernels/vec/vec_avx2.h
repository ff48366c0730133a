// AVX2, FMA and F16C: 8 floats in a vector. The same names as in vec/vec_avx512.h.
#pragma once
#include "cpu/kernels/vec/vec_256.h"

enum { VEC = 8, TILE_ROWS = 4, TILE_VECS = 3, SUMS = 8 }; // tiles of sums: 12 of 16 registers, and 8

typedef __m256 vec;

#define X86(name)      _mm256_##name
#define X86_BITS(name) _mm256_##name##_si256
#include "cpu/kernels/vec/vec_x86.h"

// p[0 … n), n = 2, 4 or 8, again and again
VEC_INLINE vec vec_repeat(const float *p, int n)
{
    double two;
    memcpy(&two, p, sizeof two);
    return n == 2   ? _mm256_castpd_ps(_mm256_set1_pd(two))
           : n == 4 ? _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p), 1)
                    : _mm256_loadu_ps(p);
}

// The first n elements, n in [0, VEC]; the rest is zero, and its memory is not touched.
VEC_INLINE __m256i vec_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE vec vec_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, vec_mask(n));
}
VEC_INLINE void vec_store_part(float *p, vec x, int n)
{
    _mm256_maskstore_ps(p, vec_mask(n), x);
}

// x in lanes [from, to), which may reach past either end; `other` elsewhere.
VEC_INLINE vec vec_between(vec x, vec other, int from, int to)
{
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_andnot_si256(vec_mask(from), vec_mask(to))));
}

// 8 fp8 elements, in the low half, as halves: see fp8_unit().
VEC_INLINE __m128i vec_fp8_halves(enum dtype type, __m128i bytes)
{
    if (type == DTYPE_FP8_E5M2)
        return _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
    return _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), _mm_set1_epi16((short)0xbfff));
}

VEC_INLINE vec vec_from_half(enum dtype type, __m128i bits)
{
    return type == DTYPE_BF16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)) : _mm256_cvtph_ps(bits);
}

// Elements at + 0 … at + VEC - 1 of an array of the given type, as floats; of fp8 without fp8_unit().
VEC_INLINE vec vec_load_unit(enum dtype type, const void *p, ptrdiff_t at)
{
    if (type == DTYPE_FP32)
        return vec_load((const float *)p + at);
    if (dtype_sizes[type] == 1)
        return vec_from_half(type, vec_fp8_halves(type, _mm_loadl_epi64((const __m128i *)((const uint8_t *)p + at))));
    return vec_from_half(type, _mm_loadu_si128((const __m128i *)((const uint16_t *)p + at)));
}

VEC_INLINE vec vec_load_part_unit(enum dtype type, const void *p, ptrdiff_t at, int n)
{
    if (type == DTYPE_FP32)
        return vec_load_part((const float *)p + at, n);
    uint16_t part[VEC] = {0}; // there is no masked load of elements shorter than 32 bits
    memcpy(part, (const char *)p + at * (ptrdiff_t)dtype_sizes[type], (size_t)n * dtype_sizes[type]);
    const __m128i bits = _mm_loadu_si128((const __m128i *)part);
    return vec_from_half(type, dtype_sizes[type] == 1 ? vec_fp8_halves(type, bits) : bits);
}

VEC_INLINE void vec_store_fp16(uint16_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE void vec_store_fp16_part(uint16_t *p, vec x, int n)
{
    uint16_t part[VEC];
    vec_store_fp16(part, x);
    memcpy(p, part, (size_t)n * sizeof *p);
}

VEC_INLINE vec vec_load_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE vec vec_load_int8_part(const int8_t *p, int n)
{
    int8_t part[VEC] = {0};
    memcpy(part, p, (size_t)n);
    return vec_load_int8(part);
}

// The first n elements, rounded to nearest even and held to [-128, 127].
VEC_INLINE void vec_store_int8_part(int8_t *p, vec x, int n)
{
    int8_t part[2 * VEC];
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si128((__m128i *)part, _mm_packs_epi16(words, words));
    memcpy(p, part, (size_t)n);
}

VEC_INLINE vec vec_abs(vec x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

VEC_INLINE float vec_first(vec x)
{
    return _mm256_cvtss_f32(x);
}
VEC_INLINE float vec_total(vec x)
{
    const __m256 sums = quarter_sums_256(x, x, x, x);
    return _mm256_cvtss_f32(sums) + _mm_cvtss_f32(_mm256_extractf128_ps(sums, 1));
}

VEC_INLINE float vec_largest(vec x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// The total of each of VEC vectors.
VEC_INLINE vec vec_totals(const vec x[VEC])
{
    const __m256 low = quarter_sums_256(x[0], x[1], x[2], x[3]), high = quarter_sums_256(x[4], x[5], x[6], x[7]);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

VEC_INLINE vec vec_round(vec x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x 2^n for whole n in [-126, 127], but 0, whatever x and n are, where by < least
VEC_INLINE vec vec_scale2_from(vec least, vec by, vec x, vec n)
{
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    const vec scaled = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(by, least, _CMP_NLT_UQ));
}

VEC_INLINE vec vec_gather(const float *p, const int *indices) // p[indices[0 … VEC)]
{
    return _mm256_i32gather_ps(p, _mm256_loadu_si256((const __m256i *)indices), sizeof *p);
}

// Numbers and values of the lanes with x >= least, one after another; returns how many. VEC of both are written.
VEC_INLINE int vec_pick(int *indices, float *values, vec x, __m256i numbers, float least)
{
    const unsigned chosen = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, vec_set(least), _CMP_GE_OQ));
    uint64_t lanes = 0; // the chosen lanes' numbers, a byte each
    int n = 0;
    for (unsigned left = chosen; left; left &= left - 1)
        lanes |= (uint64_t)__builtin_ctz(left) << 8 * n++;
    const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes));
    _mm256_storeu_si256((__m256i *)indices, _mm256_permutevar8x32_epi32(numbers, order));
    vec_store(values, _mm256_permutevar8x32_ps(x, order));
    return n;
}
VEC_INLINE int vec_collect(int *indices, float *values, vec x, int j, float least) // numbers from j on
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return vec_pick(indices, values, x, _mm256_add_epi32(lanes, _mm256_set1_epi32(j)), least);
}
VEC_INLINE int vec_keep(int *indices, float *values, vec x, const int *numbers, float least)
{
    return vec_pick(indices, values, x, _mm256_loadu_si256((const __m256i *)numbers), least);
}

VEC_INLINE int vec_count_from(vec x, float least) // lanes with x >= least
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, vec_set(least), _CMP_GE_OQ)));
}
VEC_INLINE vec vec_keep_from(vec x, float least) // 0 in the others
{
    return _mm256_and_ps(x, _mm256_cmp_ps(x, vec_set(least), _CMP_GE_OQ));
}

// Low or high halves of n <= VEC bytes, less 8.
VEC_INLINE vec vec_load_nibbles(const uint8_t *p, int n, _Bool high)
{
    uint8_t part[VEC] = {0};
    if (n < VEC)
        memcpy(part, p, (size_t)n);
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(n < VEC ? part : p)));
    const __m256i halves = high ? _mm256_srli_epi32(bytes, 4) : _mm256_and_si256(bytes, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(halves, _mm256_set1_epi32(8)));
}

// Bits of the lanes that are equal.
VEC_INLINE unsigned vec_equal_bits(vec a, vec b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}

// Lanes from 0 to 255, rounded to nearest even, as bytes.
VEC_INLINE void vec_store_bytes(uint8_t *p, vec x)
{
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
}

// Of 16 values those that the low or high halves of VEC bytes number.
VEC_INLINE vec vec_look_up_16(const float *values, const uint8_t *bytes, _Bool high)
{
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    const __m256i code = high ? _mm256_srli_epi32(wide, 4) : wide;
    const __m256 lower = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), code); // looks at three bits
    const __m256 upper = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + 8), code);
    return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}
