// Y = X Wᵀ for many tokens, for either vector width; included by matmul.c.
//
// Bound by arithmetic: 2 rows cols n operations. Blocks after Goto and van de Geijn (2008): a block of W, (ROW_BLOCK, DEPTH),
// is converted to float32 once for TOKEN_BLOCK tokens and stays in L2; TILE_VECS panels of packed tokens, DEPTH deep, stay in
// L1 while all rows of the block pass over them; the products of a tile stay in registers. Sums over the columns are gathered
// in scratch, rows outermost, and turned to Y's layout once. While a block is multiplied, the next one is fetched from memory.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec/math.h"

enum {
    DEPTH = 128,                      // columns in a block
    ROW_BLOCK = VEC == 16 ? 128 : 64, // rows
    TOKEN_GROUP = TILE_VECS * VEC,    // tokens in a tile
    TOKEN_BLOCK = 8 * TOKEN_GROUP,    // tokens
    MATMUL_SCRATCH = (int)sizeof(float) * ROW_BLOCK * (DEPTH + TOKEN_BLOCK),
};

// Packed tokens: panels of VEC tokens, each (cols, VEC) and `panel` floats long. An odd number of blocks in a panel spreads the
// panels' blocks over the sets of a cache.
VEC_INLINE ptrdiff_t panel_size(int cols)
{
    const ptrdiff_t blocks = (cols + (ptrdiff_t)DEPTH - 1) / DEPTH;
    return (blocks | 1) * DEPTH * VEC;
}

VEC_INLINE size_t packed_size(int n, int cols)
{
    return (size_t)((n + (ptrdiff_t)VEC - 1) / VEC * panel_size(cols));
}

VEC_INLINE void pack_tokens(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (ptrdiff_t t = 0; t < n; t += VEC) {
        const int tokens = n - t < VEC ? (int)(n - t) : VEC;
        float *to = packed + t / VEC * panel_size(cols) + (ptrdiff_t)first_col * VEC;
        if (tokens < VEC)
            memset(to, 0, sizeof(float) * VEC * (size_t)(last_col - first_col));
        transpose(to, VEC, x + t * ldx + first_col, ldx, tokens, last_col - first_col);
    }
}

// to (rows, DEPTH) = w (rows, cols), depth columns of it from `at`; rows of zeros fill the last tile.
VEC_INLINE void convert_block(enum dtype type, float *to, const void *w, ptrdiff_t at, int rows, int cols, int depth)
{
    for (int r = 0; r < rows; r++) {
        int k = 0;
        for (; k + VEC <= depth; k += VEC)
            vec_store(to + r * DEPTH + k, vec_load_as(type, w, at + r * (ptrdiff_t)cols + k));
        if (k < depth)
            vec_store(to + r * DEPTH + k, vec_load_part_as(type, w, at + r * (ptrdiff_t)cols + k, depth - k));
    }
    for (int r = rows; r % TILE_ROWS; r++)
        memset(to + r * DEPTH, 0, sizeof(float) * DEPTH);
}

// A walk over the cache lines of a block of W that is needed next: (rows, bytes) with rows `stride` bytes apart.
struct block_fetch {
    const char *at;
    ptrdiff_t stride, bytes, offset;
    int rows;
    int rate; // lines to fetch at each tile
};

VEC_INLINE void fetch_block(struct block_fetch *f, int n)
{
    for (; n > 0 && f->rows > 0; n--) {
        __builtin_prefetch(f->at + f->offset, 0, 2);
        f->offset += 64;
        if (f->offset >= f->bytes) {
            f->offset = 0;
            f->at += f->stride;
            f->rows--;
        }
    }
}

// The block after columns [k, k + depth) of rows [r0, r0 + rows): beside it, or where the rows end at the beginning of those
// that come next. Blocks have at most `most` columns.
VEC_INLINE struct block_fetch fetch_after(enum dtype type, const struct product_args *m, int r0, int rows, int k, int depth,
                                          int most)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type];
    const bool ends = k + depth == m->cols;
    const int first = ends ? r0 + rows : r0, left = ends ? m->last_row - first : rows;
    const int col = ends ? 0 : k + depth, cols = m->cols - col < most ? m->cols - col : most;
    return (struct block_fetch){
        .at = (const char *)m->w + ((ptrdiff_t)first * m->cols + col) * size,
        .stride = m->cols * size,
        .bytes = cols * size,
        .rows = left < ROW_BLOCK ? left : ROW_BLOCK,
    };
}

// c (rows, TOKEN_BLOCK) = or += the block's product; x: the first panel, at the block's first column.
VEC_INLINE void multiply_block(float *c, bool add, const float *w, int rows, const float *x, ptrdiff_t panel, int tokens,
                               int depth, struct block_fetch *next)
{
    for (int t = 0; t < tokens; t += TOKEN_GROUP) {
        const int left = (tokens - t + VEC - 1) / VEC, n_vecs = left < TILE_VECS ? left : TILE_VECS;
        const float *b = x + t / VEC * panel;
        for (int r = 0; r < rows; r += TILE_ROWS) {
            fetch_block(next, next->rate);
            tile(n_vecs, c + (ptrdiff_t)r * TOKEN_BLOCK + t, TOKEN_BLOCK, TILE_ROWS, n_vecs * VEC, add,
                 w + (ptrdiff_t)r * DEPTH, DEPTH, b, panel, depth);
        }
    }
}

// Rows [r0, r0 + rows), tokens [t0, t0 + tokens).
VEC_INLINE void multiply_rows(enum dtype type, const struct product_args *m, int r0, int rows, int t0, int tokens)
{
    float *w = m->scratch, *c = w + (ptrdiff_t)ROW_BLOCK * DEPTH;
    const float *packed = m->x;
    const ptrdiff_t panel = panel_size(m->cols);
    for (int k = 0; k < m->cols; k += DEPTH) {
        const int depth = m->cols - k < DEPTH ? m->cols - k : DEPTH;
        convert_block(type, w, m->w, (ptrdiff_t)r0 * m->cols + k, rows, m->cols, depth);
        struct block_fetch next = fetch_after(type, m, r0, rows, k, depth, DEPTH);
        const int n_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * ((tokens + TOKEN_GROUP - 1) / TOKEN_GROUP);
        next.rate = n_tiles > 0 ? (int)(next.rows * ((next.bytes + 63) / 64) + n_tiles - 1) / n_tiles : 0;
        multiply_block(c, k > 0, w, rows, packed + t0 / VEC * panel + (ptrdiff_t)k * VEC, panel, tokens, depth, &next);
    }
    transpose(m->y + t0 * m->ldy + (r0 - m->first_row), m->ldy, c, TOKEN_BLOCK, rows, tokens);
}

VEC_INLINE void matmul(enum dtype type, const struct product_args *m)
{
    // Token blocks of about equal size, in whole groups.
    const int n_blocks = (m->n + TOKEN_BLOCK - 1) / TOKEN_BLOCK, groups = (m->n + TOKEN_GROUP - 1) / TOKEN_GROUP;
    const int per_block = n_blocks ? (groups + n_blocks - 1) / n_blocks * TOKEN_GROUP : 0;
    for (int t = 0; t < m->n; t += per_block)
        for (int r = m->first_row; r < m->last_row; r += ROW_BLOCK)
            multiply_rows(type, m, r, m->last_row - r < ROW_BLOCK ? m->last_row - r : ROW_BLOCK, t,
                          m->n - t < per_block ? m->n - t : per_block);
}
