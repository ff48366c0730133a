// Products of many tokens in integers, for either vector width and any form of them; included by *.c after vec/quant_int16.h or
// vec/quant_int8.h (of quantised matrices), or vnni/fixed.h (of others).
//
// Blocked as vec/matmul.h is: a block of W becomes integers as the form wants them, (MANY_ROWS, MANY_COLS), in L2; panels of
// VEC tokens stay in L1. Two sums of each element of a tile stay in registers: the integers' over one group, and the scaled
// ones' over the block.
#pragma once
#include "cpu/kernels/vec/quant.h"

enum {
    // Of so many tokens half of the rows make a block: converting is much of the work then, and goes faster where what comes
    // next is nearer.
    NARROW_TOKENS = 4 * MANY_TILE,
    MANY_WEIGHTS = (int)sizeof(many_weight) * MANY_ROWS * MANY_COLS, // bytes
    MANY_WEIGHT_SCALES = (int)sizeof(float) * MANY_ROWS * MANY_SCALES,
    MANY_SUMS = (int)sizeof(float) * MANY_ROWS * MANY_TOKENS,
    QUANT_SCRATCH = MANY_WEIGHTS + MANY_WEIGHT_SCALES + MANY_SUMS,
};

VEC_INLINE size_t many_size(int n, int cols)
{
    return (size_t)(n + VEC - 1) / VEC * panel_bytes(cols);
}

VEC_INLINE void many_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (ptrdiff_t t = 0; t < n; t += VEC)
        for (int c = first_col; c < last_col; c += QUANT_BLOCK)
            quantise_panel((char *)to + (size_t)(t / VEC) * panel_bytes(cols), x + t * ldx, ldx,
                           n - t < VEC ? (int)(n - t) : VEC, cols, c);
}

// One product: the scratch by name.
struct many {
    const struct product_args *args;
    ptrdiff_t groups;
    int rows;            // of a block, at most MANY_ROWS
    many_weight *block;  // (MANY_ROWS, MANY_COLS)
    float *block_scales; // (MANY_ROWS, MANY_SCALES)
    float *sums;         // (MANY_ROWS, MANY_TOKENS)
};

// Rows of zeros fill the last tile.
VEC_INLINE void many_convert(enum dtype type, const struct many *m, int first_row, int rows, int first_group, int groups)
{
    for (int r = 0; r < rows; r++)
        many_row(type, m->block + r * MANY_COLS, m->block_scales + r * MANY_SCALES, m->args, first_row + r, first_group,
                 groups);
    for (int r = rows; r % QUANT_TALL_ROWS; r++) {
        memset(m->block + r * MANY_COLS, 0, sizeof(many_weight) * MANY_COLS);
        memset(m->block_scales + r * MANY_SCALES, 0, sizeof(float) * MANY_SCALES);
    }
}

// What many_convert() will want next.
struct many_next {
    int first_row, rows, first_group;
};

// Its rows [first, last), from memory to L2: at once, or, where by_tile and their form can, by the tile that is given what this
// returns.
VEC_INLINE struct many_lines many_fetch(enum dtype type, const struct many *m, const struct many_next *next, int first,
                                        int last, bool by_tile)
{
    const struct many_lines lines = many_lines_at(type, m->args, next->first_row + first, next->first_group);
    if (by_tile && lines.at && last <= next->rows)
        return lines;
    for (int r = first; r < last && r < next->rows; r++)
        many_fetch_row(type, m->args, next->first_row + r, next->first_group);
    return (struct many_lines){NULL, 0};
}

// A block of most types is as q8's. q4's has nibbles; MANY_SIX_APART: six-bit integers have a tile of their own; and so have
// those with minima and with two scales a group. So has W's own type `of_w`, which may not be the kernels', where it folds.
VEC_INLINE enum dtype tile_type(enum dtype type, enum dtype of_w)
{
    if (MANY_SCALES == 1) // vnni/fixed.h
        return DTYPE_Q8;
    if (folded_cols(of_w))
        return of_w == DTYPE_Q3K ? DTYPE_Q6K : of_w;
    if (dtype_has_halves(type))
        return dtype_is_affine(type) ? DTYPE_Q2K : MANY_SIX_APART && dtype_is_byte(type) ? DTYPE_IQ3S : DTYPE_Q6K;
    if (dtype_is_affine(type))
        return dtype_quants[type] == DTYPE_Q4 ? DTYPE_Q4A : DTYPE_Q5A;
    if (type == DTYPE_Q4)
        return MANY_NIBBLES ? type : DTYPE_Q8;
    return MANY_SIX_APART && dtype_is_six_bit(type) ? DTYPE_Q6 : DTYPE_Q8;
}

// Not inlined: all registers are for the tile alone.
#define TILE_OF(name, n_rows, n_vecs)                                                                                          \
    static __attribute__((noinline)) void name(enum dtype type, const struct many_tile *tile)                                  \
    {                                                                                                                          \
        switch (type) {                                                                                                        \
        case DTYPE_Q4:                                                                                                         \
            if (MANY_NIBBLES)                                                                                                  \
                many_tile(DTYPE_Q4, n_rows, n_vecs, tile);                                                                     \
            break;                                                                                                             \
        case DTYPE_Q4A:                                                                                                        \
            many_tile(DTYPE_Q4A, n_rows, n_vecs, tile);                                                                        \
            break;                                                                                                             \
        case DTYPE_Q5A:                                                                                                        \
            many_tile(DTYPE_Q5A, n_rows, n_vecs, tile);                                                                        \
            break;                                                                                                             \
        case DTYPE_Q4K:                                                                                                        \
            if (folded_cols(DTYPE_Q4K))                                                                                        \
                many_tile(DTYPE_Q4K, n_rows, n_vecs, tile);                                                                    \
            break;                                                                                                             \
        case DTYPE_Q5K:                                                                                                        \
            if (folded_cols(DTYPE_Q5K))                                                                                        \
                many_tile(DTYPE_Q5K, n_rows, n_vecs, tile);                                                                    \
            break;                                                                                                             \
        case DTYPE_Q6K:                                                                                                        \
            many_tile(DTYPE_Q6K, n_rows, n_vecs, tile);                                                                        \
            break;                                                                                                             \
        case DTYPE_Q2K:                                                                                                        \
            many_tile(DTYPE_Q2K, n_rows, n_vecs, tile);                                                                        \
            break;                                                                                                             \
        case DTYPE_IQ3S:                                                                                                       \
            if (MANY_SIX_APART)                                                                                                \
                many_tile(DTYPE_IQ3S, n_rows, n_vecs, tile);                                                                   \
            break;                                                                                                             \
        case DTYPE_Q6:                                                                                                         \
            if (MANY_SIX_APART)                                                                                                \
                many_tile(DTYPE_Q6, n_rows, n_vecs, tile);                                                                     \
            break;                                                                                                             \
        default:                                                                                                               \
            many_tile(DTYPE_Q8, n_rows, n_vecs, tile);                                                                         \
        }                                                                                                                      \
    }
TILE_OF(many_tile_full, QUANT_TILE_ROWS, QUANT_TILE_VECS)
TILE_OF(many_tile_two, QUANT_TWO_ROWS, 2)
TILE_OF(many_tile_tall, QUANT_TALL_ROWS, 1)

// Bytes of the next tiles' panels that are fetched while `rows` rows are multiplied.
VEC_INLINE ptrdiff_t many_panels_share(const struct many *m, int rows)
{
    return (PANEL_BLOCK * (ptrdiff_t)rows / m->rows + 63) / 64 * 64;
}
// To L1, or with AVX-512, where a block of W leaves no room there, to L2.
VEC_INLINE void many_fetch_panels(const struct many_tile *next, ptrdiff_t first, ptrdiff_t share)
{
    for (int j = 0; j < QUANT_TILE_VECS; j++)
        for (ptrdiff_t b = 0; b < share; b += 64)
            __builtin_prefetch(next->panel + j * next->panel_size + first + b, 0, VEC == 16 ? 2 : 3);
}
// Of 16-bit tokens the scales and groups' sums, which lie behind all columns.
VEC_INLINE void many_fetch_scales(const struct many_tile *next)
{
    const int sums = MANY_GROUPS * PANEL_SUMS * VEC * (int)sizeof(float);
    for (int j = 0; j < QUANT_TILE_VECS && next->scales; j++) {
        __builtin_prefetch((const char *)next->scales + j * next->panel_size);
        for (int b = 0; b < sums; b += 64)
            __builtin_prefetch((const char *)next->group_sums + j * next->panel_size + b);
    }
}

// Fetches Y's lines, which no cache has, while a tile of tokens is multiplied. Rows [row, row + rows) of a block bring their
// share of the tokens' lines, 16 rows in each.
VEC_INLINE void many_fetch_outputs(float *y, ptrdiff_t ldy, int row, int rows, int tokens)
{
    enum { LINE = 64 / sizeof(float) };
    const int share = MANY_TILE * rows / LINE, first = row % LINE / rows * share;
    for (int t = first; t < first + share && t < tokens; t++)
        __builtin_prefetch(y + t * ldy + row / LINE * LINE, 1);
}

// How many of `left` vectors of tokens the next tile takes. Of four two: tiles of one have to load a weight for each product.
VEC_INLINE int tile_vecs(int left)
{
    return left < QUANT_TILE_VECS ? left : QUANT_TILE_VECS == 3 && left == 4 ? 2 : QUANT_TILE_VECS;
}

// `y`, or NULL: where the sums go in the end.
VEC_INLINE void many_block(enum dtype type, const struct many *m, float *y, int rows, int first_token, int tokens,
                           int first_group, int groups, const struct many_next *next)
{
    const int cols = m->args->cols;
    const enum dtype of_tile = tile_type(type, m->args->type);
    const ptrdiff_t size = (ptrdiff_t)panel_bytes(cols);
    const char *panels = (const char *)m->args->x + first_token / VEC * size;
    for (int t = 0, vecs; t < tokens; t += vecs * VEC) {
        vecs = tile_vecs((tokens - t + VEC - 1) / VEC);
        struct many_tile tile = {
            .panel_size = size,
            .groups = groups,
            .first = first_group == 0,
        };
        struct many_tile after = tile;
        const int next_token = t + vecs * VEC;
        many_panel(&tile, panels + t / VEC * size, cols, first_group);
        if (next_token < tokens)
            many_panel(&after, panels + next_token / VEC * size, cols, first_group);
        else
            many_panel(&after, panels, cols, next->first_group);
        const int step = vecs == 1                 ? QUANT_TALL_ROWS
                         : vecs == QUANT_TILE_VECS ? QUANT_TILE_ROWS
                                                   : QUANT_TWO_ROWS,
                  n = tokens < next_token ? tokens - t : vecs * VEC;
        const ptrdiff_t share = many_panels_share(m, step);
        const bool fetches_w = VEC == 16 ? t == 0 : next_token >= tokens; // AVX2: late, so that they stay in L2
        ptrdiff_t fetched = 0;
        many_fetch_scales(&after);
        for (int r = 0; r < rows; r += step, fetched += share) {
            tile.next = fetches_w ? many_fetch(type, m, next, r, r + step, vecs == 2) : (struct many_lines){NULL, 0};
            many_fetch_panels(&after, fetched, share);
            if (y)
                many_fetch_outputs(y + t * m->args->ldy, m->args->ldy, r, step, n);
            tile.sums = m->sums + (ptrdiff_t)r * MANY_TOKENS + t;
            tile.w = m->block + r * MANY_COLS;
            tile.w_scales = m->block_scales + r * MANY_SCALES;
            if (vecs == QUANT_TILE_VECS)
                many_tile_full(of_tile, &tile);
            else if (vecs == 2)
                many_tile_two(of_tile, &tile);
            else
                many_tile_tall(of_tile, &tile);
        }
        if (y)
            transpose(y + t * m->args->ldy, m->args->ldy, m->sums + t, MANY_TOKENS, rows, n);
    }
}

VEC_INLINE void many_rows(enum dtype type, const struct many *m, int first_row, int rows, int first_token, int tokens)
{
    const struct product_args *a = m->args;
    float *y = a->y + first_token * a->ldy + (first_row - a->first_row);
    for (int g = 0; g < m->groups; g += MANY_GROUPS) {
        const int groups = m->groups - g < MANY_GROUPS ? (int)(m->groups - g) : MANY_GROUPS;
        many_convert(type, m, first_row, rows, g, groups);
        struct many_next next = {first_row, rows, g + groups};
        if (next.first_group == m->groups) {
            const int left = a->last_row - first_row - rows;
            next = (struct many_next){first_row + rows, left < m->rows ? left : m->rows, 0};
        }
        many_block(type, m, g + groups == m->groups ? y : NULL, rows, first_token, tokens, g, groups, &next);
    }
}

VEC_INLINE void many(enum dtype type, const struct product_args *a)
{
    char *scratch = a->scratch;
    const ptrdiff_t groups = (ptrdiff_t)quant_groups(a->cols);
    const struct many m = {
        .args = a,
        .groups = groups,
        .rows = a->n <= NARROW_TOKENS ? MANY_ROWS / 2 : MANY_ROWS,
        .block = (many_weight *)scratch,
        .block_scales = (float *)(scratch + MANY_WEIGHTS),
        .sums = (float *)(scratch + MANY_WEIGHTS + MANY_WEIGHT_SCALES),
    };
    // Token blocks of about equal size, in whole tiles.
    const int n_blocks = (a->n + MANY_TOKENS - 1) / MANY_TOKENS, tiles = (a->n + MANY_TILE - 1) / MANY_TILE;
    const int per_block = (tiles + n_blocks - 1) / n_blocks * MANY_TILE;
    for (int t = 0; t < a->n; t += per_block)
        for (int r = a->first_row; r < a->last_row; r += m.rows)
            many_rows(type, &m, r, a->last_row - r < m.rows ? a->last_row - r : m.rows, t,
                      a->n - t < per_block ? a->n - t : per_block);
}
