// Products of quantised matrices with many tokens, for either vector width; included by kernels_<isa>_quant.c after vec_quant.h.
//
// Blocked as vec_matmul.h is: a block of W becomes 16-bit integers in their order, (MANY_ROWS, MANY_COLS), in L2; panels of VEC tokens,
// pairs of columns outermost, stay in L1. Two sums of each element of a tile stay in registers: the integers' over one group, and the
// scaled ones' over the block. Scaling costs one conversion and one multiply-add for each 16 dot products, since a token has one scale in
// the whole block: it is applied where the block's sums are added to those of the blocks before.
#pragma once
#include "cpu/vec_quant.h"

enum {
    MANY_COLS = QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,
    MANY_ROWS = VEC == 16 ? 128 : 64,
    MANY_TILE = QUANT_TILE_VECS * VEC, // tokens
    MANY_TOKENS = 11 * MANY_TILE,
    MANY_WEIGHTS = (int)sizeof(int16_t) * MANY_ROWS * MANY_COLS, // bytes
    MANY_SCALES = (int)sizeof(float) * MANY_ROWS * MANY_GROUPS,
    MANY_SUMS = (int)sizeof(float) * MANY_ROWS * MANY_TOKENS,
    QUANT_SCRATCH = MANY_WEIGHTS + MANY_SCALES + MANY_SUMS,
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

VEC_INLINE size_t quantised_size(int n, int cols)
{
    return n <= QUANT_FEW ? (size_t)n * few_bytes(cols) : (size_t)(n + VEC - 1) / VEC * panel_bytes(cols);
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

VEC_INLINE void quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW) {
        for (int t = 0; t < n; t++)
            quantise_few((char *)to + t * few_bytes(cols), x + t * ldx, cols, first_col, last_col);
        return;
    }
    for (ptrdiff_t t = 0; t < n; t += VEC)
        for (int c = first_col; c < last_col; c += QUANT_BLOCK)
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
    for (int r = rows; r % QUANT_TALL_ROWS; r++) {
        memset(m->block + r * MANY_COLS, 0, sizeof(int16_t) * MANY_COLS);
        memset(m->block_scales + r * MANY_GROUPS, 0, sizeof(float) * MANY_GROUPS);
    }
}

// What many_convert() will want next.
struct many_next {
    int first_row, rows, first_group;
};

// Its rows [first, last), from memory to L2.
VEC_INLINE void many_fetch(enum dtype type, const struct many *m, const struct many_next *next, int first, int last)
{
    const ptrdiff_t group_bytes = (ptrdiff_t)dtype_group_bytes[type];
    for (int r = first; r < last && r < next->rows; r++) {
        const ptrdiff_t at = (ptrdiff_t)(next->first_row + r) * m->groups + next->first_group;
        const char *from = (const char *)m->args->w + at * group_bytes;
        for (ptrdiff_t b = 0; b < MANY_GROUPS * group_bytes; b += 64)
            __builtin_prefetch(from + b, 0, 2);
        __builtin_prefetch(m->scales + at, 0, 2);
    }
}

// A block's rows, a few of them, with the tokens of a few panels, over `groups` groups.
struct many_tile {
    float *sums;           // (rows, MANY_TOKENS): the products are added to these, or, where `first`, replace them
    const int16_t *w;      // (rows, MANY_COLS)
    const float *w_scales; // (rows, MANY_GROUPS)
    const char *panel; // the first panel's integers at the block's first column; the next panel's are panel_size bytes further
    const float *scales; // of its tokens
    ptrdiff_t panel_size;
    int groups;
    bool first;
};

// n_rows and n_vecs are constants where this is inlined.
VEC_INLINE void many_tile(int n_rows, int n_vecs, const struct many_tile *tile)
{
    const struct many_tile a = *tile;
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
                memcpy(&pair, a.w + r * MANY_COLS + k, sizeof pair);
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

// Not inlined: all registers are for the tile alone.
static __attribute__((noinline)) void many_tile_full(const struct many_tile *tile)
{
    many_tile(QUANT_TILE_ROWS, QUANT_TILE_VECS, tile);
}
static __attribute__((noinline)) void many_tile_two(const struct many_tile *tile)
{
    many_tile(QUANT_TILE_ROWS, 2, tile);
}
static __attribute__((noinline)) void many_tile_tall(const struct many_tile *tile)
{
    many_tile(QUANT_TALL_ROWS, 1, tile);
}

VEC_INLINE void many_block(enum dtype type, const struct many *m, int rows, int first_token, int tokens, int first_group,
                           int groups, const struct many_next *next)
{
    const ptrdiff_t size = (ptrdiff_t)panel_bytes(m->args->cols);
    for (int t = 0; t < tokens; t += MANY_TILE) {
        const char *panel = (const char *)m->args->x + (first_token + t) / VEC * size;
        struct many_tile tile = {
            .panel = panel + (ptrdiff_t)first_group * QUANT_GROUP * VEC * (ptrdiff_t)sizeof(int16_t),
            .scales = panel_scales(panel, m->args->cols) + (ptrdiff_t)first_group / MANY_GROUPS * VEC,
            .panel_size = size,
            .groups = groups,
            .first = first_group == 0,
        };
        const int left = (tokens - t + VEC - 1) / VEC;
        const int step = left == 1 ? QUANT_TALL_ROWS : QUANT_TILE_ROWS;
        for (int r = 0; r < rows; r += step) {
            if (t == 0)
                many_fetch(type, m, next, r, r + step);
            tile.sums = m->sums + (ptrdiff_t)r * MANY_TOKENS + t;
            tile.w = m->block + r * MANY_COLS;
            tile.w_scales = m->block_scales + r * MANY_GROUPS;
            if (left >= QUANT_TILE_VECS)
                many_tile_full(&tile);
            else if (left == 2)
                many_tile_two(&tile);
            else
                many_tile_tall(&tile);
        }
    }
}

VEC_INLINE void many_rows(enum dtype type, const struct many *m, int first_row, int rows, int first_token, int tokens)
{
    const struct quant_args *a = m->args;
    for (int g = 0; g < m->groups; g += MANY_GROUPS) {
        const int groups = m->groups - g < MANY_GROUPS ? (int)(m->groups - g) : MANY_GROUPS;
        many_convert(type, m, first_row, rows, g, groups);
        struct many_next next = {first_row, rows, g + groups};
        if (next.first_group == m->groups) {
            const int left = a->last_row - first_row - rows;
            next = (struct many_next){first_row + rows, left < MANY_ROWS ? left : MANY_ROWS, 0};
        }
        many_block(type, m, rows, first_token, tokens, g, groups, &next);
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
