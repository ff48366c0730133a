// Integer vectors of the quantised kernels with NEON, and with its dot products of bytes, and its products of matrices of bytes
// (i8mm). The same names as in vec/quant_avx2.h.
//
// Both factors of NEON's products of bytes have a sign: q8's and the others' bytes are multiplied as they are, and nothing is
// subtracted afterwards.
#pragma once
#include "cpu/kernels/vec/ivec_neon.h"
#include "cpu/kernels/vec/quant_grid.h"

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
    int8_t bytes[4 * QUANT_GROUP];
    if (dtype_is_grid(type)) {
        grid_bytes(bytes, at, 4);
        at.low = (const uint8_t *)bytes;
    }
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

// Lanes of first halves of groups from a, of second ones from b, in the order of part_lane().
VEC_INLINE vec vec_of_halves(vec a, vec b)
{
    return (vec){a.low, b.high};
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

// One bit of each of a group's columns, in their order, where a sign is: q5's second plane, q3's and q3k's.
VEC_INLINE ivec sign_bits(const uint8_t p[QUANT_GROUP / 8])
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    const uint8x16_t order = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
    const int8x16_t left = {7, 6, 7, 6, 7, 6, 7, 6, 5, 4, 5, 4, 5, 4, 5, 4};
    const uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_s32(vdupq_n_s32(word)), order);
    return (ivec){vreinterpretq_s32_u8(vshlq_u8(bytes, left)),
                  vreinterpretq_s32_u8(vshlq_u8(bytes, vsubq_s8(left, vdupq_n_s8(4))))};
}
// Two bits of each, and others above them: q6's second plane, or the first one of q3, q2, q3k and q2k.
VEC_INLINE ivec two_bits(const uint8_t p[QUANT_GROUP / 4])
{
    int64_t word;
    memcpy(&word, p, sizeof word);
    const uint8x16_t order = {0, 4, 1, 5, 2, 6, 3, 7, 0, 4, 1, 5, 2, 6, 3, 7};
    const int8x16_t right = {0, 0, 0, 0, 0, 0, 0, 0, -2, -2, -2, -2, -2, -2, -2, -2};
    const uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_s64(vdupq_n_s64(word)), order);
    return (ivec){vreinterpretq_s32_u8(vshlq_u8(bytes, right)),
                  vreinterpretq_s32_u8(vshlq_u8(bytes, vsubq_s8(right, vdupq_n_s8(4))))};
}
// So much less where the sign is set.
VEC_INLINE ivec less_where(ivec x, ivec sign, int less)
{
    const int8x16_t minus = vdupq_n_s8((int8_t)-less);
    return (ivec){FROM_8(vaddq_s8(AS_8(x.low), vandq_s8(vshrq_n_s8(AS_8(sign.low), 7), minus))),
                  FROM_8(vaddq_s8(AS_8(x.high), vandq_s8(vshrq_n_s8(AS_8(sign.high), 7), minus)))};
}

// The values of one group in their order.
VEC_INLINE ivec group_in_order(enum dtype type, struct quants_at at)
{
    type = dtype_quants[type];
    if (dtype_low_pairs(type)) {
        const ivec pairs = ivec_and_or(two_bits(at.low), ivec_set8(3), ivec_zero());
        if (dtype_table(type))
            return ivec_look_up(dtype_table(type), 0, type == DTYPE_Q2 ? pairs : less_where(pairs, sign_bits(at.high), -4));
        return type == DTYPE_Q2K ? pairs : less_where(pairs, sign_bits(at.high), 4);
    }
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
    if (type == DTYPE_Q5K) // the bit counts -16
        return less_where(nibbles, sign_bits(at.high), 16);
    if (type == DTYPE_Q5)
        return ivec_look_up_32(q5_values, 0, nibbles, sign_bits(at.high));
    const int8x16_t sign = vdupq_n_s8(32);
    const ivec bits = ivec_and_or(ivec_shift(two_bits(at.high), 4), ivec_set8(0x30), nibbles);
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

VEC_INLINE vec bytes_scaled(ivec c, vec scale, const float *offset)
{
    (void)offset;
    return vec_mul(ivec_to_float(c), scale);
}
// The quants of the group at p in their order.
VEC_INLINE void bytes_in_order(enum dtype type, uint8_t *to, struct quants_at at, int groups)
{
    (void)groups;
    if (dtype_is_grid(type))
        grid_bytes((int8_t *)to, at, 1);
    else
        ivec_store(to, group_in_order(type, at));
}
VEC_INLINE float bytes_unit(enum dtype type)
{
    (void)type;
    return 1;
}
