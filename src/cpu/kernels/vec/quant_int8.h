// Many tokens as 8-bit integers, for vec/quant_many.h; included by quant8.c.
//
// A token has one scale in each group of 32 columns, as the weights have: x ≈ scale * q, q in [-127, 127]. Half the bits of
// int16, so half the dot products, and panels are quads of columns. Each group, vector of tokens and row takes 8 dot products
// of bytes (VNNI) and two multiply-adds for the two scales: 80 % of the dot products' limit.
//
// The instruction multiplies bytes without sign by bytes with sign. The weights are those without: 128 is added to them, and
// 128 Σ q of the token's group subtracted. That costs nothing, for the sums start there instead of from 0.
//
// Nor are sums converted. They start from the bits of B = 1.5 * 2^23 besides. A float between 2^23 and 2^24 counts in ones, and
// |c| stays below 2^20. So the bits of B plus c are those of the float B + c. (B + c) scale - B scale is then the token's scale
// times c by one multiply-add with one rounding: B scale is exact, for scales have two bits less than floats. (It is infinite
// where a token's values reach 10^33, and the products no number.)
#pragma once
#include "cpu/kernels/vec/quant.h"

typedef uint8_t many_weight;

enum {
    DIGITS = 1, // bytes of a token's integer
    MANY_COLS = 2 * QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,
    MANY_SECOND = MANY_GROUPS,
    MANY_LIFTS = 2 * MANY_GROUPS,
    MANY_UNIT = 4 * MANY_GROUPS, // of folded types: what eight groups have in common
    MANY_SCALES = MANY_UNIT + 1, // of a row of a block: vec/quant_groups.h
    MANY_SIX_APART = SIX_APART,
    MANY_NIBBLES = 1,
    // What a panel has for each group: (8, VEC, 4) integers, then of each token its scale, -BYTES_BASE times that (floats), and
    // BYTES_BASE's bits - 128 Σ q (int32), and the same of the second 16 columns alone. Where BYTES_BASE is 0, the second are
    // -128 Σ q times the scale, and the last the Σ q of both halves, as 16-bit pairs.
    RECORD_SCALES = VEC * QUANT_GROUP,
    RECORD_OFFSETS = RECORD_SCALES + VEC * (int)sizeof(float),
    RECORD_STARTS = RECORD_OFFSETS + VEC * (int)sizeof(float),
    RECORD_SECOND = RECORD_STARTS + VEC * (int)sizeof(int32_t),
    RECORD = RECORD_SECOND + VEC * (int)sizeof(int32_t),
    PANEL_BLOCK = MANY_GROUPS * RECORD, // bytes of a block's columns
    PANEL_SUMS = 0,                     // groups' sums lie in the records
};

static const float many_lift = -1.0f / 128; // what a minimum is multiplied by, for the sums that it meets

// Of types whose scales are whole numbers of a unit that eight groups have in common, without VNNI: a block's columns, whose
// products are summed as integers times these.
VEC_INLINE int folded_cols(enum dtype type)
{
    const bool folds = type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q6K || type == DTYPE_Q3K;
    return SIX_APART && folds ? MANY_COLS : 0;
}

VEC_INLINE size_t panel_bytes(int cols)
{
    return (quant_groups(cols) | 1) * RECORD; // odd, so that panels are spread over the sets of a cache
}
VEC_INLINE void many_panel(struct many_tile *tile, const char *panel, int cols, int group)
{
    (void)cols;
    tile->panel = panel + (ptrdiff_t)group * RECORD;
}

// QUANT_BLOCK columns, or what there is, of up to VEC tokens: as vec/panels16.h's.
VEC_INLINE void quantise_panel(char *panel, const float *x, ptrdiff_t ldx, int tokens, int cols, int first)
{
    for (int c = first; c < first + QUANT_BLOCK && c < cols; c += QUANT_GROUP) {
        char *record = panel + (ptrdiff_t)(c / QUANT_GROUP) * RECORD;
        float columns[QUANT_GROUP][VEC];
        load_columns(columns[0], QUANT_GROUP, x + c, ldx, tokens, cols - c);
        const struct token_scales scales = scales_to(largest_of_columns(columns[0], QUANT_GROUP), 127);
        ivec sum = ivec_zero(), first_sum = ivec_zero();
        for (int k = 0; k < QUANT_GROUP; k += 4) {
            if (k == QUANT_GROUP / 2)
                first_sum = sum;
            vec quad[4];
            for (int i = 0; i < 4; i++)
                quad[i] = nearest_bits(vec_load(columns[k + i]), scales.inverse);
            const ivec bytes = ivec_low_bytes(quad);
            ivec_store(record + k * VEC, bytes);
            sum = ivec_dot8(sum, ivec_set(0x01010101), bytes);
        }
        const ivec second_sum = ivec_sub(sum, first_sum), starts = ivec_sub(ivec_set(BYTES_BASE_BITS), ivec_shift(sum, 7));
        const vec unit = vec_fours(scales.unit);
        ivec_store(record + RECORD_STARTS, starts);
        vec_store((float *)(record + RECORD_SCALES), unit);
        if (SIX_APART) {
            ivec_store(record + RECORD_SECOND, ivec_choose(ivec_set(0xffff), first_sum, ivec_shift(second_sum, 16)));
            vec_store((float *)(record + RECORD_OFFSETS), vec_mul(unit, ivec_to_float(starts)));
        } else {
            ivec_store(record + RECORD_SECOND, ivec_sub(ivec_set(BYTES_BASE_BITS), ivec_shift(second_sum, 7)));
            vec_store((float *)(record + RECORD_OFFSETS), vec_mul(unit, vec_set(-BYTES_BASE)));
        }
    }
}

// What groups add to the products of integers: less where these are more than the row's, by a centre.
VEC_INLINE vec many_lifts(enum dtype type, const struct group_scales *s, int half)
{
    if (!SIX_APART)
        return s->lift[half];
    return vec_fma(vec_set(-(float)dtype_centre(type)), s->scale[half], s->lift[half]);
}

// `groups` groups of a row; returns what its integers are to be multiplied by besides their scales.
VEC_INLINE float many_quants(enum dtype type, many_weight *to, struct quants_at from, int groups)
{
    enum { AT_ONCE = 4 * VEC / QUANT_GROUP };
    for (int g = 0; g < groups; g += AT_ONCE)
        bytes_in_order(type, to + g * QUANT_GROUP, groups_on(type, from, g), groups - g < AT_ONCE ? groups - g : AT_ONCE);
    return bytes_unit(type);
}

#include "cpu/kernels/vec/quant_groups.h"

// The whole numbers that eight groups' scales, or their halves', have of what is in common.
VEC_INLINE void whole_scales(enum dtype type, int32_t to[QUANT_EIGHT], const uint8_t *eight, int half)
{
    const uint32_t pairs = type == DTYPE_Q3K ? (uint32_t)loaded(eight + 10, 4) >> 16 * half : 0;
    for (int g = 0; g < QUANT_EIGHT; g++)
        to[g] = type == DTYPE_Q6K   ? (int8_t)eight[2 + QUANT_EIGHT * half + g]
                : type == DTYPE_Q3K ? (int32_t)((eight[2 + g] >> 4 * half & 15) | (pairs >> 2 * g & 3) << 4) - 32
                                    : eight[4 + g] & 63;
}

// Whole numbers come as 16-bit pairs. Integers are multiplied without sign, 32 more than they are: what that adds up to, of
// both halves, is where sums start.
VEC_INLINE void many_fold(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], struct quants_at from,
                          const uint8_t *eight, const struct group_scales *s, int skip, int groups)
{
    (void)skip; // a block is eight groups
    many_quants(type, to, from, groups);
    int32_t whole[2][QUANT_EIGHT], twice[QUANT_EIGHT];
    for (int half = 0; half < 1 + dtype_has_halves(type); half++) {
        whole_scales(type, whole[half], eight, half);
        for (int g = 0; g < QUANT_EIGHT; g++)
            twice[g] = (int32_t)((uint32_t)(whole[half][g] & 0xffff) * 0x10001);
        memcpy(scales + half * MANY_SECOND, twice, sizeof twice);
    }
    scales[MANY_UNIT] = vec_first(eights_halves(eight, 0, QUANT_EIGHT));
    if (!dtype_has_halves(type)) {
        many_store_scales(scales + MANY_LIFTS, many_lifts(type, s, 0), many_lift, 0);
        return;
    }
    int32_t starts[QUANT_EIGHT];
    for (int g = 0; g < QUANT_EIGHT; g++)
        starts[g] = (int32_t)((uint32_t)((-32 * whole[0][g]) & 0xffff) | (uint32_t)(-32 * whole[1][g]) << 16);
    memcpy(scales + MANY_LIFTS, starts, sizeof starts);
}

#ifdef BYTES_IN_PAIRS
#include "cpu/kernels/vec/quant_pairs.h"
#else
#ifndef BYTES_TILE
VEC_INLINE ivec four_bytes(const uint8_t *p)
{
    int32_t quad;
    memcpy(&quad, p, sizeof quad);
    return ivec_set(quad);
}

// c[r][j] += the products of `cols` columns of a group. w: (n_rows, ldw); record: the first panel's at these, the next panel's
// is panel_size bytes further.
VEC_INLINE void bytes_tile(enum dtype type, int n_rows, int n_vecs, ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS], const uint8_t *w,
                           ptrdiff_t ldw, int cols, const char *record, ptrdiff_t panel_size)
{
    (void)type;
    // Unrolled, it loads more ahead than sixteen registers hold.
#pragma GCC unroll 1
    for (int k = 0; k < cols / 4; k++) {
        ivec x[QUANT_TILE_VECS];
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            x[j] = ivec_load(record + j * panel_size + k * VEC * 4);
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            const ivec weights = four_bytes(w + r * ldw + k * 4);
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                c[r][j] = ivec_dot8(c[r][j], weights, x[j]);
        }
    }
}
#endif

// Where the sums of half a group start.
VEC_INLINE ivec tile_start(const char *record, int half)
{
    const ivec whole = ivec_load(record + RECORD_STARTS), second = ivec_load(record + RECORD_SECOND);
    return half ? second : ivec_add(ivec_sub(whole, second), ivec_set(BYTES_BASE_BITS));
}

// f += the products of a group, or of half of one, with its scale; and with its minimum.
VEC_INLINE void tile_group(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                           const struct many_tile *a, int g, int half)
{
    const int cols = dtype_has_halves(type) ? QUANT_GROUP / 2 : QUANT_GROUP, at = g + half * MANY_SECOND;
    const char *record = a->panel + (ptrdiff_t)g * RECORD;
    char starts[QUANT_TILE_VECS][4 * VEC];
    ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
    if (dtype_has_halves(type))
        for (int j = 0; j < n_vecs; j++)
            ivec_store(starts[j], tile_start(record + j * a->panel_size, half));
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            c[r][j] = bytes_start(dtype_has_halves(type) ? starts[j] : record + j * a->panel_size + RECORD_STARTS);
            leave_registers(&f[r][j]);
        }
    bytes_tile(type, n_rows, n_vecs, c, (const many_weight *)a->w + g * QUANT_GROUP + half * cols, MANY_COLS, cols,
               record + half * cols * VEC, a->panel_size);
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        const float *w_scales = a->w_scales + r * MANY_SCALES;
        const vec w_scale = vec_set(w_scales[at]);
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const char *of = record + j * a->panel_size, *start = dtype_has_halves(type) ? starts[j] : of + RECORD_STARTS;
            const vec scale = vec_load((const float *)(of + RECORD_SCALES));
            const float *offsets = (const float *)(of + RECORD_OFFSETS);
            f[r][j] = vec_fma(bytes_scaled(c[r][j], scale, offsets), w_scale, f[r][j]);
            if (dtype_is_affine(type)) // q8's way to count: the sum is -128 Σ q
                f[r][j] = vec_fma(bytes_scaled(ivec_load(start), scale, offsets), vec_set(w_scales[MANY_LIFTS + at]), f[r][j]);
        }
    }
}

VEC_INLINE void tile_groups(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                            const struct many_tile *a)
{
    for (int g = 0; g < a->groups; g++)
        for (int half = 0; half < (dtype_has_halves(type) ? 2 : 1); half++)
            tile_group(type, n_rows, n_vecs, f, a, g, half);
}
#endif

// n_rows and n_vecs are constants where this is inlined.
VEC_INLINE void many_tile(enum dtype type, int n_rows, int n_vecs, const struct many_tile *tile)
{
    const struct many_tile a = *tile;
    vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            f[r][j] = vec_zero();
            __builtin_prefetch(a.sums + r * MANY_TOKENS + j * VEC); // needed at the end: time enough to come from L2
        }
    tile_groups(type, n_rows, n_vecs, f, &a);
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            float *sum = a.sums + r * MANY_TOKENS + j * VEC;
            vec_store(sum, a.first ? f[r][j] : vec_add(f[r][j], vec_load(sum)));
        }
}
