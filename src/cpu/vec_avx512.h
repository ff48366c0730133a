// AVX-512 (F, BW, DQ, VL): 16 floats in a vector. The same names as in vec_avx2.h.
#pragma once
#include "cpu/vec_256.h"

enum { VEC = 16, TILE_ROWS = 8, TILE_VECS = 3, QUERY_TILE = 4 }; // tiles of accumulators: 24 of 32 registers, and 16

typedef __m512 vec;

VEC_INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}
VEC_INLINE vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
VEC_INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
VEC_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
} // a b + c
VEC_INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
} // b where either is NaN
VEC_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
} // likewise
VEC_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE void vec_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
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

// x in lanes [from, to), which may reach past either end (to > 0); `other` elsewhere.
VEC_INLINE vec vec_between(vec x, vec other, int from, int to)
{
    const __mmask16 below = vec_mask(from < 0 ? 0 : from < VEC ? from : VEC), through = vec_mask(to < VEC ? to : VEC);
    return _mm512_mask_blend_ps(through & ~below, other, x);
}

// Elements at + 0 … at + VEC - 1 of an array of the given type, as floats.
VEC_INLINE vec vec_load_as(enum dtype type, const void *p, ptrdiff_t at)
{
    if (type == DTYPE_FP32)
        return vec_load((const float *)p + at);
    const __m256i bits = _mm256_loadu_si256((const __m256i *)((const uint16_t *)p + at));
    return type == DTYPE_FP16 ? _mm512_cvtph_ps(bits) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

VEC_INLINE vec vec_load_part_as(enum dtype type, const void *p, ptrdiff_t at, int n)
{
    if (type == DTYPE_FP32)
        return vec_load_part((const float *)p + at, n);
    const __m256i bits = _mm256_maskz_loadu_epi16(vec_mask(n), (const uint16_t *)p + at);
    return type == DTYPE_FP16 ? _mm512_cvtph_ps(bits) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
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

// The sums of four vectors.
VEC_INLINE __m256 vec_fold(vec x)
{
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}
VEC_INLINE __m128 vec_total4(vec a, vec b, vec c, vec d)
{
    return sum4_256(vec_fold(a), vec_fold(b), vec_fold(c), vec_fold(d));
}

VEC_INLINE vec vec_round(vec x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vec vec_scale2(vec x, vec n)
{
    return _mm512_scalef_ps(x, n);
} // x 2^n for whole n in [-126, 127]
