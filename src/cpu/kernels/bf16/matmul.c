// Y = X Wᵀ for many tokens by bfloat16 dot products (AVX512-BF16): each lane does two multiply-adds, of neighbouring columns, and sums in float32.
//
// Tokens are rounded to bfloat16, and so are fp16 weights; bf16 and fp8 weights are such numbers already. Both have float32's range, so nothing
// is scaled and no sum overflows sooner than float32's own. Rounding costs at most 2^-8 of each factor. The instruction takes subnormal numbers for 0.
//
// Bound by arithmetic: 2 rows cols n operations. Blocked as in vec/matmul.h, with pairs of columns where that has columns.
#include "cpu/kernels/kernels.h"

#ifdef __AVX512BF16__
#include "cpu/kernels/avx512/kernels.h"
#include "cpu/kernels/vec/matmul.h"

enum {
    PAIR_DEPTH = 2 * DEPTH, // columns in a block: as many bytes as float32's DEPTH
    PAIRS = PAIR_DEPTH / 2,
    PAIR_TOKENS = 11 * TOKEN_GROUP, // as many as prefill evaluates at once, so that blocks are loaded once
    PAIR_SCRATCH = (int)sizeof(float) * ROW_BLOCK * (PAIRS + PAIR_TOKENS),
};

// Packed tokens: panels of VEC tokens, each (cols / 2, VEC) pairs. An odd number of blocks spreads the panels' blocks over the sets of a cache.
static ptrdiff_t pair_panel_size(int cols)
{
    const ptrdiff_t blocks = (cols + (ptrdiff_t)PAIR_DEPTH - 1) / PAIR_DEPTH;
    return (blocks | 1) * PAIRS * VEC;
}

static size_t pair_size(int n, int cols)
{
    return (size_t)((n + (ptrdiff_t)VEC - 1) / VEC * pair_panel_size(cols)) * sizeof(uint32_t);
}

// 32 elements from `at` on, n of them and zeros, to nearest even.
VEC_INLINE __m512i load_bfloats(enum dtype type, const void *from, ptrdiff_t at, int n)
{
    if (type == DTYPE_BF16)
        return _mm512_maskz_loadu_epi16(n < 2 * VEC ? (__mmask32)((1u << n) - 1) : ~(__mmask32)0, (const uint16_t *)from + at);
    vec low, high;
    if (n >= 2 * VEC) {
        low = vec_load_as(type, from, at);
        high = vec_load_as(type, from, at + VEC);
    } else {
        low = vec_load_part_as(type, from, at, n < VEC ? n : VEC);
        high = n <= VEC ? vec_zero() : vec_load_part_as(type, from, at + VEC, n - VEC);
    }
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// to (PAIRS): `depth` columns of a row, then zeros up to a whole vector.
VEC_INLINE void load_row(enum dtype type, uint32_t *to, const void *from, ptrdiff_t at, int depth)
{
    for (int k = 0; k < depth; k += 2 * VEC)
        _mm512_storeu_si512(to + k / 2, load_bfloats(type, from, at + k, depth - k));
}

static void pair_pack(void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    _Alignas(64) float rows[VEC][PAIRS]; // of pairs; they are only moved
    for (ptrdiff_t t = 0; t < n; t += VEC) {
        const int tokens = n - t < VEC ? (int)(n - t) : VEC;
        float *panel = (float *)packed + t / VEC * pair_panel_size(cols);
        memset(rows[0] + (ptrdiff_t)tokens * PAIRS, 0, sizeof rows[0] * (size_t)(VEC - tokens));
        for (int k = first_col; k < last_col; k += PAIR_DEPTH) {
            const int depth = last_col - k < PAIR_DEPTH ? last_col - k : PAIR_DEPTH;
            for (int i = 0; i < tokens; i++)
                load_row(DTYPE_FP32, (uint32_t *)rows[i], x + (t + i) * ldx + k, 0, depth);
            transpose(panel + (ptrdiff_t)k / 2 * VEC, VEC, rows[0], PAIRS, VEC, (depth + 1) / 2);
        }
    }
}

// to (rows, PAIRS) = w (rows, cols), depth columns of it from `at`; rows of zeros fill the last tile.
VEC_INLINE void pair_block(enum dtype type, uint32_t *to, const void *w, ptrdiff_t at, int rows, int cols, int depth)
{
    for (int r = 0; r < rows; r++)
        load_row(type, to + r * PAIRS, w, at + r * (ptrdiff_t)cols, depth);
    for (int r = rows; r % TILE_ROWS; r++)
        memset(to + r * PAIRS, 0, sizeof *to * PAIRS);
}

VEC_INLINE vec pair_dot(vec sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// c (TILE_ROWS, PAIR_TOKENS) = or += the products of a tile. w: (TILE_ROWS, PAIRS); x: n_vecs panels, `panel` pairs apart.
VEC_INLINE void pair_tile(int n_vecs, float *c, bool add, const uint32_t *w, const float *x, ptrdiff_t panel, int pairs)
{
    vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            sum[r][j] = vec_zero();
    for (ptrdiff_t k = 0; k < pairs; k++) {
        __m512i column[TILE_VECS];
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            column[j] = _mm512_loadu_si512(x + j * panel + k * VEC);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) {
            const __m512i weights = _mm512_set1_epi32((int)w[r * PAIRS + k]);
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                sum[r][j] = pair_dot(sum[r][j], weights, column[j]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++) {
            float *to = c + r * PAIR_TOKENS + j * VEC;
            vec_store(to, add ? vec_add(sum[r][j], vec_load(to)) : sum[r][j]);
        }
}

// c (rows, PAIR_TOKENS) = or += the block's product; x: the first panel, at the block's first column.
static void pair_multiply(float *c, bool add, const uint32_t *w, int rows, const float *x, ptrdiff_t panel, int tokens,
                          int pairs, struct block_fetch *next)
{
    for (int t = 0; t < tokens; t += TOKEN_GROUP) {
        const int left = (tokens - t + VEC - 1) / VEC;
        const float *b = x + t / VEC * panel;
        for (ptrdiff_t r = 0; r < rows; r += TILE_ROWS) {
            float *to = c + r * PAIR_TOKENS + t;
            fetch_block(next, next->rate);
            if (left >= 3)
                pair_tile(3, to, add, w + r * PAIRS, b, panel, pairs);
            else if (left == 2)
                pair_tile(2, to, add, w + r * PAIRS, b, panel, pairs);
            else
                pair_tile(1, to, add, w + r * PAIRS, b, panel, pairs);
        }
    }
}

// Rows [r0, r0 + rows), tokens [t0, t0 + tokens).
VEC_INLINE void pair_rows(enum dtype type, const struct matmul_args *m, int r0, int rows, int t0, int tokens)
{
    float *c = m->scratch;
    uint32_t *w = (uint32_t *)(c + (ptrdiff_t)ROW_BLOCK * PAIR_TOKENS);
    const ptrdiff_t panel = pair_panel_size(m->cols);
    const float *panels = (const float *)m->packed + t0 / VEC * panel;
    const int n_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * ((tokens + TOKEN_GROUP - 1) / TOKEN_GROUP);
    for (int k = 0; k < m->cols; k += PAIR_DEPTH) {
        const int depth = m->cols - k < PAIR_DEPTH ? m->cols - k : PAIR_DEPTH;
        pair_block(type, w, m->w, (ptrdiff_t)r0 * m->cols + k, rows, m->cols, depth);
        struct block_fetch next = fetch_after(type, m, r0, rows, k, depth, PAIR_DEPTH);
        next.rate = n_tiles > 0 ? (int)(next.rows * ((next.bytes + 63) / 64) + n_tiles - 1) / n_tiles : 0;
        pair_multiply(c, k > 0, w, rows, panels + (ptrdiff_t)k / 2 * VEC, panel, tokens, (depth + 1) / 2, &next);
    }
    transpose(m->y + t0 * m->ldy + (r0 - m->first_row), m->ldy, c, PAIR_TOKENS, rows, tokens);
}

VEC_INLINE void pair_matmul(enum dtype type, const struct matmul_args *m)
{
    // Token blocks of about equal size, in whole tiles.
    const int n_blocks = (m->n + PAIR_TOKENS - 1) / PAIR_TOKENS, groups = (m->n + TOKEN_GROUP - 1) / TOKEN_GROUP;
    const int per_block = n_blocks ? (groups + n_blocks - 1) / n_blocks * TOKEN_GROUP : 0;
    for (int t = 0; t < m->n; t += per_block)
        for (int r = m->first_row; r < m->last_row; r += ROW_BLOCK)
            pair_rows(type, m, r, m->last_row - r < ROW_BLOCK ? m->last_row - r : ROW_BLOCK, t,
                      m->n - t < per_block ? m->n - t : per_block);
}

static void pair_matmul_fp16(const struct matmul_args *args)
{
    pair_matmul(DTYPE_FP16, args);
}
static void pair_matmul_bf16(const struct matmul_args *args)
{
    pair_matmul(DTYPE_BF16, args);
}
static void pair_matmul_fp8(const struct matmul_args *args)
{
    pair_matmul(DTYPE_FP8, args);
}
static void pair_matmul_fp8_e5m2(const struct matmul_args *args)
{
    pair_matmul(DTYPE_FP8_E5M2, args);
}

static double pair_fma_loop(long rounds)
{
    enum { CHAINS = 16 };
    vec sum[CHAINS];
    const __m512i a = _mm512_set1_epi16(0x3f7f), b = _mm512_set1_epi16(0x0080); // just below 1, and the least normal number
    for (int i = 0; i < CHAINS; i++)
        sum[i] = vec_set((float)i);
    for (long i = 0; i < rounds; i++)
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++)
            sum[j] = pair_dot(sum[j], a, b);
    for (int i = 1; i < CHAINS; i++)
        sum[0] = vec_add(sum[0], sum[i]);
    volatile double sink = (double)_mm512_reduce_add_ps(sum[0]); // so that it is not in vain
    (void)sink;
    return 4.0 * VEC * CHAINS * (double)rounds;
}

static const struct half_kernels kernels = {
    .size = pair_size,
    .pack = pair_pack,
    .product = {[DTYPE_FP16] = pair_matmul_fp16,
                [DTYPE_BF16] = pair_matmul_bf16,
                [DTYPE_FP8] = pair_matmul_fp8,
                [DTYPE_FP8_E5M2] = pair_matmul_fp8_e5m2},
    .scratch = PAIR_SCRATCH,
    .least = 25, // measured on a Zen 5
    .few = &half_kernels_avx512vnni,
    .rows = ROW_BLOCK,
    .fma_loop = pair_fma_loop,
};

const struct half_kernels *const half_kernels_avx512bf16 = &kernels;
#else
const struct half_kernels *const half_kernels_avx512bf16 = NULL;
#endif
