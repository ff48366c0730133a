// Products of quantised matrices with many tokens, for either vector width; included by kernels_<isa>_quant.c after vec_quant.h.
//
// Blocked as vec_matmul.h is: a block of W becomes 16-bit integers in their order, (MANY_ROWS, MANY_COLS), in L2; panels of VEC tokens,
// pairs of columns outermost, stay in L1; a tile's sums over one group stay in registers, and are then scaled and added to
// the block's float sums.
#pragma once
#include "cpu/vec_quant.h"

enum {
    MANY_COLS = 128,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,
    MANY_ROWS = VEC == 16 ? 128 : 64,
    MANY_TILE = QUANT_TILE_VECS * VEC, // tokens
    MANY_TOKENS = 11 * MANY_TILE,
    MANY_WEIGHTS = (int)sizeof(int16_t) * MANY_ROWS * MANY_COLS, // bytes
    MANY_SCALES = (int)sizeof(float) * MANY_ROWS * MANY_GROUPS,
    MANY_SUMS = (int)sizeof(float) * MANY_ROWS * MANY_TOKENS,
    QUANT_SCRATCH = MANY_WEIGHTS + MANY_SCALES + MANY_SUMS,
};

// A panel: (16 * groups, VEC, 2) integers, then (groups, VEC) scales.
VEC_INLINE size_t panel_bytes(int cols)
{
    return quant_groups(cols) * VEC * (QUANT_GROUP * sizeof(int16_t) + sizeof(float));
}
VEC_INLINE float *panel_scales(const char *panel, int cols)
{
    return (float *)(panel + quant_groups(cols) * VEC * QUANT_GROUP * sizeof(int16_t));
}

VEC_INLINE size_t quantised_size(int n, int cols)
{
    return n <= QUANT_FEW ? (size_t)n * few_bytes(cols) : (size_t)(n + VEC - 1) / VEC * panel_bytes(cols);
}

// One group of up to VEC tokens.
VEC_INLINE void quantise_panel(char *panel, const float *x, ptrdiff_t ldx, int tokens, int cols, int first)
{
    float pairs[VEC][QUANT_GROUP / 2]; // of 16-bit integers; they are only moved
    float *scales = panel_scales(panel, cols) + first / QUANT_GROUP * VEC;
    for (int t = 0; t < VEC; t++) {
        int32_t group[QUANT_GROUP];
        int16_t narrow[QUANT_GROUP];
        scales[t] = t < tokens ? quantise_group(group, x + t * ldx, first, cols) : 0;
        for (int i = 0; i < QUANT_GROUP; i++)
            narrow[i] = t < tokens ? (int16_t)group[i] : 0;
        memcpy(pairs[t], narrow, sizeof narrow);
    }
    transpose((float *)panel + (ptrdiff_t)first / 2 * VEC, VEC, pairs[0], QUANT_GROUP / 2, VEC, QUANT_GROUP / 2);
}

VEC_INLINE void quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW) {
        for (int t = 0; t < n; t++)
            quantise_few((char *)to + t * few_bytes(cols), x + t * ldx, cols, first_col, last_col);
        return;
    }
    for (ptrdiff_t t = 0; t < n; t += VEC)
        for (int c = first_col; c < last_col; c += QUANT_GROUP)
            quantise_panel((char *)to + (size_t)(t / VEC) * panel_bytes(cols), x + t * ldx, ldx,
                           n - t < VEC ? (int)(n - t) : VEC, cols, c);
}

// One product: W's scales' place, and the scratch by name.
struct many {
    const struct quant_args *args;
    const uint16_t *scales; // (rows, groups)
    ptrdiff_t groups;
    int16_t *block;      // (MANY_ROWS, MANY_COLS)
    float *block_scales; // (MANY_ROWS, MANY_GROUPS)
    float *sums;         // (MANY_ROWS, MANY_TOKENS)
};

// Rows of zeros fill the last tile.
VEC_INLINE void many_convert(enum dtype type, const struct many *m, int first_row, int rows, int first_group, int groups)
{
    const ptrdiff_t group_bytes = (ptrdiff_t)dtype_group_bytes[type];
    for (int r = 0; r < rows; r++) {
        const ptrdiff_t at = (first_row + r) * m->groups + first_group;
        const uint8_t *from = (const uint8_t *)m->args->w + at * group_bytes;
        for (int g = 0; g < groups; g++)
            quants_in_order(type, m->block + r * MANY_COLS + g * QUANT_GROUP, from + g * group_bytes);
        vec_store_part(m->block_scales + r * MANY_GROUPS, vec_load_part_as(DTYPE_FP16, m->scales, at, groups), groups);
    }
    for (int r = rows; r % TILE_ROWS; r++) {
        memset(m->block + r * MANY_COLS, 0, sizeof(int16_t) * MANY_COLS);
        memset(m->block_scales + r * MANY_GROUPS, 0, sizeof(float) * MANY_GROUPS);
    }
}

// sums (TILE_ROWS, MANY_TOKENS) += the tile's products over `groups` groups. panel, scales: the first panel's integers and scales at the
// block's first group. n_vecs is a constant where this is inlined.
VEC_INLINE void many_tile(int n_vecs, float *sums, const int16_t *w, const float *w_scales, const char *panel,
                          const float *scales, ptrdiff_t panel_size, int groups)
{
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++) // needed after the first group's products: time enough to come from L2
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            __builtin_prefetch(sums + r * MANY_TOKENS + j * VEC);
    for (int g = 0; g < groups; g++) {
        ivec c[TILE_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                c[r][j] = ivec_zero();
        for (ptrdiff_t k = (ptrdiff_t)g * QUANT_GROUP; k < (ptrdiff_t)(g + 1) * QUANT_GROUP; k += 2) {
            ivec x[QUANT_TILE_VECS];
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                x[j] = ivec_load(panel + j * panel_size + k * VEC * (ptrdiff_t)sizeof(int16_t));
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) {
                int32_t pair;
                memcpy(&pair, w + r * MANY_COLS + k, sizeof pair);
                const ivec weights = ivec_set(pair);
#pragma GCC unroll 8
                for (int j = 0; j < n_vecs; j++)
                    c[r][j] = ivec_dot(c[r][j], weights, x[j]);
            }
        }
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++) {
            const vec x_scale = vec_load((const float *)((const char *)scales + j * panel_size) + g * VEC);
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) {
                float *sum = sums + r * MANY_TOKENS + j * VEC;
                const vec scale = vec_mul(vec_set(w_scales[r * MANY_GROUPS + g]), x_scale);
                vec_store(sum, vec_fma(ivec_to_float(c[r][j]), scale, vec_load(sum)));
            }
        }
    }
}

VEC_INLINE void many_block(const struct many *m, int rows, int first_token, int tokens, int first_group, int groups)
{
    const ptrdiff_t size = (ptrdiff_t)panel_bytes(m->args->cols);
    for (int t = 0; t < tokens; t += MANY_TILE) {
        const char *panel = (const char *)m->args->x + (first_token + t) / VEC * size;
        const float *scales = panel_scales(panel, m->args->cols) + (ptrdiff_t)first_group * VEC;
        const int left = (tokens - t + VEC - 1) / VEC;
        panel += (ptrdiff_t)first_group * QUANT_GROUP * VEC * (ptrdiff_t)sizeof(int16_t);
        for (int r = 0; r < rows; r += TILE_ROWS) {
            float *sums = m->sums + (ptrdiff_t)r * MANY_TOKENS + t;
            const int16_t *w = m->block + r * MANY_COLS;
            const float *w_scales = m->block_scales + r * MANY_GROUPS;
            if (left >= QUANT_TILE_VECS)
                many_tile(QUANT_TILE_VECS, sums, w, w_scales, panel, scales, size, groups);
            else if (left == 2)
                many_tile(2, sums, w, w_scales, panel, scales, size, groups);
            else
                many_tile(1, sums, w, w_scales, panel, scales, size, groups);
        }
    }
}

VEC_INLINE void many_rows(enum dtype type, const struct many *m, int first_row, int rows, int first_token, int tokens)
{
    const struct quant_args *a = m->args;
    memset(m->sums, 0, MANY_SUMS);
    for (int g = 0; g < m->groups; g += MANY_GROUPS) {
        const int groups = m->groups - g < MANY_GROUPS ? (int)(m->groups - g) : MANY_GROUPS;
        many_convert(type, m, first_row, rows, g, groups);
        many_block(m, rows, first_token, tokens, g, groups);
    }
    transpose(a->y + first_token * a->ldy + (first_row - a->first_row), a->ldy, m->sums, MANY_TOKENS, rows, tokens);
}

VEC_INLINE void many(enum dtype type, const struct quant_args *a)
{
    char *scratch = a->scratch;
    const ptrdiff_t groups = (ptrdiff_t)quant_groups(a->cols);
    const struct many m = {
        .args = a,
        .scales = (const uint16_t *)((const uint8_t *)a->w + a->rows * groups * (ptrdiff_t)dtype_group_bytes[type]),
        .groups = groups,
        .block = (int16_t *)scratch,
        .block_scales = (float *)(scratch + MANY_WEIGHTS),
        .sums = (float *)(scratch + MANY_WEIGHTS + MANY_SCALES),
    };
    // Token blocks of about equal size, in whole tiles.
    const int n_blocks = (a->n + MANY_TOKENS - 1) / MANY_TOKENS, tiles = (a->n + MANY_TILE - 1) / MANY_TILE;
    const int per_block = (tiles + n_blocks - 1) / n_blocks * MANY_TILE;
    for (int t = 0; t < a->n; t += per_block)
        for (int r = a->first_row; r < a->last_row; r += MANY_ROWS)
            many_rows(type, &m, r, a->last_row - r < MANY_ROWS ? a->last_row - r : MANY_ROWS, t,
                      a->n - t < per_block ? a->n - t : per_block);
}

VEC_INLINE void quant_product(enum dtype type, const struct quant_args *a)
{
    if (a->n <= QUANT_FEW)
        few(type, a);
    else
        many(type, a);
}
