// Numbers of GGUF's grids on their way to a product: a part of a row becomes bytes in L1, which are then multiplied as q8's.
// Which of the types it is, struct quants_at says: they share their kernels. Included by the quant_*.h of each width.
#pragma once
#include "cpu/kernels/vec/quant_planes.h"
#include "cpu/kernels/vec/vec.h"
#include "model/quant_grids.h"

#ifdef __AVX512F__
// Two groups. Eight magnitudes, or four, come by one look-up; a mask of all signs subtracts them from 0.
VEC_INLINE __m512i grid_pair(enum dtype type, const uint8_t *low, const uint8_t *high)
{
    const ptrdiff_t apart = type == DTYPE_IQ3S || type == DTYPE_IQ2S ? 5 : 4;
    const uint64_t signs = grid_signs(type, high) | (uint64_t)grid_signs(type, high + apart) << 32;
    __m512i magnitudes;
    if (type == DTYPE_IQ3S || type == DTYPE_IQ3XXS) {
        __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)low));
        if (type == DTYPE_IQ3S)
            index = _mm512_mask_add_epi32(index, (__mmask16)(high[4] | high[9] << 8), index, _mm512_set1_epi32(256));
        magnitudes = _mm512_i32gather_epi32(index, type == DTYPE_IQ3S ? iq3s_grid : iq3xxs_grid, 4);
    } else {
        __m512i index = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)low));
        if (type == DTYPE_IQ2XS) {
            const __m512i upper = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)high));
            index = _mm512_or_si512(index, _mm512_and_si512(_mm512_slli_epi64(upper, 1), _mm512_set1_epi64(256)));
        } else if (type == DTYPE_IQ2S) {
            const __m512i upper =
                _mm512_srlv_epi64(_mm512_set1_epi64(high[4] | high[9] << 8), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
            index = _mm512_or_si512(index, _mm512_slli_epi64(_mm512_and_si512(upper, _mm512_set1_epi64(3)), 8));
        }
        magnitudes = _mm512_i64gather_epi64(index,
                                            type == DTYPE_IQ2S    ? iq2s_grid
                                            : type == DTYPE_IQ2XS ? iq2xs_grid
                                                                  : iq2xxs_grid,
                                            8);
    }
    return _mm512_mask_sub_epi8(magnitudes, signs, _mm512_setzero_si512(), magnitudes);
}
enum { GRID_AT_ONCE = 2 }; // groups
#elif defined __AVX2__
VEC_INLINE __m256i grid_one(enum dtype type, const uint8_t *low, const uint8_t *high)
{
    const __m256i magnitudes =
        _mm256_setr_epi64x((int64_t)grid_eight(type, low, high, 0), (int64_t)grid_eight(type, low, high, 1),
                           (int64_t)grid_eight(type, low, high, 2), (int64_t)grid_eight(type, low, high, 3));
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201),
                  eights = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)grid_signs(type, high)), eights);
    const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(magnitudes, minus), minus);
}
enum { GRID_AT_ONCE = 1 };
#else
VEC_INLINE int8x16_t grid_half(enum dtype type, const uint8_t *low, const uint8_t *high, int half)
{
    const uint64x2_t magnitudes = vcombine_u64(vcreate_u64(grid_eight(type, low, high, 2 * half)),
                                               vcreate_u64(grid_eight(type, low, high, 2 * half + 1)));
    const uint32_t signs = grid_signs(type, high) >> 16 * half;
    const uint8x16_t bytes = vcombine_u8(vdup_n_u8((uint8_t)signs), vdup_n_u8((uint8_t)(signs >> 8)));
    const int8x16_t minus = vreinterpretq_s8_u8(vtstq_u8(bytes, vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201))));
    return vsubq_s8(veorq_s8(vreinterpretq_s8_u64(magnitudes), minus), minus);
}
enum { GRID_AT_ONCE = 1 };
#endif

VEC_INLINE void grid_bytes_of(enum dtype type, int8_t *to, struct quants_at at, int groups)
{
    at.type = type;
    for (int g = 0; g < groups; g += GRID_AT_ONCE, to += GRID_AT_ONCE * QUANT_GROUP) {
        const struct quants_at from = groups_on(DTYPE_IQ3S, at, g);
#ifdef __AVX512F__
        _mm512_storeu_si512(to, grid_pair(type, from.low, from.high));
#elif defined __AVX2__
        _mm256_storeu_si256((__m256i *)to, grid_one(type, from.low, from.high));
#else
        vst1q_s8(to, grid_half(type, from.low, from.high, 0));
        vst1q_s8(to + QUANT_GROUP / 2, grid_half(type, from.low, from.high, 1));
#endif
    }
}

// `groups` groups, in whole GRID_AT_ONCE, as bytes in their order. Not inlined: in each product it would be much text.
static __attribute__((noinline)) void grid_bytes(int8_t *to, struct quants_at at, int groups)
{
    switch (at.type) {
    case DTYPE_IQ3S:
        grid_bytes_of(DTYPE_IQ3S, to, at, groups);
        break;
    case DTYPE_IQ3XXS:
        grid_bytes_of(DTYPE_IQ3XXS, to, at, groups);
        break;
    case DTYPE_IQ2S:
        grid_bytes_of(DTYPE_IQ2S, to, at, groups);
        break;
    case DTYPE_IQ2XS:
        grid_bytes_of(DTYPE_IQ2XS, to, at, groups);
        break;
    default:
        grid_bytes_of(DTYPE_IQ2XXS, to, at, groups);
    }
}
