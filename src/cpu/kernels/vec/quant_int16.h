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
    PANEL_SUMS = 2,
    PANEL_BLOCK = MANY_COLS * VEC * (int)sizeof(int16_t), // bytes of a block's columns
};

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
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++) {
        const float *of = (const float *)((const char *)sums + j * a->panel_size);
        const vec sum = !dtype_has_halves(type) ? vec_load(of)
                        : half                  ? vec_load(of + VEC)
                                                : vec_sub(vec_load(of), vec_load(of + VEC));
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++)
            f[r][j] = vec_fma(sum, vec_set(lifts[r * MANY_SCALES]), f[r][j]);
    }
}

// f += the tile's sums of a group, or of half of one, times its scale, for each.
VEC_INLINE void tile_sums(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                          const struct many_tile *a)
{
    const many_weight *w = a->w;
    const int halves = dtype_has_halves(type) ? 2 : 1, cols = QUANT_GROUP / halves;
    for (int part = 0; part < a->groups * halves; part++) {
        const int g = part / halves, at = g + part % halves * MANY_SECOND;
        if (dtype_is_affine(type))
            tile_lifts(type, n_rows, n_vecs, f, a, g, part % halves);
        ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++) {
                c[r][j] = ivec_zero();
                leave_registers(&f[r][j]);
            }
        for (ptrdiff_t k = (ptrdiff_t)part * cols; k < (ptrdiff_t)(part + 1) * cols; k += 2)
            add_pair(n_rows, n_vecs, c, w + k, MANY_COLS, a->panel + k * VEC * (ptrdiff_t)sizeof *w, a->panel_size);
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

#include "cpu/kernels/vec/panels16.h"
