// Short prompts: quantised weights with tokens as bytes, or as two digits of a byte each; AVX-512 with VNNI. Included by
// vnni/quant*.c after vec/quant_many.h. DIGITS is the most that a token has: x = 256 high + low, or x alone.
//
// vec/quant_many.h makes a block of W ready, then multiplies. Of few tokens making it ready is half of the work, and what
// memory gives is a piece of a row and then of another. Here W is read as in decode: a few rows together from their beginning
// to their end, a line of one of them named for every few products. (Lines that are named in bursts, faster than memory gives
// them, are dropped.) Their quants become bytes without sign in L1, where each product broadcasts four of them. A token's sums
// stay in registers for the whole row, or as much of it as is in L1 at once.
//
// A panel is VEC tokens, a lane for each. The last may be VEC / 2, with a lane for each digit: 8 tokens take half the products
// of 16. Sums are in the order of vec/quant_many.h, so a token has the same bits by either.
#pragma once
#include "cpu/kernels/vec/quant.h"

enum {
    DIGIT_ROWS = 8,        // of W that are multiplied together
    DIGIT_FEW_TOKENS = 32, // with more, DIGIT_MOST_ROWS are read together, and a panel's part, once in L1, is used twice
    DIGIT_MOST_ROWS = 16,
    DIGIT_GROUPS = VEC,    // of a row that are in L1 at once
    DIGIT_BYTES = 4 * VEC, // of one digit of a quad of columns
    DIGIT_SCALE_COLS = DIGITS == 2 ? QUANT_BLOCK : QUANT_GROUP,
    DIGIT_AHEAD = 2048,     // bytes of each row that are fetched before they are needed
    DIGIT_HIGH_AHEAD = 512, // of its second plane, where it has one
};

// What a panel has for each group: (8, digits, VEC, 4) digits, then of each digit -128 Σ (VEC int32), for weights have 128
// added to them; then the same of the second 16 columns; then scales (VEC).
VEC_INLINE ptrdiff_t digit_sums_at(int digits)
{
    return (ptrdiff_t)QUANT_GROUP / 4 * digits * DIGIT_BYTES;
}
VEC_INLINE ptrdiff_t digit_scales_at(int digits)
{
    return digit_sums_at(digits) + (ptrdiff_t)2 * digits * DIGIT_BYTES;
}
VEC_INLINE ptrdiff_t digit_record(int digits) // bytes
{
    return digit_scales_at(digits) + DIGIT_BYTES;
}
// Bytes of a panel: an odd number of records, so that panels are spread over the sets of a cache.
VEC_INLINE ptrdiff_t digit_panel(int digits, int cols)
{
    return (ptrdiff_t)(quant_groups(cols) | 1) * digit_record(digits);
}

// The panels of n tokens: so many whole ones, then perhaps a half one.
VEC_INLINE int digit_whole_panels(int n)
{
    return DIGITS == 2 ? (n + VEC / 2 - 1) / VEC : (n + VEC - 1) / VEC;
}
VEC_INLINE int digit_panels(int n)
{
    return (n + VEC - 1) / VEC;
}
VEC_INLINE int panel_digits(int n, int panel)
{
    return panel < digit_whole_panels(n) ? DIGITS : 1;
}

VEC_INLINE size_t digits_size(int n, int cols)
{
    return (size_t)digit_panels(n) * (size_t)digit_panel(DIGITS, cols);
}

// Of a half panel, whose tokens are in the lower lanes: the high digits there, the low ones above; and these below.
VEC_INLINE ivec digit_halves(ivec high, ivec low)
{
    return _mm512_inserti64x4(high, _mm512_castsi512_si256(low), 1);
}
VEC_INLINE ivec digit_lower_half(ivec halves)
{
    return _mm512_shuffle_i64x2(halves, halves, 0xee);
}

// A quad of columns of a panel's tokens: its digits as they lie in the record at `to`, and 128 times their sums taken from
// those there.
VEC_INLINE void digit_quad(char *to, ivec sums[DIGITS], int digits, const float columns[4][VEC], vec inverse)
{
    const ivec unsign = ivec_set((int32_t)0x80808080);
    vec low[4], high[4];
    for (int i = 0; i < 4; i++) {
        low[i] = nearest_bits(vec_load(columns[i]), inverse);
        high[i] = ivec_as_floats(_mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low[i]), ivec_set(128)), 8));
    }
    ivec bytes[2] = {ivec_low_bytes(low), ivec_low_bytes(low)};
    if (DIGITS == 2)
        bytes[0] = digits == 2 ? ivec_low_bytes(high) : digit_halves(ivec_low_bytes(high), bytes[1]);
    for (int d = 0; d < digits; d++) {
        ivec_store(to + d * DIGIT_BYTES, bytes[d]);
        sums[d] = ivec_sub(sums[d], ivec_dot8(ivec_zero(), unsign, bytes[d]));
    }
}

// Columns from `first` on, DIGIT_SCALE_COLS or what there is, of up to VEC tokens (of one digit, where tokens have two: of VEC
// / 2).
VEC_INLINE void digit_columns(char *panel, int digits, const float *x, ptrdiff_t ldx, int tokens, int cols, int first)
{
    float columns[DIGIT_SCALE_COLS][VEC];
    load_columns(columns[0], DIGIT_SCALE_COLS, x + first, ldx, tokens, cols - first);
    const struct token_scales scales =
        scales_to(largest_of_columns(columns[0], DIGIT_SCALE_COLS), DIGITS == 2 ? quant_most : 127);
    const vec unit = DIGITS == 2 ? scales.unit : vec_fours(scales.unit);
    for (int c = first; c < first + DIGIT_SCALE_COLS && c < cols; c += QUANT_GROUP) {
        char *record = panel + c / QUANT_GROUP * digit_record(digits);
        ivec sums[DIGITS], first_sums[DIGITS];
        for (int d = 0; d < digits; d++)
            sums[d] = ivec_zero();
        for (int k = 0; k < QUANT_GROUP; k += 4) {
            if (k == QUANT_GROUP / 2)
                memcpy(first_sums, sums, sizeof sums);
            digit_quad(record + (ptrdiff_t)k / 4 * digits * DIGIT_BYTES, sums, digits,
                       (const float(*)[VEC])columns[c - first + k], scales.inverse);
        }
        for (int d = 0; d < digits; d++) {
            ivec_store(record + digit_sums_at(digits) + d * DIGIT_BYTES, sums[d]);
            ivec_store(record + digit_sums_at(digits) + (digits + d) * DIGIT_BYTES, ivec_sub(sums[d], first_sums[d]));
        }
        vec_store((float *)(record + digit_scales_at(digits)), unit);
    }
}

VEC_INLINE void digits_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (int p = 0; p < digit_panels(n); p++)
        for (int c = first_col; c < last_col; c += DIGIT_SCALE_COLS)
            digit_columns((char *)to + p * digit_panel(DIGITS, cols), panel_digits(n, p), x + (ptrdiff_t)p * VEC * ldx, ldx,
                          n - p * VEC < VEC ? n - p * VEC : VEC, cols, c);
}

// Rows' next groups, as bytes without sign, and their scales; the panels' sums so far.
struct digit_scratch {
    _Alignas(64) uint8_t quants[DIGIT_MOST_ROWS][DIGIT_GROUPS * QUANT_GROUP];
    _Alignas(64) float scales[4][DIGIT_MOST_ROWS][DIGIT_GROUPS]; // of first and second halves of groups, and lifts
    float sums[(QUANT_SOME + VEC - 1) / VEC][DIGIT_MOST_ROWS][VEC];
};

// DIGIT_ROWS rows' next groups with a panel's.
struct digit_tile {
    float (*sums)[VEC]; // (DIGIT_ROWS): the products are added to these, or, where `first`, replace them
    const uint8_t (*quants)[DIGIT_GROUPS * QUANT_GROUP];
    const float (*scales)[DIGIT_GROUPS]; // the others are DIGIT_MOST_ROWS further each
    const char *record;                  // the panel's first
    const uint8_t *ahead;                // where the rows' quants, row_bytes apart, are to be fetched meanwhile; NULL: nowhere
    ptrdiff_t row_bytes;
    int groups, group_bytes;
    bool first;
};

// A line for each row in as many groups as a line has.
VEC_INLINE void digit_fetch(const struct digit_tile *a, int group)
{
    const int in_line = 64 / a->group_bytes;
    for (int r = group % in_line; a->ahead && r < DIGIT_ROWS; r += in_line)
        __builtin_prefetch(a->ahead + r * a->row_bytes + group / in_line * 64);
}

// c += the products of columns [first, last) of a group: (rows, digits).
VEC_INLINE void digit_products(ivec c[DIGIT_ROWS][DIGITS], int digits, const struct digit_tile *a, const char *record,
                               int group, int first, int last)
{
#pragma GCC unroll 8
    for (int k = first / 4; k < last / 4; k++) {
        ivec x[DIGITS];
#pragma GCC unroll 2
        for (int d = 0; d < digits; d++)
            x[d] = ivec_load(record + (k * digits + d) * DIGIT_BYTES);
#pragma GCC unroll 8
        for (int r = 0; r < DIGIT_ROWS; r++) {
            int32_t quad;
            memcpy(&quad, a->quants[r] + group * QUANT_GROUP + k * 4, sizeof quad);
            const ivec weights = ivec_set(quad);
#pragma GCC unroll 2
            for (int d = 0; d < digits; d++)
                c[r][d] = ivec_dot8(c[r][d], weights, x[d]);
        }
    }
}

// Of each lane's token what both digits' sums come to.
VEC_INLINE vec digit_total(const ivec c[DIGITS], int digits)
{
    const ivec low = digits == 2 ? c[DIGITS - 1] : digit_lower_half(c[0]);
    return ivec_to_float(DIGITS == 2 ? ivec_add(ivec_shift(c[0], 8), low) : c[0]);
}

// f += the lifts of half a group, or of a whole one, whose sums of tokens are in `all`.
VEC_INLINE void digit_lift(vec f[DIGIT_ROWS], vec all, const struct digit_tile *a, int group, int half)
{
    const float(*lifts)[DIGIT_GROUPS] = a->scales + (2 + half) * DIGIT_MOST_ROWS;
#pragma GCC unroll 8
    for (int r = 0; r < DIGIT_ROWS; r++)
        f[r] = vec_fma(all, vec_set(lifts[r][group]), f[r]);
}

// f += the products of half a group, or of a whole one, times the weights' scales, and those of tokens that have one a group.
VEC_INLINE void digit_half(enum dtype type, vec f[DIGIT_ROWS], int digits, const struct digit_tile *a, const char *record,
                           int group, int half)
{
    const int cols = dtype_has_halves(type) ? QUANT_GROUP / 2 : QUANT_GROUP;
    const char *at = record + digit_sums_at(digits), *at_second = at + (ptrdiff_t)digits * DIGIT_BYTES;
    ivec start[DIGITS], c[DIGIT_ROWS][DIGITS];
#pragma GCC unroll 2
    for (int d = 0; d < digits; d++) {
        start[d] = ivec_load((half ? at_second : at) + d * DIGIT_BYTES);
        if (dtype_has_halves(type) && !half)
            start[d] = ivec_sub(start[d], ivec_load(at_second + d * DIGIT_BYTES));
    }
#pragma GCC unroll 8
    for (int r = 0; r < DIGIT_ROWS; r++)
#pragma GCC unroll 2
        for (int d = 0; d < digits; d++)
            c[r][d] = start[d];
    if (dtype_is_affine(type) && DIGITS == 2)
        digit_lift(f, digit_total(start, digits), a, group, half); // -128 Σ
    digit_products(c, digits, a, record, group, half * cols, (half + 1) * cols);
    const float(*scales)[DIGIT_GROUPS] = a->scales + half * DIGIT_MOST_ROWS;
    const vec token = DIGITS == 2 ? vec_set(1) : vec_load((const float *)(record + digit_scales_at(digits)));
#pragma GCC unroll 8
    for (int r = 0; r < DIGIT_ROWS; r++) {
        const vec total = digit_total(c[r], digits);
        f[r] = vec_fma(DIGITS == 2 ? total : vec_mul(total, token), vec_set(scales[r][group]), f[r]);
    }
    if (dtype_is_affine(type) && DIGITS == 1)
        digit_lift(f, vec_mul(digit_total(start, digits), token), a, group, half);
}

// f += the products of groups [group, end), a block of quant_many's; 16-bit tokens have one scale in it.
VEC_INLINE void digit_block(enum dtype type, vec f[DIGIT_ROWS], int digits, const struct digit_tile *a, const char *record,
                            int group, int end)
{
    for (; group < end; group++, record += digit_record(digits)) {
        digit_fetch(a, group);
        digit_half(type, f, digits, a, record, group, 0);
        if (dtype_has_halves(type))
            digit_half(type, f, digits, a, record, group, 1);
    }
}

VEC_INLINE void digit_tile(enum dtype type, int digits, const struct digit_tile *tile)
{
    const struct digit_tile a = *tile;
    const char *record = a.record;
    vec sums[DIGIT_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < DIGIT_ROWS; r++)
        sums[r] = a.first ? vec_zero() : vec_load(a.sums[r]);
    for (int g = 0, n; g < a.groups; g += n, record += n * digit_record(digits)) {
        n = a.groups - g < MANY_GROUPS ? a.groups - g : MANY_GROUPS;
        vec f[DIGIT_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < DIGIT_ROWS; r++)
            f[r] = vec_zero();
        digit_block(type, f, digits, &a, record, g, g + n);
        const vec scale = vec_load((const float *)(record + digit_scales_at(digits)));
#pragma GCC unroll 8
        for (int r = 0; r < DIGIT_ROWS; r++)
            sums[r] = DIGITS == 2 ? vec_fma(f[r], scale, sums[r]) : vec_add(f[r], sums[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < DIGIT_ROWS; r++)
        vec_store(a.sums[r], sums[r]);
}

// Not inlined: all registers are for the tile alone.
#define DIGIT_TILE(name, type)                                                                                                 \
    static __attribute__((noinline)) void digit_tile_##name(int digits, const struct digit_tile *tile)                         \
    {                                                                                                                          \
        if (digits == DIGITS)                                                                                                  \
            digit_tile(type, DIGITS, tile);                                                                                    \
        else                                                                                                                   \
            digit_tile(type, 1, tile);                                                                                         \
    }
DIGIT_TILE(plain, DTYPE_Q8)
DIGIT_TILE(affine, DTYPE_Q4K)
DIGIT_TILE(halves, DTYPE_Q6K)
DIGIT_TILE(affine_halves, DTYPE_Q2K)

// Rows of zeros fill the last tile.
VEC_INLINE void digit_convert(enum dtype type, struct digit_scratch *to, const struct product_args *a, int first_row, int rows,
                              int first_group, int groups)
{
    const ptrdiff_t all = (ptrdiff_t)quant_groups(a->cols);
    const vec unit = vec_set(bytes_unit(type));
    for (int r = 0; r < rows; r++) {
        const struct quants_at at = quants_of_row(type, a, first_row + r, first_group);
        for (int g = 0; g < groups; g += 2)
            bytes_in_order(type, to->quants[r] + (ptrdiff_t)g * QUANT_GROUP, groups_on(type, at, g), groups - g < 2 ? 1 : 2);
        for (ptrdiff_t b = 0; b < VEC * high_bytes(type); b += 64)
            __builtin_prefetch(at.high + b + DIGIT_HIGH_AHEAD);
        const uint8_t *scales = scales_of_row(type, a, first_row + r, first_group);
        const struct group_scales found = load_scales(type, at, scales, groups);
        for (int half = 0; half < 2; half++) {
            vec_store(to->scales[half][r], vec_mul(found.scale[half], unit));
            vec_store(to->scales[2 + half][r], vec_mul(found.lift[half], vec_set(-1.0f / 128)));
        }
        __builtin_prefetch(scales + rows_further((ptrdiff_t)quant_scale_bytes(a->type, (size_t)first_group), 64,
                                                 (ptrdiff_t)quant_scale_bytes(a->type, (size_t)all), rows));
    }
    for (int r = rows; r % DIGIT_ROWS; r++) {
        memset(to->quants[r], 0, sizeof to->quants[r]);
        for (int i = 0; i < 4; i++)
            memset(to->scales[i][r], 0, sizeof to->scales[i][r]);
    }
}

// The panels with rows whose groups from first_group on are in `w`.
VEC_INLINE void digit_multiply(enum dtype type, struct digit_scratch *w, const struct product_args *a, int first_row, int rows,
                               int first_group, int groups)
{
    const enum dtype planes = planes_of(type, a->type);
    const ptrdiff_t row_bytes = (ptrdiff_t)(quant_groups(a->cols) * dtype_group_bytes[planes]), bytes = low_bytes(planes);
    const uint8_t *ahead =
        quants_of_row(type, a, first_row, first_group).low + rows_further(first_group * bytes, DIGIT_AHEAD, row_bytes, rows);
    for (int p = 0; p < digit_panels(a->n); p++) {
        const int digits = panel_digits(a->n, p);
        for (int r = 0; r < rows; r += DIGIT_ROWS) {
            const struct digit_tile tile = {
                .sums = w->sums[p] + r,
                .quants = (const uint8_t(*)[DIGIT_GROUPS * QUANT_GROUP]) w->quants + r,
                .scales = (const float(*)[DIGIT_GROUPS])w->scales[0] + r,
                .record = (const char *)a->x + p * digit_panel(DIGITS, a->cols) + first_group * digit_record(digits),
                .ahead = p == 0 ? ahead + r * row_bytes : NULL,
                .row_bytes = row_bytes,
                .groups = groups,
                .group_bytes = (int)bytes,
                .first = first_group == 0,
            };
            if (dtype_has_halves(type) && dtype_is_affine(type))
                digit_tile_affine_halves(digits, &tile);
            else if (dtype_has_halves(type))
                digit_tile_halves(digits, &tile);
            else if (dtype_is_affine(type))
                digit_tile_affine(digits, &tile);
            else
                digit_tile_plain(digits, &tile);
        }
    }
}

VEC_INLINE void digit_outputs(struct digit_scratch *w, const struct product_args *a, int first_row, int rows)
{
    float *y = a->y + (first_row - a->first_row);
    for (int p = 0; p < digit_panels(a->n); p++) {
        const int left = a->n - p * VEC;
        transpose(y + (ptrdiff_t)p * VEC * a->ldy, a->ldy, w->sums[p][0], VEC, rows, left < VEC ? left : VEC);
    }
}

VEC_INLINE void digits(enum dtype type, const struct product_args *a)
{
    struct digit_scratch *w = a->scratch;
    const int all = (int)quant_groups(a->cols), most_rows = a->n <= DIGIT_FEW_TOKENS ? DIGIT_ROWS : DIGIT_MOST_ROWS;
    for (int row = a->first_row, rows; row < a->last_row; row += rows) {
        rows = a->last_row - row < most_rows ? a->last_row - row : most_rows;
        for (int g = 0; g < all; g += DIGIT_GROUPS) {
            const int groups = all - g < DIGIT_GROUPS ? all - g : DIGIT_GROUPS;
            digit_convert(type, w, a, row, rows, g, groups);
            digit_multiply(type, w, a, row, rows, g, groups);
        }
        digit_outputs(w, a, row, rows);
    }
}
_Static_assert(sizeof(struct digit_scratch) <= QUANT_SCRATCH, "it is the scratch");
