// Many tokens as 16-bit integers, for vec/quant_many.h; included by quant.c.
//
// A block of W becomes 16-bit integers in their order, and panels are pairs of columns. Scaling costs one conversion and one
// multiply-add for each 16 dot products. A token has one scale in the whole block, applied where the block's sums are added to
// those of the blocks before.
#pragma once
#include "cpu/kernels/vec/quant.h"

typedef int16_t many_weight;

enum {
    DIGITS = 2, // bytes of a token's integer
    MANY_COLS = QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,
    MANY_SECOND = MANY_GROUPS,
    MANY_LIFTS = 2 * MANY_GROUPS,
    MANY_SCALES = 4 * MANY_GROUPS, // of a row of a block: vec/quant_groups.h
    MANY_SIX_APART = 0,
    MANY_NIBBLES = 0,
// Elsewhere gcc 12 then has sums in memory. (VNNI's must not fold: vnni/digits.h makes sums that these have to equal.)
#if defined __AVX2__ && !defined __AVXVNNI__ && !defined __AVX512F__
    MANY_FOLDS = 1,
    MANY_UNROLLED = QUANT_GROUP, // columns
#elif defined __AVX512VNNI__
    MANY_FOLDS = 0,
    MANY_UNROLLED = QUANT_GROUP,
#else
    MANY_FOLDS = 0,
    MANY_UNROLLED = 2,
#endif
    PANEL_SUMS = 2,
    PANEL_BLOCK = MANY_COLS * VEC * (int)sizeof(int16_t), // bytes of a block's columns
};

// Columns whose products are summed before they are scaled, where each integer is multiplied by its group's scale first: q4k's
// and q5k's scales are whole numbers below 64 of a unit in common. So large a sum, of 8 * 63 or 16 * 63 times quant_most, stays
// below 2^31. 0: none.
VEC_INLINE int folded_cols(enum dtype type)
{
    return !MANY_FOLDS ? 0 : type == DTYPE_Q4K ? QUANT_BLOCK : type == DTYPE_Q5K ? QUANT_BLOCK / 2 : 0;
}

static const float many_lift = 1; // what a minimum is multiplied by, for the sums that it meets

VEC_INLINE int pair_first(int pair)
{
    return 2 * pair;
}
VEC_INLINE int pair_second(int pair)
{
    return 2 * pair + 1;
}

VEC_INLINE struct token_scales token_scales(const float columns[MANY_COLS][VEC])
{
    return scales_to(largest_of_columns(columns[0], MANY_COLS), quant_most);
}

// f += minima times the sums of the integers of a group, or of half of one, which the panels have.
VEC_INLINE void tile_lifts(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                           const struct many_tile *a, int g, int half)
{
    const float *sums = a->group_sums + (ptrdiff_t)g * PANEL_SUMS * VEC,
                *lifts = a->w_scales + MANY_LIFTS + g + half * MANY_SECOND;
    vec sum[QUANT_TILE_VECS];
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++) {
        const float *of = (const float *)((const char *)sums + j * a->panel_size);
        sum[j] = !dtype_has_halves(type) ? vec_load(of) : half ? vec_load(of + VEC) : vec_sub(vec_load(of), vec_load(of + VEC));
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        const vec lift = vec_set(lifts[r * MANY_SCALES]);
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            f[r][j] = vec_fma(sum[j], lift, f[r][j]);
    }
}

// c[r][j] += the products of some columns; the `first` have no sums to be added to. Unrolled, since a loop's counting takes
// turns from the products.
VEC_INLINE void add_columns(bool first, int cols, int n_rows, int n_vecs, ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                            const many_weight *w, const char *panel, ptrdiff_t panel_size)
{
#pragma GCC unroll 16
    for (int k = 0; k < cols; k += 2)
        add_pair(first && k == 0, n_rows, n_vecs, c, w + k, MANY_COLS, panel + k * VEC * (int)sizeof *w, panel_size);
}

// f += the tile's sums of a group, of half of one, or of folded ones, times their scale, for each.
VEC_INLINE void tile_sums(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                          const struct many_tile *a)
{
    const many_weight *w = a->w;
    const char *panel = a->panel;
    const int halves = dtype_has_halves(type) ? 2 : 1, folded = folded_cols(type);
    const int cols = folded ? folded : QUANT_GROUP / halves, at_once = MANY_UNROLLED < cols ? MANY_UNROLLED : cols;
    const int parts = cols == MANY_COLS ? 1 : a->groups * QUANT_GROUP / cols;
    for (int part = 0; part < parts; part++) {
        const int g = part * cols / QUANT_GROUP, half = part % halves, at = folded ? 0 : g + half * MANY_SECOND;
        if (dtype_is_affine(type))
            for (int i = 0; i < (folded ? folded / QUANT_GROUP : 1); i++)
                tile_lifts(type, n_rows, n_vecs, f, a, g + i, half);
        ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                leave_registers(&f[r][j]);
        add_columns(true, at_once, n_rows, n_vecs, c, w, panel, a->panel_size);
#pragma GCC unroll 1
        for (int k = at_once; k < cols; k += at_once) {
            w += at_once;
            panel += at_once * VEC * (int)sizeof *w;
            add_columns(false, at_once, n_rows, n_vecs, c, w, panel, a->panel_size);
        }
        w += at_once;
        panel += at_once * VEC * (int)sizeof *w;
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            const vec scale = vec_set(a->w_scales[r * MANY_SCALES + at]);
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                f[r][j] = vec_fma(ivec_to_float(c[r][j]), scale, f[r][j]);
        }
    }
}

VEC_INLINE vec both_scales(vec tokens, const float *scales)
{
    (void)scales; // they are in the sums
    return tokens;
}

VEC_INLINE vec many_lifts(enum dtype type, const struct group_scales *s, int half)
{
    (void)type;
    return s->lift[half];
}

// `groups` groups of a row; returns what its integers are to be multiplied by besides their scales.
VEC_INLINE float many_quants(enum dtype type, many_weight *to, struct quants_at from, int groups)
{
    if (dtype_is_grid(type)) {
        int8_t bytes[MANY_COLS];
        grid_bytes(bytes, from, groups);
        for (int i = 0; i < groups * QUANT_GROUP; i++)
            to[i] = bytes[i];
        return 1;
    }
    for (int g = 0; g < groups; g++)
        quants_in_order(type, to + g * QUANT_GROUP, groups_on(type, from, g));
    return 1;
}

#include "cpu/kernels/vec/quant_groups.h"

VEC_INLINE void many_fold(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], struct quants_at from,
                          const uint8_t *eight, const struct group_scales *s, int skip, int groups)
{
    for (int g = 0; g < groups; g++) {
        int16_t quants[QUANT_GROUP];
        const int16_t whole = eight[4 + skip + g] & 63;
        quants_in_order(type, quants, groups_on(type, from, g));
        for (int i = 0; i < QUANT_GROUP; i++)
            to[g * QUANT_GROUP + i] = (many_weight)(quants[i] * whole);
    }
    many_store_scales(scales, eights_halves(eight, 0, QUANT_EIGHT), 1, 0);
    many_store_scales(scales + MANY_LIFTS, s->lift[0], many_lift, skip);
}

#include "cpu/kernels/vec/panels16.h"
