// Many tokens as 16-bit integers, for vec_quant_many.h; included by kernels_<isa>_quant.c.
//
// A block of W becomes 16-bit integers in their order, and panels are pairs of columns. Scaling costs one conversion and one multiply-add
// for each 16 dot products, since a token has one scale in the whole block: it is applied where the block's sums are added to those of the
// blocks before.
#pragma once
#include "cpu/vec_quant.h"

typedef int16_t many_weight;

enum {
    MANY_COLS = QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,
    PANEL_BLOCK = MANY_COLS * VEC * (int)sizeof(int16_t), // bytes of a block's columns
};

// A panel: (cols / 2, VEC, 2) integers, then (blocks, VEC) scales, in whole blocks.
VEC_INLINE size_t panel_blocks(int cols)
{
    return ((size_t)cols + QUANT_BLOCK - 1) / QUANT_BLOCK;
}
VEC_INLINE size_t panel_bytes(int cols)
{
    return panel_blocks(cols) * VEC * (QUANT_BLOCK * sizeof(int16_t) + sizeof(float));
}
VEC_INLINE float *panel_scales(const char *panel, int cols)
{
    return (float *)(panel + panel_blocks(cols) * VEC * QUANT_BLOCK * sizeof(int16_t));
}
VEC_INLINE void many_panel(struct many_tile *tile, const char *panel, int cols, int group)
{
    tile->panel = panel + (ptrdiff_t)group * QUANT_GROUP * VEC * (ptrdiff_t)sizeof(int16_t);
    tile->scales = panel_scales(panel, cols) + group / MANY_GROUPS * VEC;
}

// One block of up to VEC tokens.
VEC_INLINE void quantise_panel(char *panel, const float *x, ptrdiff_t ldx, int tokens, int cols, int first)
{
    float pairs[VEC][QUANT_BLOCK / 2]; // of 16-bit integers; they are only moved
    float *scales = panel_scales(panel, cols) + first / QUANT_BLOCK * VEC;
    memset(pairs, 0, sizeof pairs);
    for (int t = 0; t < VEC; t++) {
        int16_t block[QUANT_BLOCK] = {0};
        scales[t] = t < tokens ? quantise_block(block, x + t * ldx, first, cols) : 0;
        memcpy(pairs[t], block, sizeof block);
    }
    transpose((float *)panel + (ptrdiff_t)first / 2 * VEC, VEC, pairs[0], QUANT_BLOCK / 2, VEC, QUANT_BLOCK / 2);
}

// The groups of a row whose quants are at `from`; returns what its integers are to be multiplied by besides their scales.
VEC_INLINE float many_quants(enum dtype type, many_weight *to, const uint8_t *from, int groups)
{
    for (int g = 0; g < groups; g++)
        quants_in_order(type, to + g * QUANT_GROUP, from + g * (ptrdiff_t)dtype_group_bytes[type]);
    return 1;
}

// n_rows and n_vecs are constants where this is inlined.
VEC_INLINE void many_tile(enum dtype type, int n_rows, int n_vecs, const struct many_tile *tile)
{
    (void)type;
    const struct many_tile a = *tile;
    const many_weight *w = a.w;
    vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++) {
            f[r][j] = vec_zero();
            __builtin_prefetch(a.sums + r * MANY_TOKENS + j * VEC); // needed at the end: time enough to come from L2
        }
    for (int g = 0; g < a.groups; g++) {
        ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                c[r][j] = ivec_zero();
        for (ptrdiff_t k = (ptrdiff_t)g * QUANT_GROUP; k < (ptrdiff_t)(g + 1) * QUANT_GROUP; k += 2) {
            ivec x[QUANT_TILE_VECS];
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                x[j] = ivec_load(a.panel + j * a.panel_size + k * VEC * (ptrdiff_t)sizeof(int16_t));
#pragma GCC unroll 8
            for (int r = 0; r < n_rows; r++) {
                int32_t pair;
                memcpy(&pair, w + r * MANY_COLS + k, sizeof pair);
                const ivec weights = ivec_set(pair);
#pragma GCC unroll 8
                for (int j = 0; j < n_vecs; j++)
                    c[r][j] = ivec_dot(c[r][j], weights, x[j]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            const vec scale = vec_set(a.w_scales[r * MANY_GROUPS + g]);
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                f[r][j] = vec_fma(ivec_to_float(c[r][j]), scale, f[r][j]);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < n_vecs; j++) {
        const vec scale = vec_load((const float *)((const char *)a.scales + j * a.panel_size));
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            float *sum = a.sums + r * MANY_TOKENS + j * VEC;
            vec_store(sum, vec_fma(f[r][j], scale, a.first ? vec_zero() : vec_load(sum)));
        }
    }
}
