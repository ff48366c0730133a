// Panels and tiles of 16-bit integers, for vec/quant_many.h. Included by vec/quant_int16.h and vnni/fixed.h, which define
// token_scales(), pair_first() and pair_second(): how a block of a token becomes such integers, and which columns are a pair.
// They also define tile_sums(), a tile's sums over a block in float32, both_scales(), what these are multiplied by, and
// PANEL_SUMS: 2 where panels have sums of the integers of each group and of its second half, which minima are multiplied by;
// else 0.
#pragma once
#include "cpu/kernels/vec/quant.h"

// A panel: (cols / 2, VEC, 2) integers, then (blocks, VEC) scales, then (groups, PANEL_SUMS, VEC) sums, in whole blocks.
VEC_INLINE size_t panel_blocks(int cols)
{
    return ((size_t)cols + MANY_COLS - 1) / MANY_COLS;
}
VEC_INLINE size_t panel_bytes(int cols)
{
    return panel_blocks(cols) * VEC * (MANY_COLS * sizeof(int16_t) + (1 + PANEL_SUMS * MANY_GROUPS) * sizeof(float));
}
VEC_INLINE float *panel_scales(const char *panel, int cols)
{
    return (float *)(panel + panel_blocks(cols) * VEC * MANY_COLS * sizeof(int16_t));
}
VEC_INLINE float *panel_sums(const char *panel, int cols)
{
    return panel_scales(panel, cols) + panel_blocks(cols) * VEC;
}
VEC_INLINE void many_panel(struct many_tile *tile, const char *panel, int cols, int group)
{
    tile->panel = panel + (ptrdiff_t)group * QUANT_GROUP * VEC * (ptrdiff_t)sizeof(int16_t);
    tile->scales = panel_scales(panel, cols) + group / MANY_GROUPS * VEC;
    tile->group_sums = panel_sums(panel, cols) + group * PANEL_SUMS * VEC;
}

// One block of up to VEC tokens: a vector has a column of all of them, so that nothing is summed across lanes.
VEC_INLINE void quantise_panel(char *panel, const float *x, ptrdiff_t ldx, int tokens, int cols, int first)
{
    float columns[MANY_COLS][VEC];
    load_columns(columns[0], MANY_COLS, x + first, ldx, tokens, cols - first);
    const struct token_scales scales = token_scales(columns);
    vec_store(panel_scales(panel, cols) + first / MANY_COLS * VEC, scales.unit);
    int32_t *pairs = (int32_t *)panel + (ptrdiff_t)first / 2 * VEC;
    ivec sum = ivec_zero(), first_half = ivec_zero(); // of a group, and of its first half
    for (int i = 0; i < MANY_COLS / 2; i++) {
        const ivec pair = ivec_low_halves(nearest_bits(vec_load(columns[pair_first(i)]), scales.inverse),
                                          nearest_bits(vec_load(columns[pair_second(i)]), scales.inverse));
        ivec_store(pairs + i * VEC, pair);
        if (PANEL_SUMS) {
            sum = ivec_dot(sum, ivec_set(0x00010001), pair);
            if (i % (QUANT_GROUP / 2) == QUANT_GROUP / 4 - 1)
                first_half = sum;
            if (i % (QUANT_GROUP / 2) == QUANT_GROUP / 2 - 1) {
                float *to = panel_sums(panel, cols) + (first + 2 * i) / QUANT_GROUP * PANEL_SUMS * VEC;
                vec_store(to, ivec_to_float(sum));
                vec_store(to + VEC, ivec_to_float(ivec_sub(sum, first_half)));
                sum = ivec_zero();
            }
        }
    }
}

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
            if (j * VEC % (64 / (int)sizeof(float)) == 0)
                __builtin_prefetch(a.sums + r * MANY_TOKENS + j * VEC); // needed at the end: time enough to come from L2
        }
    tile_sums(type, n_rows, n_vecs, f, &a);
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++) {
        const vec scale = vec_load((const float *)((const char *)a.scales + j * a.panel_size));
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            float *sum = a.sums + r * MANY_TOKENS + j * VEC;
            const vec both = both_scales(scale, a.w_scales + r * MANY_SCALES);
            vec_store(sum, vec_fma(f[r][j], both, a.first ? vec_zero() : vec_load(sum)));
        }
    }
}
