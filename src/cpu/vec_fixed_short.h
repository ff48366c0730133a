// Short prompts, and weights that are floating-point numbers, as 16-bit integers; included by kernels_<isa>_fixed.c after vec_fixed.h, whose conversion of weights
// it has.
//
// A tile of many tokens (vec_quant_many.h) multiplies a vector of them at a time, from blocks of W that are converted before. Of a few tokens most of the work is converting
// and waiting for memory. So here W is read as in decode: a few rows together from their beginning to their end. A block of 128 columns is converted into the L1 cache and
// multiplied at once with all tokens, along the columns: a lane has columns of its own, and its sum over a block is of 8 products only, whatever the columns are. So it
// stays in integers for the whole block, and a token's integers can be up to 2^14.
#pragma once
#include "cpu/vec_fixed.h"

enum {
    SHORT_TOKENS = 24, // at most
    SHORT_ROWS = 4,    // of W, and
    SHORT_TILE = 3,    // tokens, that are multiplied together: 12 sums in integers and 12 in float32
    SHORT_TILES = (SHORT_TOKENS + SHORT_TILE - 1) / SHORT_TILE,
    SHORT_SUMS = SHORT_ROWS * SHORT_TILE,
    SHORT_BLOCKS = 2, // of columns that are converted before they are multiplied: more would come from memory in bursts
    SHORT_LARGEST = (1 << 14) - 1,
    SHORT_AHEAD = 2048, // bytes of each row that are fetched before they are needed
};
_Static_assert((int)SHORT_SUMS <= (int)VEC, "a tile's totals are a vector, and so are its scales");
_Static_assert((int64_t)LARGEST_WEIGHT *SHORT_LARGEST *(MANY_COLS / VEC) <= INT32_MAX, "sums fit in 32 bits");

// n tokens, in whole tiles: (blocks, tokens, MANY_COLS) integers, then (blocks, tokens, SHORT_ROWS) scales, each token's again and again.
VEC_INLINE int short_tokens(int n)
{
    return (n + SHORT_TILE - 1) / SHORT_TILE * SHORT_TILE;
}
VEC_INLINE float *short_scales(const void *packed, int n, int cols)
{
    return (float *)((char *)packed + panel_blocks(cols) * (size_t)short_tokens(n) * MANY_COLS * sizeof(int16_t));
}

VEC_INLINE size_t short_size(int n, int cols)
{
    return panel_blocks(cols) * (size_t)short_tokens(n) * (MANY_COLS * sizeof(int16_t) + SHORT_ROWS * sizeof(float)) +
           sizeof(float) * VEC; // a whole vector is read of the last tile's scales
}

// One block of a token; returns its scale. Where a value is not a number, or infinite, its scale is such a one.
VEC_INLINE float short_quantise(int16_t to[MANY_COLS], const float *x, int first, int cols)
{
    vec v[FIXED_VECS];
    load_block(DTYPE_FP32, v, x, first, cols - first);
    const float most = largest_magnitude(v, FIXED_VECS);
    const vec inverse = vec_set(most > least_magnitude ? SHORT_LARGEST / most : 0);
    for (int i = 0; i < FIXED_VECS; i += 2)
        store_pairs(to + i * VEC, v[i], v[i + 1], inverse);
    return most / SHORT_LARGEST;
}

VEC_INLINE void short_pack(void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    const int tokens = short_tokens(n);
    for (int first = first_col; first < last_col; first += MANY_COLS) {
        const ptrdiff_t at = (ptrdiff_t)(first / MANY_COLS) * tokens;
        int16_t *to = (int16_t *)packed + at * MANY_COLS;
        float *scales = short_scales(packed, n, cols) + at * SHORT_ROWS;
        memset(to + (ptrdiff_t)n * MANY_COLS, 0, sizeof *to * (size_t)(tokens - n) * MANY_COLS);
        memset(scales + (ptrdiff_t)n * SHORT_ROWS, 0, sizeof *scales * (size_t)(tokens - n) * SHORT_ROWS);
        for (int t = 0; t < n; t++) {
            const float scale = short_quantise(to + (ptrdiff_t)t * MANY_COLS, x + t * ldx, first, cols);
            for (int r = 0; r < SHORT_ROWS; r++)
                scales[t * SHORT_ROWS + r] = scale;
        }
    }
}

// SHORT_ROWS rows' next blocks, as integers.
struct short_weights {
    _Alignas(64) int16_t integers[SHORT_BLOCKS][SHORT_ROWS][MANY_COLS];
    // Their scales times a token's: (tiles, tokens, rows) of each block. In memory, from where a multiply-add takes a number for all lanes.
    _Alignas(64) float products[SHORT_BLOCKS][SHORT_TILES][VEC];
};

// c (tokens, rows) += a block's products.
VEC_INLINE void short_products(ivec c[SHORT_SUMS], const int16_t w[SHORT_ROWS][MANY_COLS], const int16_t *x)
{
#pragma GCC unroll 4
    for (int k = 0; k < MANY_COLS; k += 2 * VEC) {
        ivec weights[SHORT_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < SHORT_ROWS; r++)
            weights[r] = ivec_load(w[r] + k);
#pragma GCC unroll 4
        for (int t = 0; t < SHORT_TILE; t++) {
            const ivec token = ivec_load(x + (ptrdiff_t)t * MANY_COLS + k);
#pragma GCC unroll 4
            for (int r = 0; r < SHORT_ROWS; r++)
                c[t * SHORT_ROWS + r] = ivec_dot(c[t * SHORT_ROWS + r], weights[r], token);
        }
    }
}

// sums (SHORT_SUMS, VEC), of (tokens, rows), += the products of a tile of tokens and these blocks, or, where `first`, replace them. x: the tile's in the first
// block; the next block's are `tokens` tokens further. Not inlined: all registers are for the tile alone.
static __attribute__((noinline)) void short_tile(float *sums, bool first, const struct short_weights *w, int tile, int blocks,
                                                 const int16_t *x, ptrdiff_t tokens)
{
    vec f[SHORT_SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < SHORT_SUMS; i++)
        f[i] = first ? vec_zero() : vec_load(sums + i * VEC);
    for (int b = 0; b < blocks; b++, x += tokens * MANY_COLS) {
        ivec c[SHORT_SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < SHORT_SUMS; i++)
            c[i] = ivec_zero();
        short_products(c, w->integers[b], x);
#pragma GCC unroll 16
        for (int i = 0; i < SHORT_SUMS; i++)
            f[i] = vec_fma(ivec_to_float(c[i]), vec_set(w->products[b][tile][i]), f[i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SHORT_SUMS; i++)
        vec_store(sums + i * VEC, f[i]);
}

// y (n, ldy), at the first of `rows` rows = the sums' totals.
VEC_INLINE void short_outputs(float *y, ptrdiff_t ldy, const float *sums, int rows, int n)
{
    for (int t = 0; t < n; t += SHORT_TILE, sums += SHORT_SUMS * VEC) {
        vec sum[VEC];
        float totals[VEC];
#pragma GCC unroll 16
        for (int i = 0; i < VEC; i++)
            sum[i] = i < SHORT_SUMS ? vec_load(sums + i * VEC) : vec_zero();
        vec_store(totals, vec_totals(sum));
        for (int i = 0; i < SHORT_TILE && t + i < n; i++)
            memcpy(y + (t + i) * ldy, totals + i * SHORT_ROWS, sizeof *y * (size_t)rows);
    }
}

// What is SHORT_AHEAD bytes further in a row that is read SHORT_ROWS at a time.
VEC_INLINE void short_fetch(const char *row, ptrdiff_t row_bytes, ptrdiff_t at, ptrdiff_t bytes)
{
    const char *from = row + at + rows_further(at, SHORT_AHEAD, row_bytes, SHORT_ROWS);
    for (ptrdiff_t b = 0; b < bytes; b += 64)
        __builtin_prefetch(from + b);
}

// The rows' units first, then their integers: each unit is a chain of latencies. Of fewer than SHORT_ROWS rows the last stands for the others.
VEC_INLINE void short_convert(enum dtype type, struct short_weights *to, int b, const struct quant_args *a, int row, int first,
                              const float *x_scales)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type], row_bytes = a->cols * size, last = a->last_row - 1;
    struct unit units[SHORT_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < SHORT_ROWS; r++) {
        const ptrdiff_t this = row + r < last ? row + r : last;
        short_fetch((const char *)a->w + this * row_bytes, row_bytes, first * size, MANY_COLS * size);
        units[r] = block_unit(type, a, this, first);
    }
#pragma GCC unroll 4
    for (int r = 0; r < SHORT_ROWS; r++)
        block_integers(type, to->integers[b][r], units[r], a, row + r < last ? row + r : last, first);
    const vec scales = vec_repeat_four(units[0].size, units[1].size, units[2].size, units[3].size);
    for (int tile = 0; tile * SHORT_TILE < a->n; tile++)
        vec_store(to->products[b][tile], vec_mul(vec_load(x_scales + tile * SHORT_SUMS), scales));
}

// Rows from `row` on, at most SHORT_ROWS of them.
VEC_INLINE void short_rows(enum dtype type, const struct quant_args *a, int row)
{
    enum { CHUNK = SHORT_BLOCKS * MANY_COLS };
    _Alignas(64) float sums[SHORT_TILES * SHORT_SUMS * VEC];
    struct short_weights w;
    const ptrdiff_t tokens = short_tokens(a->n);
    const int16_t *x = a->x;
    const float *x_scales = short_scales(a->x, a->n, a->cols);
    for (int from = 0, blocks; from < a->cols; from += CHUNK, x += blocks * tokens * MANY_COLS) {
        blocks = 0;
        for (int first = from; first < a->cols && blocks < SHORT_BLOCKS; first += MANY_COLS, x_scales += tokens * SHORT_ROWS)
            short_convert(type, &w, blocks++, a, row, first, x_scales);
        for (int tile = 0; tile * SHORT_TILE < a->n; tile++)
            short_tile(sums + (ptrdiff_t)tile * SHORT_SUMS * VEC, from == 0, &w, tile, blocks,
                       x + (ptrdiff_t)tile * SHORT_TILE * MANY_COLS, tokens);
    }
    const int rows = a->last_row - row < SHORT_ROWS ? a->last_row - row : SHORT_ROWS;
    short_outputs(a->y + (row - a->first_row), a->ldy, sums, rows, a->n);
}
