// NEON, as every aarch64 has it: 8 floats in a vector, which is two registers. The same names as in vec/vec_avx2.h.
#pragma once
#include <arm_neon.h>

#include "cpu/kernels/vec/common.h"

enum { VEC = 8, TILE_ROWS = 4, TILE_VECS = 3, SUMS = 8 }; // tiles of sums: 24 of 32 registers, and 16

typedef struct {
    float32x4_t low, high; // lanes 0 … 3, and 4 … 7
} vec;

VEC_INLINE vec vec_zero(void)
{
    return (vec){vdupq_n_f32(0), vdupq_n_f32(0)};
}
VEC_INLINE vec vec_set(float x)
{
    return (vec){vdupq_n_f32(x), vdupq_n_f32(x)};
}
VEC_INLINE vec vec_load(const float *p)
{
    return (vec){vld1q_f32(p), vld1q_f32(p + 4)};
}
VEC_INLINE void vec_store(float *p, vec x)
{
    vst1q_f32(p, x.low);
    vst1q_f32(p + 4, x.high);
}
// p[0 … n), n = 2, 4 or 8, again and again
VEC_INLINE vec vec_repeat(const float *p, int n)
{
    if (n == 8)
        return vec_load(p);
    const float32x4_t four = n == 4 ? vld1q_f32(p) : vcombine_f32(vld1_f32(p), vld1_f32(p));
    return (vec){four, four};
}
VEC_INLINE vec vec_add(vec a, vec b)
{
    return (vec){vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return (vec){vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return (vec){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}
VEC_INLINE vec vec_div(vec a, vec b)
{
    return (vec){vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)};
}
VEC_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return (vec){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
} // a b + c
VEC_INLINE vec vec_min(vec a, vec b)
{
    return (vec){vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
} // b where either is NaN
VEC_INLINE vec vec_max(vec a, vec b)
{
    return (vec){vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
} // likewise

// x, which is not to be loaded again at each use: that would take as many loads as there are multiply-adds.
VEC_INLINE vec vec_loaded(vec x)
{
    __asm__("" : "+w"(x.low), "+w"(x.high));
    return x;
}

// The first n elements, n in [0, VEC]; the rest is zero, and its memory is not touched.
VEC_INLINE vec vec_load_part(const float *p, int n)
{
    float part[VEC] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return vec_load(part);
}
VEC_INLINE void vec_store_part(float *p, vec x, int n)
{
    float part[VEC];
    vec_store(part, x);
    memcpy(p, part, (size_t)n * sizeof *p);
}

// x in lanes [from, to), which may reach past either end; `other` elsewhere.
VEC_INLINE float32x4_t between(float32x4_t x, float32x4_t other, int32x4_t lanes, int from, int to)
{
    return vbslq_f32(vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(from)), vcltq_s32(lanes, vdupq_n_s32(to))), x, other);
}
VEC_INLINE vec vec_between(vec x, vec other, int from, int to)
{
    const int32x4_t lanes = {0, 1, 2, 3};
    return (vec){between(x.low, other.low, lanes, from, to), between(x.high, other.high, lanes, from - 4, to - 4)};
}

// 8 fp8 elements as halves: see fp8_unit().
VEC_INLINE uint16x8_t vec_fp8_halves(enum dtype type, uint8x8_t bytes)
{
    if (type == DTYPE_FP8_E5M2)
        return vshll_n_u8(bytes, 8);
    const int16x8_t wide = vshlq_n_s16(vmovl_s8(vreinterpret_s8_u8(bytes)), 7);
    return vandq_u16(vreinterpretq_u16_s16(wide), vdupq_n_u16(0xbfff));
}

VEC_INLINE vec vec_from_half(enum dtype type, uint16x8_t bits)
{
    if (type == DTYPE_BF16)
        return (vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
                     vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
    const float16x8_t halves = vreinterpretq_f16_u16(bits);
    return (vec){vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

// Elements at + 0 … at + VEC - 1 of an array of the given type, as floats; of fp8 without fp8_unit().
VEC_INLINE vec vec_load_unit(enum dtype type, const void *p, ptrdiff_t at)
{
    if (type == DTYPE_FP32)
        return vec_load((const float *)p + at);
    if (dtype_sizes[type] == 1)
        return vec_from_half(type, vec_fp8_halves(type, vld1_u8((const uint8_t *)p + at)));
    return vec_from_half(type, vld1q_u16((const uint16_t *)p + at));
}

VEC_INLINE vec vec_load_part_unit(enum dtype type, const void *p, ptrdiff_t at, int n)
{
    if (type == DTYPE_FP32)
        return vec_load_part((const float *)p + at, n);
    uint16_t part[VEC] = {0};
    memcpy(part, (const char *)p + at * (ptrdiff_t)dtype_sizes[type], (size_t)n * dtype_sizes[type]);
    return vec_load_unit(type, part, 0);
}

VEC_INLINE void vec_store_fp16(uint16_t *p, vec x) // to nearest even
{
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high)));
}
VEC_INLINE void vec_store_fp16_part(uint16_t *p, vec x, int n)
{
    uint16_t part[VEC];
    vec_store_fp16(part, x);
    memcpy(p, part, (size_t)n * sizeof *p);
}

VEC_INLINE vec vec_from_int16(int16x8_t x)
{
    return (vec){vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_high_s16(x))};
}

VEC_INLINE vec vec_load_int8(const int8_t *p)
{
    return vec_from_int16(vmovl_s8(vld1_s8(p)));
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
    int8_t part[VEC];
    const int16x8_t words = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(x.low)), vcvtnq_s32_f32(x.high));
    vst1_s8(part, vqmovn_s16(words));
    memcpy(p, part, (size_t)n);
}
// Lanes from 0 to 255, rounded to nearest even, as bytes.
VEC_INLINE void vec_store_bytes(uint8_t *p, vec x)
{
    const uint16x8_t words = vqmovn_high_u32(vqmovn_u32(vcvtnq_u32_f32(x.low)), vcvtnq_u32_f32(x.high));
    vst1_u8(p, vqmovn_u16(words));
}

VEC_INLINE vec vec_abs(vec x)
{
    return (vec){vabsq_f32(x.low), vabsq_f32(x.high)};
}

VEC_INLINE float vec_first(vec x)
{
    return vgetq_lane_f32(x.low, 0);
}
VEC_INLINE float vec_total(vec x)
{
    return vaddvq_f32(vaddq_f32(x.low, x.high));
}
VEC_INLINE float vec_largest(vec x)
{
    return vmaxvq_f32(vmaxq_f32(x.low, x.high));
}

// The total of each of VEC vectors.
VEC_INLINE float32x4_t four_totals(const vec x[4])
{
    float32x4_t half[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        half[i] = vaddq_f32(x[i].low, x[i].high);
    return vpaddq_f32(vpaddq_f32(half[0], half[1]), vpaddq_f32(half[2], half[3]));
}
VEC_INLINE vec vec_totals(const vec x[VEC])
{
    return (vec){four_totals(x), four_totals(x + 4)};
}

VEC_INLINE vec vec_round(vec x)
{
    return (vec){vrndnq_f32(x.low), vrndnq_f32(x.high)};
}

// x 2^n for whole n in [-126, 127], but 0, whatever x and n are, where by < least
VEC_INLINE float32x4_t scale2_from(float32x4_t least, float32x4_t by, float32x4_t x, float32x4_t n)
{
    const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    const float32x4_t scaled = vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(scaled), vcltq_f32(by, least)));
}
VEC_INLINE vec vec_scale2_from(vec least, vec by, vec x, vec n)
{
    return (vec){scale2_from(least.low, by.low, x.low, n.low), scale2_from(least.high, by.high, x.high, n.high)};
}

VEC_INLINE vec vec_gather(const float *p, const int *indices) // p[indices[0 … VEC)]
{
    float found[VEC];
#pragma GCC unroll 8
    for (int i = 0; i < VEC; i++)
        found[i] = p[indices[i]];
    return vec_load(found);
}

// Numbers and values of the lanes with x >= least, one after another; returns how many. VEC of both are written.
VEC_INLINE int vec_pick(int *indices, float *values, vec x, const int numbers[VEC], float least)
{
    int n = 0, picked[VEC] = {0};
    float lanes[VEC], kept[VEC] = {0};
    vec_store(lanes, x);
#pragma GCC unroll 8
    for (int i = 0; i < VEC; i++) {
        picked[n] = numbers[i];
        kept[n] = lanes[i];
        n += lanes[i] >= least;
    }
    memcpy(indices, picked, sizeof picked);
    memcpy(values, kept, sizeof kept);
    return n;
}
VEC_INLINE int vec_collect(int *indices, float *values, vec x, int j, float least) // numbers from j on
{
    const int numbers[VEC] = {j, j + 1, j + 2, j + 3, j + 4, j + 5, j + 6, j + 7};
    return vec_pick(indices, values, x, numbers, least);
}
VEC_INLINE int vec_keep(int *indices, float *values, vec x, const int *numbers, float least)
{
    return vec_pick(indices, values, x, numbers, least);
}

VEC_INLINE int vec_count_from(vec x, float least) // lanes with x >= least
{
    const float32x4_t limit = vdupq_n_f32(least);
    return (int)-vaddvq_s32(vreinterpretq_s32_u32(vaddq_u32(vcgeq_f32(x.low, limit), vcgeq_f32(x.high, limit))));
}
VEC_INLINE float32x4_t keep_from(float32x4_t x, float32x4_t least)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vcgeq_f32(x, least)));
}
VEC_INLINE vec vec_keep_from(vec x, float least) // 0 in the others
{
    return (vec){keep_from(x.low, vdupq_n_f32(least)), keep_from(x.high, vdupq_n_f32(least))};
}

// Bits of the lanes that are equal.
VEC_INLINE unsigned vec_equal_bits(vec a, vec b)
{
    const uint32x4_t low = {1, 2, 4, 8}, high = {16, 32, 64, 128};
    return vaddvq_u32(vorrq_u32(vandq_u32(vceqq_f32(a.low, b.low), low), vandq_u32(vceqq_f32(a.high, b.high), high)));
}

// Low or high halves of n <= VEC bytes, less 8.
VEC_INLINE vec vec_load_nibbles(const uint8_t *p, int n, _Bool high)
{
    uint8_t part[VEC] = {0};
    if (n < VEC)
        memcpy(part, p, (size_t)n);
    const uint8x8_t bytes = vld1_u8(n < VEC ? part : p);
    const uint8x8_t halves = high ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15));
    return vec_from_int16(vmovl_s8(vsub_s8(vreinterpret_s8_u8(halves), vdup_n_s8(8))));
}

// Of 16 values those that the low or high halves of VEC bytes number.
VEC_INLINE vec vec_look_up_16(const float *values, const uint8_t *bytes, _Bool high)
{
    float found[VEC];
#pragma GCC unroll 8
    for (int i = 0; i < VEC; i++)
        found[i] = values[high ? bytes[i] >> 4 : bytes[i] & 15];
    return vec_load(found);
}

// ------------------------------------------------------------------------------------------ by eights

typedef vec float8;

VEC_INLINE float8 float8_load(const float *p)
{
    return vec_load(p);
}
VEC_INLINE void float8_store(float *p, float8 x)
{
    vec_store(p, x);
}

VEC_INLINE void transpose_4x4(float32x4_t row[4])
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(row[0], row[1])),
                      b = vreinterpretq_f64_f32(vtrn2q_f32(row[0], row[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(row[2], row[3])),
                      d = vreinterpretq_f64_f32(vtrn2q_f32(row[2], row[3]));
    row[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    row[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    row[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    row[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

// (8, 8) in place: row[i][j] becomes row[j][i].
VEC_INLINE void transpose_8x8(float8 row[8])
{
    float32x4_t quarter[4][4]; // by halves of rows and of columns
    for (int i = 0; i < 4; i++) {
        quarter[0][i] = row[i].low;
        quarter[1][i] = row[i].high;
        quarter[2][i] = row[i + 4].low;
        quarter[3][i] = row[i + 4].high;
    }
    for (int q = 0; q < 4; q++)
        transpose_4x4(quarter[q]);
    for (int i = 0; i < 4; i++) {
        row[i] = (float8){quarter[0][i], quarter[2][i]};
        row[i + 4] = (float8){quarter[1][i], quarter[3][i]};
    }
}

#include "cpu/kernels/vec/transpose.h"

// What is read of cache lines, so that it is not read in vain.
struct lines {
    uint64x2_t low, high;
};
VEC_INLINE void lines_add(struct lines *lines, const char *line)
{
    const uint64_t *words = (const uint64_t *)line;
    lines->low = veorq_u64(lines->low, veorq_u64(vld1q_u64(words), vld1q_u64(words + 2)));
    lines->high = vaddq_u64(lines->high, veorq_u64(vld1q_u64(words + 4), vld1q_u64(words + 6)));
}
VEC_INLINE uint64_t lines_value(const struct lines *lines)
{
    const uint64x2_t both = veorq_u64(lines->low, lines->high);
    return vgetq_lane_u64(both, 0) ^ vgetq_lane_u64(both, 1);
}
