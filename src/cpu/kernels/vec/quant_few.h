// Products of a few tokens with quantised weights, for either vector width; included by vec/quant_table.h. A token's integer
// has DIGITS bytes: two, x = 256 high + low, with a scale for each QUANT_BLOCK columns; or one, with a scale for each
// QUANT_GROUP.
//
// Four vectors of a row are taken together, so that each lane sums up a group of its own (q8: half of one), with one conversion
// and one scaling. Their 128-bit quarters are transposed, and the lanes' four pieces of 4 bytes then lie in four vectors. They
// are multiplied as bytes: what the products take is 8 (q8: 128) more than the quants, without sign; so much less is
// subtracted:
//     Σ q x = 256 Σ (q + 8) high + (Σ (q + 8) low - 8 Σ x)
// Without AVX-512's VNNI, or NEON's dot products, q8's bytes become 16-bit integers instead, even columns and odd ones apart;
// so do q4's columns come apart from their bytes. Integers of six bits are taken as q4's are, with 32 more than their values.
//
// Where groups have minima, these meet Σ x, of which a lane has -8 times as much; where they have two scales, a lane's pieces
// are summed two and two.
#pragma once
#include "cpu/kernels/vec/quant_few_tokens.h"

enum {
    QUANT_STREAMS = 4,
    QUANT_AHEAD = 2048, // bytes, to L1
    QUANT_AHEAD_TO_L2 = 8192,
    BY_LOOP = 0, // in place of the number of tokens: as many as there are
};

// Whether 3 to QUANT_FEW tokens are one loop, with its sums in memory. A form for each number is half of what the compiler
// works on. AVX-512, with 32 registers, is no faster with it; AVX2 by up to 7 %, which types that are met seldom do without.
VEC_INLINE bool few_by_loop(enum dtype type)
{
    return VEC == 16 || type == DTYPE_Q3 || type == DTYPE_Q2 || type == DTYPE_Q3K || type == DTYPE_Q2K || type == DTYPE_Q5U ||
           dtype_is_grid(type);
}

// rows_further() in one plane of rows that are read one after the other: a plane of `length` bytes, and `other` bytes of a row
// that are not its.
VEC_INLINE ptrdiff_t plane_further(ptrdiff_t at, ptrdiff_t ahead, ptrdiff_t length, ptrdiff_t other)
{
    for (at += ahead; other && at >= length; at -= length)
        ahead += other;
    return ahead;
}

// A part of a few rows, at the same place in each, and of the tokens.
struct few_at {
    struct quants_at quants[QUANT_STREAMS];
    struct group_scales scales[QUANT_STREAMS]; // of VEC groups
    const char *x;                             // the first token's
    ptrdiff_t ldx;                             // bytes from one token to the next
    int n;                                     // tokens
    ptrdiff_t ahead;                           // bytes further on that are fetched meanwhile, in the first plane
    ptrdiff_t high_ahead;                      // and in the second
    bool to_l2;
};

// As nibble_pieces(), of two bits, and in q3 and q3k the third, whose turning over is what adding 4 does. Those of q3 and q2
// are looked up.
VEC_INLINE void two_bit_pieces(enum dtype type, struct quants_at at, ivec even[PIECES], ivec odd[PIECES])
{
    const ivec first = lane_words(at.low, 2, 0), second = lane_words(at.low, 2, 1);
    const int8_t *table = dtype_table(type);
    const bool three_bits = high_bytes(type) > 0;
    ivec pair[2][2] = {{first, ivec_shift(first, -2)}, {second, ivec_shift(second, -2)}}; // of even columns and odd ones
    if (three_bits) { // two pieces' lie four bits apart: both are joined at once
        const ivec bits = lane_words(at.high, 1, 0), thirds = table ? bits : ivec_xor(bits, ivec_set8(0xff));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            pair[i / 2][i % 2] = ivec_choose(ivec_set8(0x33), pair[i / 2][i % 2], ivec_shift(thirds, 2 - i / 2 - i % 2 * 2));
    }
    const ivec all = ivec_set8(three_bits ? 7 : 3);
#pragma GCC unroll 4
    for (int i = 0; i < PIECES; i++) {
        even[i] = ivec_and_or(ivec_shift(pair[0][i % 2], -(i / 2) * 4), all, ivec_zero());
        odd[i] = ivec_and_or(ivec_shift(pair[1][i % 2], -(i / 2) * 4), all, ivec_zero());
        if (table) {
            even[i] = ivec_look_up(table, 32, even[i]);
            odd[i] = ivec_look_up(table, 32, odd[i]);
        }
    }
}

// What is added to values, so that they have no sign; six_less() takes it away again.
VEC_INLINE int six_more(enum dtype type)
{
    return dtype_quants[type] == DTYPE_IQ4NL ? 128 : 32;
}

// As nibble_pieces(), of values of six bits.
VEC_INLINE void six_pieces(enum dtype type, struct quants_at at, ivec even[PIECES], ivec odd[PIECES])
{
    type = dtype_quants[type];
    if (dtype_low_pairs(type)) {
        two_bit_pieces(type, at, even, odd);
        return;
    }
#ifdef __AVX512F__
    if (type == DTYPE_Q6 || type == DTYPE_Q5K) {
        joined_pieces(type == DTYPE_Q6 ? 2 : 1, at, even, odd);
        return;
    }
#endif
    nibble_pieces(at.low, 0, even, odd);
    if (dtype_table(type)) {
#pragma GCC unroll 4
        for (int i = 0; i < PIECES; i++) {
            even[i] = ivec_look_up(dtype_table(type), six_more(type), even[i]);
            odd[i] = ivec_look_up(dtype_table(type), six_more(type), odd[i]);
        }
    } else if (type == DTYPE_Q5K) { // the sign's bit turned over is what adding 16 does
        const ivec mask = ivec_set8(0x10), fifths = ivec_xor(lane_words(at.high, 1, 0), ivec_set8(0xff));
#pragma GCC unroll 4
        for (int i = 0; i < PIECES; i++) {
            even[i] = ivec_and_or(ivec_shift(fifths, 4 - 2 * i), mask, even[i]);
            odd[i] = ivec_and_or(ivec_shift(fifths, 3 - 2 * i), mask, odd[i]);
        }
    } else if (type == DTYPE_Q5) {
        const ivec fifths = lane_words(at.high, 1, 0);
#pragma GCC unroll 4
        for (int i = 0; i < PIECES; i++) {
            even[i] = ivec_look_up_32(q5_values, 32, even[i], ivec_shift(fifths, 7 - 2 * i));
            odd[i] = ivec_look_up_32(q5_values, 32, odd[i], ivec_shift(fifths, 6 - 2 * i));
        }
    } else { // the sign's bit turned over is what adding 32 does
        const ivec mask = ivec_set8(0x30), sign = ivec_set8(0xaa);
        const ivec first = ivec_xor(lane_words(at.high, 2, 0), sign), second = ivec_xor(lane_words(at.high, 2, 1), sign);
#pragma GCC unroll 4
        for (int i = 0; i < PIECES; i++) {
            even[i] = ivec_and_or(ivec_shift(first, 4 - 2 * i), mask, even[i]);
            odd[i] = ivec_and_or(ivec_shift(second, 4 - 2 * i), mask, odd[i]);
        }
    }
}

// What of a group's products is to be subtracted, by -8 Σ x.
VEC_INLINE ivec six_less(enum dtype type, ivec less)
{
    switch (dtype_quants[type]) {
    case DTYPE_Q2K:
        return ivec_zero();
    case DTYPE_Q3K:
        return ivec_shift(less, -1);
    case DTYPE_Q5K:
        return ivec_shift(less, 1);
    case DTYPE_IQ4NL:
        return ivec_shift(less, 4);
    default:
        return ivec_shift(less, 2);
    }
}

// nibbles_dot(), of six_pieces(): of all pieces of a group, or of some. less: -8 Σ x over these.
VEC_INLINE void six_dot(enum dtype type, int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][PIECES],
                        const ivec odd[PART_ROWS][PIECES], const struct nibble_part *x, ivec less, int first, int last)
{
    ivec high[PART_ROWS], low[PART_ROWS];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++) {
        high[r] = ivec_zero();
        low[r] = six_less(type, less);
    }
#pragma GCC unroll 4
    for (int i = first; i < last; i++)
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++) {
            if (DIGITS == 2)
                high[r] =
                    ivec_dot8_two(high[r], even[r][i], ivec_load(x->digits[0][i][0]), odd[r][i], ivec_load(x->digits[0][i][1]));
            low[r] = ivec_dot8_two(low[r], even[r][i], ivec_load(x->digits[DIGITS - 1][i][0]), odd[r][i],
                                   ivec_load(x->digits[DIGITS - 1][i][1]));
        }
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
        sums[r] = DIGITS == 2 ? ivec_add(ivec_shift(high[r], 8), low[r]) : low[r];
}

VEC_INLINE void part_products(enum dtype type, int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][PIECES],
                              const ivec odd[PART_ROWS][PIECES], const char *x)
{
    const struct nibble_part *nibbles = (const struct nibble_part *)x;
    const struct byte_part *bytes = (const struct byte_part *)x;
    if (dtype_quants[type] == DTYPE_Q4)
        nibbles_dot(n_rows, sums, even, odd, DIGITS, nibbles->digits[0], nibbles->digits[DIGITS - 1], nibbles->less);
    else if (!few_is_byte(type))
        six_dot(type, n_rows, sums, even, odd, nibbles, ivec_load(nibbles->less), 0, PIECES);
    else
        bytes_dot_part(n_rows, sums, even, odd, BYTE_PARTS, bytes->x[0][0], bytes->less);
}

// sums[r] += products times the scales of groups, or of their halves; and what an affine type adds. less: -8 Σ x.
VEC_INLINE void add_scaled(enum dtype type, int n_rows, vec sums[PART_ROWS], const ivec products[PART_ROWS],
                           const struct group_scales scales[PART_ROWS], int half, vec x_scales, ivec less)
{
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
        sums[r] = vec_fma(ivec_to_float(products[r]), vec_mul(scales[r].scale[half], x_scales), sums[r]);
    if (!dtype_is_affine(type))
        return;
    const vec all = ivec_to_float(less);
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
        sums[r] = vec_fma(all, vec_mul(scales[r].lift[half], x_scales), sums[r]);
}

// sums[r] += a part's products times its scales; two for each group, where it has two.
VEC_INLINE void add_products(enum dtype type, int n_rows, vec sums[PART_ROWS], const ivec even[PART_ROWS][PIECES],
                             const ivec odd[PART_ROWS][PIECES], const struct group_scales scales[PART_ROWS], const char *x)
{
    const vec x_scales = vec_load((const float *)(x + part_size(type)) - VEC); // they come last
    const struct nibble_part *nibbles = (const struct nibble_part *)x;
    ivec products[PART_ROWS];
    if (dtype_has_halves(type) && !few_is_byte(type)) { // of bytes, halves have lanes of their own
        const ivec second = ivec_load(nibbles->less_second), first = ivec_sub(ivec_load(nibbles->less), second);
        six_dot(type, n_rows, products, even, odd, nibbles, first, 0, PIECES / 2);
        add_scaled(type, n_rows, sums, products, scales, 0, x_scales, first);
        six_dot(type, n_rows, products, even, odd, nibbles, second, PIECES / 2, PIECES);
        add_scaled(type, n_rows, sums, products, scales, 1, x_scales, second);
        return;
    }
    part_products(type, n_rows, products, even, odd, x);
    add_scaled(type, n_rows, sums, products, scales, 1, x_scales,
               dtype_is_affine(type) ? ivec_load(nibbles->less) : ivec_zero());
}

// Scales in the order of part_lane(), the first or the second of VEC; lifts as they meet -8 Σ x.
VEC_INLINE struct group_scales part_scales(enum dtype type, bool second, const struct group_scales *of)
{
    struct group_scales scales = {.scale[1] = vec_zero()};
    for (int half = dtype_has_halves(type) ? 0 : 1; half < 2; half++) {
        scales.scale[half] = lane_scales(few_is_byte(type), second, of->scale[half]);
        if (dtype_is_affine(type))
            scales.lift[half] = vec_mul(lane_scales(false, second, of->lift[half]), vec_set(-1.0f / 8));
    }
    if (dtype_has_halves(type) && few_is_byte(type))
        scales.scale[1] = vec_of_halves(scales.scale[0], scales.scale[1]);
    return scales;
}

// sum[r][t] += a part's products, of one token and the `together` rows from `row` on.
VEC_INLINE void few_token(enum dtype type, int together, int row, int t, vec sum[QUANT_STREAMS][QUANT_FEW],
                          const ivec even[PART_ROWS][PIECES], const ivec odd[PART_ROWS][PIECES],
                          const struct group_scales scales[PART_ROWS], const struct few_at *at)
{
    vec sums[PART_ROWS];
#pragma GCC unroll 2
    for (int r = 0; r < together; r++)
        sums[r] = sum[row + r][t];
    add_products(type, together, sums, even, odd, scales, at->x + t * at->ldx);
#pragma GCC unroll 2
    for (int r = 0; r < together; r++)
        sum[row + r][t] = sums[r];
}

// sum[r][t] += the products of the part, the first or the second of those that the scales are of.
VEC_INLINE void few_part(enum dtype type, int n_rows, int n_tokens, vec sum[QUANT_STREAMS][QUANT_FEW], const struct few_at *at,
                         bool second)
{
    const int together = (n_tokens > 2 || n_tokens == BY_LOOP) && n_rows % PART_ROWS == 0 ? PART_ROWS : 1;
#pragma GCC unroll 16
    for (int row = 0; row < n_rows; row += together) {
        ivec even[PART_ROWS][PIECES], odd[PART_ROWS][PIECES];
        struct group_scales scales[PART_ROWS];
#pragma GCC unroll 2
        for (int r = 0; r < together; r++) {
            const struct quants_at quants = at->quants[row + r];
#pragma GCC unroll 4
            for (ptrdiff_t line = 0; line < part_groups(type) * low_bytes(type); line += 64)
                fetch_line((const char *)quants.low + line + at->ahead, at->to_l2);
#pragma GCC unroll 4
            for (ptrdiff_t line = 0; line < VEC * high_bytes(type); line += 64)
                fetch_line((const char *)quants.high + line + at->high_ahead, at->to_l2);
            if (dtype_quants[type] == DTYPE_Q4)
                nibble_pieces(quants.low, 8, even[r], odd[r]);
            else if (!few_is_byte(type))
                six_pieces(type, quants, even[r], odd[r]);
            else
                byte_pieces(type, quants, even[r], odd[r]);
            scales[r] = part_scales(type, second, &at->scales[row + r]);
        }
        if (n_tokens == BY_LOOP) {
            for (int t = 0; t < at->n; t++)
                few_token(type, together, row, t, sum, even, odd, scales, at);
            continue;
        }
#pragma GCC unroll 16
        for (int t = 0; t < n_tokens; t++)
            few_token(type, together, row, t, sum, even, odd, scales, at);
    }
}

// Rows whose quants and scales are at quants[r] and scales[r]; n_rows and n_tokens are constants where this is inlined.
VEC_INLINE void few_rows(enum dtype type, int n_rows, int n_tokens, float *const y[QUANT_STREAMS],
                         const struct quants_at quants[QUANT_STREAMS], const uint8_t *const scales[QUANT_STREAMS],
                         const struct product_args *a, bool to_l2)
{
    const int cols = a->cols, groups = (int)quant_groups(cols), whole = part_groups(type), parts = VEC / whole;
    struct few_at at = {
        .x = (const char *)a->x + (few_is_byte(type) ? 0 : few_parts(DTYPE_Q8, cols)),
        .ldx = few_bytes(cols),
        .n = a->n,
        .to_l2 = to_l2,
    };
    const int sums = n_tokens == BY_LOOP ? QUANT_FEW : n_tokens;
    const ptrdiff_t ahead = to_l2 ? QUANT_AHEAD_TO_L2 : QUANT_AHEAD, low = low_bytes(planes_of(type, a->type)),
                    high = high_bytes(planes_of(type, a->type));
    vec sum[QUANT_STREAMS][QUANT_FEW];
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int t = 0; t < sums; t++)
            sum[r][t] = vec_zero();
    for (int g = 0; g < groups; g += VEC) {
        const int there = groups - g < VEC ? groups - g : VEC;
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *of_groups = scales[r] + quant_scale_bytes(a->type, (size_t)g);
            at.quants[r] = groups_on(type, quants[r], g);
            at.scales[r] = load_scales(type, at.quants[r], of_groups, there);
            fetch_line((const char *)of_groups + 512, to_l2);
        }
        at.ahead = plane_further(g * low, ahead, groups * low, groups * high);
        at.high_ahead = plane_further(g * high, ahead * high / low, groups * high, high ? groups * low : 0);
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++, at.x += part_size(type)) {
            if (part * whole >= there)
                break;
            few_part(type, n_rows, n_tokens, sum, &at, part);
#pragma GCC unroll 16
            for (int r = 0; r < n_rows; r++)
                at.quants[r] = groups_on(type, at.quants[r], whole);
        }
    }
    if (n_tokens == BY_LOOP) {
        for (int r = 0; r < n_rows; r++)
            for (int t = 0; t < a->n; t++)
                y[r][t * a->ldy] = vec_total(sum[r][t]);
        return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int t = 0; t < n_tokens; t++)
            y[r][t * a->ldy] = vec_total(sum[r][t]);
}

// n_rows rows, `apart` rows from one to the next, or, behind `last`, that one again.
VEC_INLINE void few_rows_from(enum dtype type, int n_rows, int n_tokens, const struct product_args *a, int row, int apart,
                              int last)
{
    float *y[QUANT_STREAMS];
    struct quants_at quants[QUANT_STREAMS];
    const uint8_t *scales[QUANT_STREAMS];
    for (int s = 0; s < n_rows; s++, row += apart) {
        const int r = row < last ? row : last;
        y[s] = a->y + (r - a->first_row);
        quants[s] = quants_of_row(type, a, r, 0);
        scales[s] = scales_of_row(type, a, r, 0);
    }
    const bool to_l2 =
        a->fetching.to_l2 && (size_t)few_parts(type, a->cols) * (size_t)(n_tokens == BY_LOOP ? a->n : n_tokens) > L1_KEEPS;
    few_rows(type, n_rows, n_tokens, y, quants, scales, a, to_l2);
}

// All rows, n_streams of them at a time: stream s has rows s * per_stream … (s + 1) * per_stream - 1. The rest, fewer rows than
// streams, comes last.
VEC_INLINE void few_streams(enum dtype type, int n_streams, int n_tokens, const struct product_args *a)
{
    const int rows = a->last_row - a->first_row, per_stream = rows / n_streams, rest = rows % n_streams;
    for (int i = 0; i < per_stream + (rest > 0); i++) {
        int whole = per_stream;
        __asm__("" : "+r"(whole)); // else gcc makes two loops of some types', and with them twice the text
        few_rows_from(type, n_streams, n_tokens, a, i < whole ? a->first_row + i : a->last_row - rest,
                      i < whole ? per_stream : 1, a->last_row - 1);
    }
}

// A row's last part reads further than the row, into the next one or into the scales, which come behind all rows. That does not
// count: the scales that the row lacks are taken as 0. Of a matrix whose scales end before that, a copy with room behind it
// takes its place.
enum { FEW_BEHIND = PIECES * 4 * VEC };
struct small_matrix {
    uint8_t bytes[FEW_BEHIND * QUANT_GROUP]; // for each byte of scales a group has fewer, by more than one
};
VEC_INLINE bool is_small(const struct product_args *a) // parts of grids end with the row
{
    return !dtype_is_grid(a->type) && quant_scale_bytes(a->type, (size_t)a->rows * quant_groups(a->cols)) < FEW_BEHIND;
}
VEC_INLINE struct product_args in_small(struct small_matrix *copy, enum dtype type, const struct product_args *a)
{
    struct product_args args = *a;
    memset(copy, 0, sizeof *copy);
    memcpy(copy, a->w, (size_t)(scales_of_row(type, a, a->rows, 0) - (const uint8_t *)a->w));
    args.w = copy;
    return args;
}

// As many streams as the machine likes, or fewer where their sums and scales would not fit in the registers.
VEC_INLINE void few(enum dtype type, const struct product_args *a)
{
    enum { WIDE = VEC == 16 ? 4 : 2, NARROW = VEC == 16 ? 2 : 1 };
    switch (a->n) {
    case 1:
        return a->fetching.streams == 2 ? few_streams(type, 2, 1, a) : few_streams(type, 4, 1, a);
    case 2:
        return a->fetching.streams == 2 || WIDE == 2 ? few_streams(type, 2, 2, a) : few_streams(type, WIDE, 2, a);
    default:
        break;
    }
    if (few_by_loop(type))
        return few_streams(type, NARROW, BY_LOOP, a);
    switch (a->n) {
    case 3:
        return few_streams(type, NARROW, 3, a);
    case 4:
        return few_streams(type, NARROW, 4, a);
    case 5:
        return few_streams(type, NARROW, 5, a);
    case 6:
        return few_streams(type, NARROW, 6, a);
    case 7:
        return few_streams(type, NARROW, 7, a);
    default:
        return few_streams(type, NARROW, 8, a);
    }
}
