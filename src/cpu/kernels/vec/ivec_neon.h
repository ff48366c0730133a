// Vectors of integers with NEON. The same names as in vec/ivec_avx512.h.
#pragma once
#include "cpu/kernels/vec/quant_planes.h"
#include "cpu/kernels/vec/vec.h"

typedef struct {
    int32x4_t low, high;
} ivec;

enum { PART_ROWS = 1 }; // that are multiplied together with each of several tokens: 16 registers

enum {
    QUANT_TILE_ROWS = 4,
    QUANT_TILE_VECS = 2,
    QUANT_TWO_ROWS = 4,
    QUANT_TALL_ROWS = 8
}; // 16 of 32 registers; as many float ones, some of them in L1

// A vector's halves, by their bytes or 16-bit elements.
#define AS_8(x)    vreinterpretq_s8_s32(x)
#define AS_16(x)   vreinterpretq_s16_s32(x)
#define FROM_8(x)  vreinterpretq_s32_s8(x)
#define FROM_16(x) vreinterpretq_s32_s16(x)

VEC_INLINE ivec ivec_zero(void)
{
    return (ivec){vdupq_n_s32(0), vdupq_n_s32(0)};
}
VEC_INLINE ivec ivec_load(const void *p)
{
    return (ivec){FROM_8(vld1q_s8(p)), FROM_8(vld1q_s8((const int8_t *)p + 16))};
}
VEC_INLINE void ivec_store(void *p, ivec x)
{
    vst1q_s8(p, AS_8(x.low));
    vst1q_s8((int8_t *)p + 16, AS_8(x.high));
}
VEC_INLINE void ivec_store_narrow(int16_t *to, ivec x) // no value is beyond 16 bits
{
    vst1q_s16(to, vqmovn_high_s32(vqmovn_s32(x.low), x.high));
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return (ivec){vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)};
}
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return (ivec){vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)};
}
VEC_INLINE ivec ivec_set(int32_t x)
{
    return (ivec){vdupq_n_s32(x), vdupq_n_s32(x)};
}
VEC_INLINE ivec ivec_set8(int x)
{
    return (ivec){FROM_8(vdupq_n_s8((int8_t)x)), FROM_8(vdupq_n_s8((int8_t)x))};
}
VEC_INLINE vec ivec_to_float(ivec x)
{
    return (vec){vcvtq_f32_s32(x.low), vcvtq_f32_s32(x.high)};
}
VEC_INLINE ivec ivec_round(vec x)
{
    return (ivec){vcvtnq_s32_f32(x.low), vcvtnq_s32_f32(x.high)};
}

// sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1], of 16-bit elements.
VEC_INLINE int32x4_t dot_16(int32x4_t sum, int16x8_t a, int16x8_t b)
{
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
}
VEC_INLINE ivec ivec_dot(ivec sum, ivec a, ivec b)
{
    return (ivec){dot_16(sum.low, AS_16(a.low), AS_16(b.low)), dot_16(sum.high, AS_16(a.high), AS_16(b.high))};
}

VEC_INLINE ivec ivec_products(ivec a, ivec b)
{
    return ivec_dot(ivec_zero(), a, b);
}

// sum[i] += four products of 8-bit elements. (Elsewhere a's have no sign: who calls this from outside has none of 128 and
// more.)
VEC_INLINE int32x4_t dot_8(int32x4_t sum, int8x16_t a, int8x16_t b)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
VEC_INLINE ivec ivec_dot8(ivec sum, ivec a, ivec b)
{
    return (ivec){dot_8(sum.low, AS_8(a.low), AS_8(b.low)), dot_8(sum.high, AS_8(a.high), AS_8(b.high))};
}
// Of a and x, and of b and y.
VEC_INLINE ivec ivec_dot8_two(ivec sum, ivec a, ivec x, ivec b, ivec y)
{
    return ivec_dot8(ivec_dot8(sum, a, x), b, y);
}

// The larger of each pair, compared as bits, of numbers without sign: a NaN is larger than any number.
VEC_INLINE ivec ivec_larger(ivec a, vec b)
{
    return (ivec){vmaxq_s32(a.low, vreinterpretq_s32_f32(b.low)), vmaxq_s32(a.high, vreinterpretq_s32_f32(b.high))};
}
VEC_INLINE vec ivec_as_floats(ivec bits)
{
    return (vec){vreinterpretq_f32_s32(bits.low), vreinterpretq_f32_s32(bits.high)};
}
// The largest magnitude of n vectors, likewise.
VEC_INLINE float largest_magnitude(const vec *x, int n)
{
    ivec most = ivec_zero();
    for (int i = 0; i < n; i++)
        most = ivec_larger(most, vec_abs(x[i]));
    const int32_t bits = vmaxvq_s32(vmaxq_s32(most.low, most.high));
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

VEC_INLINE float32x4_t where_above(float32x4_t x, float least, float32x4_t y)
{
    return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(x, vdupq_n_f32(least)), vreinterpretq_u32_f32(y)));
}
VEC_INLINE vec vec_where_above(vec x, float least, vec y) // y where x is above, else 0
{
    return (vec){where_above(x.low, least, y.low), where_above(x.high, least, y.high)};
}

// The lowest 8 bits of each element of four.
VEC_INLINE int32x4_t low_bytes_of(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d)
{
    int32x4_t all = vsliq_n_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b), 8);
    all = vsliq_n_s32(all, vreinterpretq_s32_f32(c), 16);
    return vsliq_n_s32(all, vreinterpretq_s32_f32(d), 24);
}
VEC_INLINE ivec ivec_low_bytes(const vec x[4])
{
    return (ivec){low_bytes_of(x[0].low, x[1].low, x[2].low, x[3].low),
                  low_bytes_of(x[0].high, x[1].high, x[2].high, x[3].high)};
}
// The lower 16 bits of each element of a, and above them those of b.
VEC_INLINE ivec ivec_low_halves(vec a, vec b)
{
    return (ivec){vsliq_n_s32(vreinterpretq_s32_f32(a.low), vreinterpretq_s32_f32(b.low), 16),
                  vsliq_n_s32(vreinterpretq_s32_f32(a.high), vreinterpretq_s32_f32(b.high), 16)};
}

// (a & mask) | b, and a shifted by bits to the left, within four bytes (to the right, where less than 0).
VEC_INLINE ivec ivec_and_or(ivec a, ivec mask, ivec b)
{
    return (ivec){vorrq_s32(vandq_s32(a.low, mask.low), b.low), vorrq_s32(vandq_s32(a.high, mask.high), b.high)};
}
// Bits of a where the mask has them, else of b.
VEC_INLINE ivec ivec_choose(ivec mask, ivec a, ivec b)
{
    return (ivec){vbslq_s32(vreinterpretq_u32_s32(mask.low), a.low, b.low),
                  vbslq_s32(vreinterpretq_u32_s32(mask.high), a.high, b.high)};
}
VEC_INLINE int32x4_t shifted(int32x4_t a, int bits)
{
    return vshlq_s32(a, vdupq_n_s32(bits));
}
VEC_INLINE ivec ivec_shift(ivec a, int bits)
{
    return (ivec){shifted(a.low, bits), shifted(a.high, bits)};
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return (ivec){veorq_s32(a.low, b.low), veorq_s32(a.high, b.high)};
}

// table[nibble] + plus for each byte, and of 32 numbers, the second half's where the bytes of `high` are below 0.
VEC_INLINE int8x16_t look_up(const int8_t table[16], int plus, int8x16_t nibbles)
{
    return vqtbl1q_s8(vaddq_s8(vld1q_s8(table), vdupq_n_s8((int8_t)plus)), vreinterpretq_u8_s8(nibbles));
}
VEC_INLINE ivec ivec_look_up(const int8_t table[16], int plus, ivec nibbles)
{
    return (ivec){FROM_8(look_up(table, plus, AS_8(nibbles.low))), FROM_8(look_up(table, plus, AS_8(nibbles.high)))};
}
VEC_INLINE ivec ivec_look_up_32(const int8_t table[32], int plus, ivec nibbles, ivec high)
{
    const ivec first = ivec_look_up(table, plus, nibbles), second = ivec_look_up(table + 16, plus, nibbles);
    return (ivec){FROM_8(vbslq_s8(vcltzq_s8(AS_8(high.low)), AS_8(second.low), AS_8(first.low))),
                  FROM_8(vbslq_s8(vcltzq_s8(AS_8(high.high)), AS_8(second.high), AS_8(first.high)))};
}
