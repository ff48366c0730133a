// Integer vectors of the quantised kernels with NEON, and with its dot products of bytes, and its products of matrices of bytes
// (i8mm). The same names as in vec/quant_avx2.h.
//
// Both factors of NEON's products of bytes have a sign: q8's and the others' bytes are multiplied as they are, and nothing is
// subtracted afterwards.
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
VEC_INLINE int32x4_t shifted(int32x4_t a, int bits)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(bits)));
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

// ------------------------------------------------------------------------------------------ a few tokens

// Of `words` (1 or 2) words of four bytes that a group has at p, the one numbered `which`, of 8 groups, in the order of
// part_lane().
VEC_INLINE ivec lane_words(const uint8_t *p, int words, int which)
{
    ivec at = ivec_load(p);
    if (words == 2) {
        const ivec more = ivec_load(p + 32);
        at = which ? (ivec){vuzp2q_s32(at.low, at.high), vuzp2q_s32(more.low, more.high)}
                   : (ivec){vuzp1q_s32(at.low, at.high), vuzp1q_s32(more.low, more.high)};
    }
    return (ivec){vuzp1q_s32(at.low, at.high), vuzp2q_s32(at.low, at.high)};
}

// n integers of a byte, n <= VEC, and zeros.
VEC_INLINE vec vec_load_bytes(const int8_t *p, int n)
{
    return vec_load_int8_part(p, n);
}

VEC_INLINE void transpose_words(int32x4_t to[4], int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    float32x4_t row[4] = {vreinterpretq_f32_s32(a), vreinterpretq_f32_s32(b), vreinterpretq_f32_s32(c),
                          vreinterpretq_f32_s32(d)};
    transpose_4x4(row);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        to[i] = vreinterpretq_s32_f32(row[i]);
}
// The 128-bit halves of four vectors transposed: piece[i] has in each the i-th elements of w[0], w[1], w[2] and w[3].
VEC_INLINE void transpose_within(ivec piece[4], const ivec w[4])
{
    int32x4_t low[4], high[4];
    transpose_words(low, w[0].low, w[1].low, w[2].low, w[3].low);
    transpose_words(high, w[0].high, w[1].high, w[2].high, w[3].high);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        piece[i] = (ivec){low[i], high[i]};
}

#ifndef __ARM_FEATURE_DOTPROD
VEC_INLINE int32x4_t even_bytes(int32x4_t x) // as 16-bit integers
{
    return FROM_16(vshrq_n_s16(vshlq_n_s16(AS_16(x), 8), 8));
}
VEC_INLINE int32x4_t odd_bytes(int32x4_t x)
{
    return FROM_16(vshrq_n_s16(AS_16(x), 8));
}
#endif
// A group's numbers in their order, whose four bits are looked up. A byte is two columns, the low four bits first.
VEC_INLINE ivec looked_up(enum dtype type, struct quants_at at)
{
    const uint8x16_t twice = vld1q_u8(at.low), lower = vandq_u8(twice, vdupq_n_u8(15)), upper = vshrq_n_u8(twice, 4);
    const ivec nibbles = {vreinterpretq_s32_u8(vzip1q_u8(lower, upper)), vreinterpretq_s32_u8(vzip2q_u8(lower, upper))};
    return ivec_look_up(dtype_table(type), 0, nibbles);
}

// The bytes of 4 groups: piece by piece; without dot products as 16-bit integers, even and odd columns apart.
VEC_INLINE void byte_pieces(enum dtype type, struct quants_at at, ivec even[4], ivec odd[4])
{
    ivec w[4], pieces[4];
    for (int i = 0; i < 4; i++)
        w[i] = dtype_table(type) ? looked_up(type, groups_on(type, at, i)) : ivec_load(at.low + (ptrdiff_t)32 * i);
    transpose_within(pieces, w);
    for (int i = 0; i < 4; i++) {
#ifdef __ARM_FEATURE_DOTPROD
        even[i] = odd[i] = pieces[i];
#else
        even[i] = (ivec){even_bytes(pieces[i].low), even_bytes(pieces[i].high)};
        odd[i] = (ivec){odd_bytes(pieces[i].low), odd_bytes(pieces[i].high)};
#endif
    }
}

VEC_INLINE int32x4_t even_nibbles(int32x4_t x, int flip)
{
    return FROM_8(veorq_s8(vandq_s8(AS_8(x), vdupq_n_s8(15)), vdupq_n_s8((int8_t)flip)));
}
VEC_INLINE int32x4_t odd_nibbles(int32x4_t x, int flip)
{
    const int8x16_t upper = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4));
    return FROM_8(veorq_s8(upper, vdupq_n_s8((int8_t)flip)));
}
// Nibbles ^ flip as bytes (with 8, q4's quants + 8) of the 8 groups at p: piece by piece, even and odd columns apart.
VEC_INLINE void nibble_pieces(const uint8_t *p, int flip, ivec even[4], ivec odd[4])
{
    ivec w[4], pieces[4];
    for (int i = 0; i < 4; i++)
        w[i] = ivec_load(p + (ptrdiff_t)32 * i);
    transpose_within(pieces, w);
    for (int i = 0; i < 4; i++) {
        even[i] = (ivec){even_nibbles(pieces[i].low, flip), even_nibbles(pieces[i].high, flip)};
        odd[i] = (ivec){odd_nibbles(pieces[i].low, flip), odd_nibbles(pieces[i].high, flip)};
    }
}

// 8 groups' scales, or (`halves`) those of the first 4 or the second, in the order of part_lane().
VEC_INLINE vec lane_scales(_Bool halves, _Bool second, vec scales)
{
    if (halves)
        return second ? (vec){scales.high, scales.high} : (vec){scales.low, scales.low};
    return (vec){vuzp1q_f32(scales.low, scales.high), vuzp2q_f32(scales.low, scales.high)};
}

#ifdef __ARM_FEATURE_DOTPROD
enum { FIRST_SHIFT = 8 }; // of the sum of the tokens' first parts: the digits that count 256
#else
enum { FIRST_SHIFT = 0 };
#endif
// Of a row, q8's products: of 4 columns of each piece in each lane. `parts`: with dot products the tokens' digits, else 2.
VEC_INLINE void bytes_dot_part(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                               int parts, const char *x, const int32_t less[8])
{
    (void)n_rows, (void)less;
    ivec first = ivec_zero(), last = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, x += parts * 32) {
#ifdef __ARM_FEATURE_DOTPROD
        if (parts == 2)
            first = ivec_dot8(first, even[0][i], ivec_load(x));
        last = ivec_dot8(last, odd[0][i], ivec_load(x + (parts - 1) * 32));
#else
        first = ivec_dot(first, even[0][i], ivec_load(x));
        last = ivec_dot(last, odd[0][i], ivec_load(x + 32));
#endif
    }
    sums[0] = ivec_add(ivec_shift(first, FIRST_SHIFT), last);
}

// For a row and each lane, over 4 bytes of each piece: 256 Σ (even · high[…][0] + odd · high[…][1]) + Σ (even · low[…][0] + odd
// · low[…][1]) + less. With one digit there is no `high`.
VEC_INLINE void nibbles_dot(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                            int digits, const int8_t high[4][2][32], const int8_t low[4][2][32], const int32_t less[8])
{
    (void)n_rows;
    ivec h = ivec_zero(), l = ivec_load(less);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        if (digits == 2)
            h = ivec_dot8_two(h, even[0][i], ivec_load(high[i][0]), odd[0][i], ivec_load(high[i][1]));
        l = ivec_dot8_two(l, even[0][i], ivec_load(low[i][0]), odd[0][i], ivec_load(low[i][1]));
    }
    sums[0] = digits == 2 ? ivec_add(ivec_shift(h, 8), l) : l;
}

// ------------------------------------------------------------------------------------------ many tokens

// The values of one group in their order.
VEC_INLINE ivec group_in_order(enum dtype type, struct quants_at at)
{
    type = dtype_quants[type];
    if (type == DTYPE_Q8)
        return ivec_load(at.low);
    if (dtype_table(type))
        return looked_up(type, at);
    // A byte is two columns, the low four bits first.
    const uint8x16_t twice = vld1q_u8(at.low), lower = vandq_u8(twice, vdupq_n_u8(15)), upper = vshrq_n_u8(twice, 4);
    const ivec nibbles = {vreinterpretq_s32_u8(vzip1q_u8(lower, upper)), vreinterpretq_s32_u8(vzip2q_u8(lower, upper))};
    if (type == DTYPE_Q4) {
        const int8x16_t sign = vdupq_n_s8(8);
        return (ivec){FROM_8(vsubq_s8(veorq_s8(AS_8(nibbles.low), sign), sign)),
                      FROM_8(vsubq_s8(veorq_s8(AS_8(nibbles.high), sign), sign))};
    }
    if (type == DTYPE_Q5 || type == DTYPE_Q5K) { // each column's byte, and of it the bit, moved to where a sign is
        int32_t word;
        memcpy(&word, at.high, sizeof word);
        const uint8x16_t order = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
        const int8x16_t left = {7, 6, 7, 6, 7, 6, 7, 6, 5, 4, 5, 4, 5, 4, 5, 4};
        const uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_s32(vdupq_n_s32(word)), order);
        const ivec fifths = {vreinterpretq_s32_u8(vshlq_u8(bytes, left)),
                             vreinterpretq_s32_u8(vshlq_u8(bytes, vsubq_s8(left, vdupq_n_s8(4))))};
        if (type == DTYPE_Q5K) { // it counts -16
            const int8x16_t sixteen = vdupq_n_s8(-16);
            return (ivec){FROM_8(vorrq_s8(AS_8(nibbles.low), vandq_s8(vshrq_n_s8(AS_8(fifths.low), 7), sixteen))),
                          FROM_8(vorrq_s8(AS_8(nibbles.high), vandq_s8(vshrq_n_s8(AS_8(fifths.high), 7), sixteen)))};
        }
        return ivec_look_up_32(q5_values, 0, nibbles, fifths);
    }
    int64_t word;
    memcpy(&word, at.high, sizeof word);
    const uint8x16_t order = {0, 4, 1, 5, 2, 6, 3, 7, 0, 4, 1, 5, 2, 6, 3, 7};
    const int8x16_t right = {0, 0, 0, 0, 0, 0, 0, 0, -2, -2, -2, -2, -2, -2, -2, -2};
    const uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_s64(vdupq_n_s64(word)), order);
    const ivec two = {vreinterpretq_s32_u8(vshlq_u8(bytes, right)),
                      vreinterpretq_s32_u8(vshlq_u8(bytes, vsubq_s8(right, vdupq_n_s8(4))))};
    const int8x16_t sign = vdupq_n_s8(32);
    const ivec bits = ivec_and_or(ivec_shift(two, 4), ivec_set8(0x30), nibbles);
    return (ivec){FROM_8(vsubq_s8(veorq_s8(AS_8(bits.low), sign), sign)),
                  FROM_8(vsubq_s8(veorq_s8(AS_8(bits.high), sign), sign))};
}

// The quants of one group in their order, as 16-bit numbers.
VEC_INLINE void quants_in_order(enum dtype type, int16_t *to, struct quants_at at)
{
    const ivec q = group_in_order(type, at);
    vst1q_s16(to, vmovl_s8(vget_low_s8(AS_8(q.low))));
    vst1q_s16(to + 8, vmovl_high_s8(AS_8(q.low)));
    vst1q_s16(to + 16, vmovl_s8(vget_low_s8(AS_8(q.high))));
    vst1q_s16(to + 24, vmovl_high_s8(AS_8(q.high)));
}

// Sums of products of bytes start from 0, and are what they are.
#define BYTES_BASE 0.0f
enum { BYTES_BASE_BITS = 0, SIX_APART = 0 };

// Without the mantissas' last two bits.
VEC_INLINE vec vec_fours(vec x)
{
    const uint32x4_t last = vdupq_n_u32(3);
    return (vec){vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x.low), last)),
                 vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x.high), last))};
}

VEC_INLINE ivec bytes_start(const void *start)
{
    (void)start;
    return ivec_zero();
}
VEC_INLINE ivec bytes_dot(enum dtype type, ivec c, ivec w, ivec x)
{
    (void)type;
    return ivec_dot8(c, w, x);
}
#ifdef __ARM_FEATURE_MATMUL_INT8
#define BYTES_TILE
VEC_INLINE int32x4_t lower_halves(int32x4_t a, int32x4_t b)
{
    return vcombine_s32(vget_low_s32(a), vget_low_s32(b));
}
VEC_INLINE int32x4_t upper_halves(int32x4_t a, int32x4_t b)
{
    return vcombine_s32(vget_high_s32(a), vget_high_s32(b));
}
// vec/quant_int8.h's bytes_tile(), of an even number of rows: eight columns of two rows times those of two tokens are one
// product of matrices.
VEC_INLINE void bytes_tile(enum dtype type, int n_rows, int n_vecs, ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS], const uint8_t *w,
                           ptrdiff_t ldw, int cols, const char *record, ptrdiff_t panel_size)
{
    (void)type;
    // Of rows r and r + 1, c[r][j] has tokens 0 and 1, then 2 and 3, and c[r + 1][j] the others.
    for (int k = 0; k < cols; k += 8) {
        int8x16_t tokens[QUANT_TILE_VECS][4];
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const ivec first = ivec_load(record + j * panel_size + k * VEC),
                       second = ivec_load(record + j * panel_size + (k + 4) * VEC);
            tokens[j][0] = AS_8(vzip1q_s32(first.low, second.low));
            tokens[j][1] = AS_8(vzip2q_s32(first.low, second.low));
            tokens[j][2] = AS_8(vzip1q_s32(first.high, second.high));
            tokens[j][3] = AS_8(vzip2q_s32(first.high, second.high));
        }
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r += 2) {
            const int8_t *row = (const int8_t *)w + r * ldw + k;
            const int8x16_t rows = vcombine_s8(vld1_s8(row), vld1_s8(row + ldw));
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++) {
                c[r][j].low = vmmlaq_s32(c[r][j].low, rows, tokens[j][0]);
                c[r][j].high = vmmlaq_s32(c[r][j].high, rows, tokens[j][1]);
                c[r + 1][j].low = vmmlaq_s32(c[r + 1][j].low, rows, tokens[j][2]);
                c[r + 1][j].high = vmmlaq_s32(c[r + 1][j].high, rows, tokens[j][3]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r += 2)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const ivec first = c[r][j], second = c[r + 1][j];
            c[r][j] = (ivec){lower_halves(first.low, first.high), lower_halves(second.low, second.high)};
            c[r + 1][j] = (ivec){upper_halves(first.low, first.high), upper_halves(second.low, second.high)};
        }
}
#endif

VEC_INLINE vec bytes_scaled(enum dtype type, ivec c, const void *start, vec scale, const float *offset)
{
    (void)type, (void)start, (void)offset;
    return vec_mul(ivec_to_float(c), scale);
}
// The quants of the group at p in their order.
VEC_INLINE void bytes_in_order(enum dtype type, uint8_t *to, struct quants_at at, int groups)
{
    (void)groups;
    ivec_store(to, group_in_order(type, at));
}
VEC_INLINE float bytes_unit(enum dtype type)
{
    (void)type;
    return 1;
}
