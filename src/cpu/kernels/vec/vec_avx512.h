// AVX-512 (F, BW, DQ, VL): 16 floats in a vector. The same names as in vec/vec_avx2.h.
#pragma once
#include "cpu/kernels/vec/vec_256.h"

enum { VEC = 16, TILE_ROWS = 8, TILE_VECS = 3, SUMS = 16 }; // tiles of sums: 24 of 32 registers, and 16

typedef __m512 vec;

#define X86(name)      _mm512_##name
#define X86_BITS(name) _mm512_##name##_si512
#include "cpu/kernels/vec/vec_x86.h"

// p[0 … n), n = 2, 4 or 8, again and again
VEC_INLINE vec vec_repeat(const float *p, int n)
{
    double two;
    memcpy(&two, p, sizeof two);
    return n == 2   ? _mm512_castpd_ps(_mm512_set1_pd(two))
           : n == 4 ? _mm512_broadcast_f32x4(_mm_loadu_ps(p))
                    : _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(p))));
}
// Not from memory, where four single stores would have to be waited for.
VEC_INLINE vec vec_repeat_four(float a, float b, float c, float d)
{
    return _mm512_broadcast_f32x4(_mm_setr_ps(a, b, c, d));
}

// The first n elements, n in [0, VEC]; the rest is zero, and its memory is not touched.
VEC_INLINE __mmask16 vec_mask(int n)
{
    return (__mmask16)((1u << n) - 1);
}
VEC_INLINE vec vec_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}
VEC_INLINE void vec_store_part(float *p, vec x, int n)
{
    _mm512_mask_storeu_ps(p, vec_mask(n), x);
}

// x in lanes [from, to), which may reach past either end; `other` elsewhere.
VEC_INLINE vec vec_between(vec x, vec other, int from, int to)
{
    const __mmask16 below = vec_mask(from < 0     ? 0
                                     : from < VEC ? from
                                                  : VEC),
                    through = vec_mask(to < 0     ? 0
                                       : to < VEC ? to
                                                  : VEC);
    return _mm512_mask_blend_ps(through & ~below, other, x);
}

// 16 fp8 elements as halves: see fp8_unit().
VEC_INLINE __m256i vec_fp8_halves(enum dtype type, __m128i bytes)
{
    if (type == DTYPE_FP8_E5M2)
        return _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
}

VEC_INLINE vec vec_from_half(enum dtype type, __m256i bits)
{
    return type == DTYPE_BF16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)) : _mm512_cvtph_ps(bits);
}

// Elements at + 0 … at + VEC - 1 of an array of the given type, as floats; of fp8 without fp8_unit().
VEC_INLINE vec vec_load_unit(enum dtype type, const void *p, ptrdiff_t at)
{
    if (type == DTYPE_FP32)
        return vec_load((const float *)p + at);
    if (dtype_sizes[type] == 1)
        return vec_from_half(type, vec_fp8_halves(type, _mm_loadu_si128((const __m128i *)((const uint8_t *)p + at))));
    return vec_from_half(type, _mm256_loadu_si256((const __m256i *)((const uint16_t *)p + at)));
}

VEC_INLINE vec vec_load_part_unit(enum dtype type, const void *p, ptrdiff_t at, int n)
{
    if (type == DTYPE_FP32)
        return vec_load_part((const float *)p + at, n);
    if (dtype_sizes[type] == 1)
        return vec_from_half(type, vec_fp8_halves(type, _mm_maskz_loadu_epi8(vec_mask(n), (const uint8_t *)p + at)));
    return vec_from_half(type, _mm256_maskz_loadu_epi16(vec_mask(n), (const uint16_t *)p + at));
}

VEC_INLINE __m256i vec_to_fp16(vec x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE void vec_store_fp16(uint16_t *p, vec x)
{
    _mm256_storeu_si256((__m256i *)p, vec_to_fp16(x));
}
VEC_INLINE void vec_store_fp16_part(uint16_t *p, vec x, int n)
{
    _mm256_mask_storeu_epi16(p, vec_mask(n), vec_to_fp16(x));
}

VEC_INLINE vec vec_load_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
VEC_INLINE vec vec_load_int8_part(const int8_t *p, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(vec_mask(n), p)));
}

// The first n elements, rounded to nearest even and held to [-128, 127].
VEC_INLINE void vec_store_int8_part(int8_t *p, vec x, int n)
{
    _mm_mask_storeu_epi8(p, vec_mask(n), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}

VEC_INLINE vec vec_abs(vec x)
{
    return _mm512_abs_ps(x);
}

VEC_INLINE float vec_first(vec x)
{
    return _mm512_cvtss_f32(x);
}
VEC_INLINE float vec_total(vec x)
{
    return _mm512_reduce_add_ps(x);
}
VEC_INLINE float vec_largest(vec x)
{
    return _mm512_reduce_max_ps(x);
}

// Within each 128 bits: what is left of the sums of a, b, c and d, one after another.
VEC_INLINE vec quarter_sums(vec a, vec b, vec c, vec d)
{
    const vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); // a b a b
    const vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
}

// Lanes of 128 bits: a0 + a1, a2 + a3, b0 + b1, b2 + b3.
VEC_INLINE vec add_lane_pairs(vec a, vec b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
}

// The total of each of VEC vectors.
VEC_INLINE vec vec_totals(const vec x[VEC])
{
    const vec a = add_lane_pairs(quarter_sums(x[0], x[1], x[2], x[3]), quarter_sums(x[4], x[5], x[6], x[7]));
    const vec b = add_lane_pairs(quarter_sums(x[8], x[9], x[10], x[11]), quarter_sums(x[12], x[13], x[14], x[15]));
    return add_lane_pairs(a, b);
}

VEC_INLINE vec vec_round(vec x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x 2^n for whole n in [-126, 127], but 0, whatever x and n are, where by < least
VEC_INLINE vec vec_scale2_from(vec least, vec by, vec x, vec n)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(by, least, _CMP_NLT_UQ), x, n);
}

VEC_INLINE vec vec_gather(const float *p, const int *indices) // p[indices[0 … VEC)]
{
    return _mm512_i32gather_ps(_mm512_loadu_si512(indices), p, sizeof *p);
}

// Numbers and values of the lanes with x >= least, one after another; returns how many. VEC of both are written.
VEC_INLINE int vec_pick(int *indices, float *values, vec x, __m512i numbers, float least)
{
    const __mmask16 chosen = _mm512_cmp_ps_mask(x, vec_set(least), _CMP_GE_OQ);
    _mm512_storeu_si512(indices, _mm512_maskz_compress_epi32(chosen, numbers)); // to memory, compression is slow
    vec_store(values, _mm512_maskz_compress_ps(chosen, x));
    return __builtin_popcount(chosen);
}
VEC_INLINE int vec_collect(int *indices, float *values, vec x, int j, float least) // numbers from j on
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return vec_pick(indices, values, x, _mm512_add_epi32(lanes, _mm512_set1_epi32(j)), least);
}
VEC_INLINE int vec_keep(int *indices, float *values, vec x, const int *numbers, float least)
{
    return vec_pick(indices, values, x, _mm512_loadu_si512(numbers), least);
}

VEC_INLINE int vec_count_from(vec x, float least) // lanes with x >= least
{
    return __builtin_popcount(_mm512_cmp_ps_mask(x, vec_set(least), _CMP_GE_OQ));
}
VEC_INLINE vec vec_keep_from(vec x, float least) // 0 in the others
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, vec_set(least), _CMP_GE_OQ), x);
}

// Low or high halves of n <= VEC bytes, less 8.
VEC_INLINE vec vec_load_nibbles(const uint8_t *p, int n, _Bool high)
{
    const __m512i bytes =
        _mm512_cvtepu8_epi32(n == VEC ? _mm_loadu_si128((const __m128i *)p) : _mm_maskz_loadu_epi8(vec_mask(n), p));
    const __m512i halves = high ? _mm512_srli_epi32(bytes, 4) : _mm512_and_si512(bytes, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(halves, _mm512_set1_epi32(8)));
}

// Bits of the lanes that are equal.
VEC_INLINE unsigned vec_equal_bits(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

// Lanes from 0 to 255, rounded to nearest even, as bytes.
VEC_INLINE void vec_store_bytes(uint8_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x)));
}

// Of 16 values those that the low or high halves of VEC bytes number.
VEC_INLINE vec vec_look_up_16(const float *values, const uint8_t *bytes, _Bool high)
{
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
    return _mm512_permutexvar_ps(high ? _mm512_srli_epi32(wide, 4) : wide, _mm512_loadu_ps(values)); // looks at four bits
}
