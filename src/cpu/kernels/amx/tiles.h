// What the two files of tile kernels share (amx/*.c): blocks, their way through the caches, and sums' way to Y.
//
// Blocks after Goto and van de Geijn (2008). A block of W, TALL rows, becomes tiles in L2. Its pairs of rows' tiles pass over a
// pair of panels of tokens in L1. Sums stay in L2 from block to block of columns, in tiles too.
#pragma once
#include "cpu/kernels/kernels.h"

#if (defined __AMX_BF16__ || defined __AMXBF16__) && (defined __AMX_INT8__ || defined __AMXINT8__) // the latter older clang's
#define HAS_TILES 1
#endif
#if defined __has_feature
#if __has_feature(memory_sanitizer) // does not know that tiles are stored
#undef HAS_TILES
#endif
#endif

#ifdef HAS_TILES
#include "cpu/kernels/vec/matmul.h"

enum {
    SIDE = 16,              // rows of W, or tokens, of a tile
    TILE_BYTES = 64 * SIDE, // of any tile
    PAIR = 2 * SIDE,        // rows, and tokens, of what is summed in four tiles together
    TALL = 256,             // rows of W in a block
    MANY = 512,             // tokens
};

// Panels of tokens are an odd number of blocks of 4 KiB apart, so that they do not share the sets of a cache.
VEC_INLINE ptrdiff_t odd_pages(ptrdiff_t bytes)
{
    return ((bytes + 4095) / 4096 | 1) * 4096;
}

// Of n tokens: blocks of about equal size, in whole pairs.
VEC_INLINE int tokens_a_block(int n)
{
    const int n_blocks = (n + MANY - 1) / MANY, pairs = (n + PAIR - 1) / PAIR;
    return n_blocks ? (pairs + n_blocks - 1) / n_blocks * PAIR : 0;
}

// Rows of a block of W. Of few tokens memory binds, which gives a few rows from beginning to end faster than pieces of many.
VEC_INLINE int rows_a_block(int n)
{
    return n <= PAIR ? PAIR : TALL;
}

// Bytes from row to row; and of `cols` columns, of a quantised type in its first plane. Scales are elsewhere.
VEC_INLINE ptrdiff_t elements_bytes(enum dtype type, ptrdiff_t cols)
{
    if (dtype_group_bytes[type])
        return (ptrdiff_t)quant_groups((int)cols) * (ptrdiff_t)dtype_group_bytes[type];
    return cols * (ptrdiff_t)dtype_sizes[type];
}
VEC_INLINE ptrdiff_t plane_bytes(enum dtype type, ptrdiff_t cols)
{
    return dtype_group_bytes[type] ? (ptrdiff_t)(quant_groups((int)cols) * dtype_low_bytes(type)) : elements_bytes(type, cols);
}

// What is fetched while four tiles are summed, a little at each step.
struct fetches {
    struct block_fetch *w; // of the block of W that comes next, from memory
    const char
        *panel;      // these rows' share of the tokens that come next, from wherever they are: `lines` a step from both panels
    ptrdiff_t apart; // of the panels, bytes
    int lines;
    float *y; // where the sums go in the end: (tokens, ldy); in the last block, else no tokens
    ptrdiff_t ldy;
    int tokens, steps;
};

VEC_INLINE void fetch_step(const struct fetches *f, int step)
{
    fetch_block(f->w, f->w->rate);
    for (int i = 0; i < f->lines; i++)
        for (int j = 0; j < 2; j++)
            __builtin_prefetch(f->panel + j * f->apart + (step * (ptrdiff_t)f->lines + i) * 64, 0, 2);
    for (int t = step; t < f->tokens; t += f->steps) {
        __builtin_prefetch(f->y + t * f->ldy, 1);
        __builtin_prefetch(f->y + t * f->ldy + SIDE, 1);
        __builtin_prefetch(f->y + t * f->ldy + PAIR - 1, 1);
    }
}

// The block after columns [k, k + depth) of rows [r0, r0 + rows), as fetch_after() has it; `turns`: at how many steps it is
// fetched.
VEC_INLINE struct block_fetch fetch_tiles(enum dtype type, const struct product_args *m, int r0, int rows, int k, int depth,
                                          int deep, int turns)
{
    const bool ends = k + depth == m->cols;
    const int first = ends ? r0 + rows : r0, left = ends ? m->last_row - first : rows;
    const int col = ends ? 0 : k + depth, cols = m->cols - col < deep ? m->cols - col : deep;
    struct block_fetch next = {
        .at = (const char *)m->w + first * elements_bytes(type, m->cols) + plane_bytes(type, col),
        .stride = elements_bytes(type, m->cols),
        .bytes = plane_bytes(type, cols),
        .rows = left < rows_a_block(m->n) ? left : rows_a_block(m->n),
    };
    next.rate = turns > 0 ? (int)((next.rows * ((next.bytes + 63) / 64) + turns - 1) / turns) : 0;
    return next;
}

// A block of products: rows [r0, r0 + rows), tokens [t0, t0 + tokens), `steps` tiles of columns, the last ones of W or not.
struct block {
    const struct product_args *m;
    int r0, rows, t0, tokens;
    bool ends;
    int steps, step_lines;   // of a panel, cache lines a step
    ptrdiff_t panel;         // bytes from panel to panel
    const char *x, *x_after; // the first panel, from this block's columns and from those that come next
};

// While pair r of row tiles passes over pair t of panels.
VEC_INLINE struct fetches block_fetches(const struct block *b, struct block_fetch *next, int t, int r)
{
    const int row_pairs = (b->rows + PAIR - 1) / PAIR, left = b->tokens - t * PAIR,
              lines = (b->step_lines + row_pairs - 1) / row_pairs;
    return (struct fetches){
        .w = next,
        .panel = (left > PAIR ? b->x + 2 * (t + 1) * b->panel : b->x_after) + (ptrdiff_t)r * lines * b->steps * 64,
        .apart = b->panel,
        .lines = lines,
        .y = b->m->y + (b->t0 + (ptrdiff_t)t * PAIR) * b->m->ldy + (b->r0 - b->m->first_row + (ptrdiff_t)r * PAIR),
        .ldy = b->m->ldy,
        .tokens = !b->ends      ? 0
                  : left < PAIR ? left
                                : PAIR,
        .steps = b->steps,
    };
}

// to (SIDE, SIDE) = fromᵀ, in registers.
VEC_INLINE void transpose_tile(float *to, ptrdiff_t ldto, const float *from, int rows, int cols)
{
    if (rows < SIDE || cols < SIDE) {
        transpose(to, ldto, from, SIDE, rows, cols);
        return;
    }
    __m512 a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        const __m512 even = _mm512_load_ps(from + i * SIDE), odd = _mm512_load_ps(from + (i + 1) * SIDE);
        b[i] = _mm512_unpacklo_ps(even, odd);
        b[i + 1] = _mm512_unpackhi_ps(even, odd);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = (__m512)_mm512_unpacklo_pd((__m512d)b[i + j], (__m512d)b[i + j + 2]);
            a[i + 2 * j + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[i + j], (__m512d)b[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) { // columns i, i + 4, i + 8, i + 12
        const __m512 lanes[2][2] = {
            {_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88)},
            {_mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd), _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd)}};
        for (int j = 0; j < 2; j++) {
            _mm512_storeu_ps(to + (i + 4 * j) * ldto, _mm512_shuffle_f32x4(lanes[j][0], lanes[j][1], 0x88));
            _mm512_storeu_ps(to + (i + 4 * j + 8) * ldto, _mm512_shuffle_f32x4(lanes[j][0], lanes[j][1], 0xdd));
        }
    }
}

// Tile i of four, two rows' and two tokens', goes to y (tokens, ldy), turned round. Rows and tokens: that y has; they may be
// fewer than the tiles', or more.
VEC_INLINE void store_tile(float *y, ptrdiff_t ldy, int i, const float *tile, int rows, int tokens)
{
    rows -= i / 2 * SIDE;
    tokens -= i % 2 * SIDE;
    if (rows > 0 && tokens > 0)
        transpose_tile(y + i % 2 * SIDE * ldy + (ptrdiff_t)(i / 2) * SIDE, ldy, tile, rows < SIDE ? rows : SIDE,
                       tokens < SIDE ? tokens : SIDE);
}

// gcc 12's intrinsics do not say what memory they read.
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

// Eight tiles of 16 rows of 64 bytes. They are given back at the end: what they hold would be saved at every switch of threads.
VEC_INLINE void configure_tiles(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = SIDE;
    }
    __asm__ volatile("ldtilecfg %0"
                     :
                     : "m"(config)); // gcc 12's intrinsic says that it reads the first 8 bytes, and the others may go unwritten
}

// fma_loop() of an instruction that multiplies tiles, which have STEP columns.
#define TILES_LOOP(multiply)                                                                                                   \
    static double tiles_loop(long rounds)                                                                                      \
    {                                                                                                                          \
        configure_tiles();                                                                                                     \
        _tile_zero(0);                                                                                                         \
        _tile_zero(1);                                                                                                         \
        _tile_zero(2);                                                                                                         \
        _tile_zero(3);                                                                                                         \
        _tile_zero(4);                                                                                                         \
        _tile_zero(5);                                                                                                         \
        for (long i = 0; i < rounds; i++) {                                                                                    \
            multiply(0, 4, 5);                                                                                                 \
            multiply(1, 4, 5);                                                                                                 \
            multiply(2, 4, 5);                                                                                                 \
            multiply(3, 4, 5);                                                                                                 \
        }                                                                                                                      \
        _tile_release();                                                                                                       \
        return 4.0 * 2 * SIDE * SIDE * STEP * (double)rounds;                                                                  \
    }
#endif
