// Products of up to 28 tokens with fp16, bf16 and fp8 matrices in 16-bit integers, with AVX-512 (F, BW, DQ, VL) and VNNI.
//
// A tile of many tokens (vec/quant_many.h) multiplies a vector of them at a time, from blocks of W that are converted before.
// Of a few tokens most of the work is converting and waiting for memory. So here W is read as in decode: a few rows together
// from their beginning to their end. A block of 256 columns is converted into the L1 cache and multiplied with all tokens,
// along the columns. A lane has 16 columns of its own, whose sum stays in integers. So a token's magnitudes may add up to 2^17
// in any lane's columns, as they may in any 32 columns there.
#include "cpu/kernels/vnni/fixed.h"

enum {
    SHORT_TOKENS = 28, // at most
    SHORT_ROWS = 4,    // of W, and
    SHORT_TILE = 3,    // tokens, or one less, that are multiplied together: 12 sums
    SHORT_COLS = 256,  // of a block
    SHORT_VECS = SHORT_COLS / VEC,
    SHORT_AHEAD = 2048,         // bytes of each row that are fetched before they are needed
    AT_ONCE = VEC / SHORT_ROWS, // tokens whose totals, or scales, of these rows are a vector
};
_Static_assert((int64_t)LARGEST_WEIGHT *(LARGEST_SUM + SHORT_COLS / VEC / 2) <= INT32_MAX, "sums fit in 32 bits");

// n tokens, two at least: (blocks, tokens, SHORT_COLS) integers, then (blocks, tokens, SHORT_ROWS) scales, each token's again
// and again.
VEC_INLINE int short_tokens(int n)
{
    return n > 2 ? n : 2;
}
VEC_INLINE size_t short_blocks(int cols)
{
    return ((size_t)cols + SHORT_COLS - 1) / SHORT_COLS;
}
VEC_INLINE float *short_scales(const void *packed, int n, int cols)
{
    return (float *)((char *)packed + short_blocks(cols) * (size_t)short_tokens(n) * SHORT_COLS * sizeof(int16_t));
}

VEC_INLINE size_t short_size(int n, int cols)
{
    return short_blocks(cols) * (size_t)short_tokens(n) * (SHORT_COLS * sizeof(int16_t) + SHORT_ROWS * sizeof(float)) +
           sizeof(float) * VEC; // a whole vector is read of the last tokens' scales
}

// The largest sum of |x| inverse that a lane's products have: of neighbouring columns in each 32.
VEC_INLINE float short_largest_sum(const vec v[SHORT_VECS], vec inverse)
{
    vec sums[2] = {vec_zero(), vec_zero()};
#pragma GCC unroll 16
    for (int i = 0; i < SHORT_VECS; i++)
        sums[i % 2] = vec_fma(vec_abs(v[i]), inverse, sums[i % 2]);
    for (int i = 0; i < 2; i++)
        sums[i] = vec_add(sums[i], _mm512_permute_ps(sums[i], 0xb1));
    return _mm512_reduce_max_ps(vec_max(sums[0], sums[1]));
}

// One block of a token; returns its unit. Where a value is not a number, or infinite, its unit is such a one.
VEC_INLINE float short_quantise(int16_t to[SHORT_COLS], const float *x, int first, int cols)
{
    vec v[SHORT_VECS];
    for (int i = 0; i < SHORT_VECS; i++) {
        const int left = cols - first - i * VEC;
        v[i] = left >= VEC ? vec_load(x + first + i * VEC) : left > 0 ? vec_load_part(x + first + i * VEC, left) : vec_zero();
    }
    const float most = largest_magnitude(v, SHORT_VECS), of_one = most > least_magnitude ? 1 / most : 0;
    const float sum = short_largest_sum(v, vec_set(of_one)),
                least = (float)LARGEST_SUM / LARGEST_VALUE; // so that no value passes LARGEST_VALUE
    const float largest = sum > least ? sum : least;
    const vec inverse = vec_set(of_one * (LARGEST_SUM / largest));
    for (int i = 0; i < SHORT_VECS; i += 2)
        store_in_order(to + i * VEC, v[i], v[i + 1], inverse);
    return most * (largest * (1.0f / LARGEST_SUM));
}

VEC_INLINE void short_pack(void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    const int tokens = short_tokens(n);
    for (int first = first_col; first < last_col; first += SHORT_COLS) {
        const ptrdiff_t at = (ptrdiff_t)(first / SHORT_COLS) * tokens;
        int16_t *to = (int16_t *)packed + at * SHORT_COLS;
        float *scales = short_scales(packed, n, cols) + at * SHORT_ROWS;
        memset(to + (ptrdiff_t)n * SHORT_COLS, 0, sizeof *to * (size_t)(tokens - n) * SHORT_COLS);
        memset(scales + (ptrdiff_t)n * SHORT_ROWS, 0, sizeof *scales * (size_t)(tokens - n) * SHORT_ROWS);
        for (int t = 0; t < n; t++) {
            const float scale = short_quantise(to + (ptrdiff_t)t * SHORT_COLS, x + t * ldx, first, cols);
            for (int r = 0; r < SHORT_ROWS; r++)
                scales[t * SHORT_ROWS + r] = scale;
        }
    }
}

// A block of SHORT_ROWS rows as integers.
struct short_weights {
    _Alignas(64) int16_t integers[SHORT_ROWS][SHORT_COLS];
    // Their units times the tokens' scales: (tokens, rows). In memory, from where a multiply-add takes a number for all lanes.
    _Alignas(64) float scales[SHORT_TOKENS * SHORT_ROWS];
};

// sums (tokens, rows, VEC) += the products of n_tokens tokens and the block, or, where `first`, replace them. n_tokens is a
// constant where this is inlined.
VEC_INLINE void short_tile(int n_tokens, float *sums, bool first, const int16_t w[SHORT_ROWS][SHORT_COLS], const float *scales,
                           const int16_t *x)
{
    ivec c[SHORT_TILE * SHORT_ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < n_tokens * SHORT_ROWS; i++)
        c[i] = ivec_zero();
#pragma GCC unroll 2
    for (int k = 0; k < SHORT_COLS; k += 2 * VEC) {
        ivec weights[SHORT_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < SHORT_ROWS; r++)
            weights[r] = ivec_load(w[r] + k);
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++) {
            const ivec token = ivec_load(x + (ptrdiff_t)t * SHORT_COLS + k);
#pragma GCC unroll 4
            for (int r = 0; r < SHORT_ROWS; r++)
                c[t * SHORT_ROWS + r] = ivec_dot(c[t * SHORT_ROWS + r], weights[r], token);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_tokens * SHORT_ROWS; i++) {
        const vec sum = first ? vec_zero() : vec_load(sums + i * VEC);
        vec_store(sums + i * VEC, vec_fma(ivec_to_float(c[i]), vec_set(scales[i]), sum));
    }
}

// y (n, ldy), at the first of `rows` rows = the sums' totals.
VEC_INLINE void short_outputs(float *y, ptrdiff_t ldy, const float *sums, int rows, int n)
{
    for (int t = 0; t < n; t += AT_ONCE, sums += VEC * VEC) {
        vec sum[VEC];
        float totals[VEC];
#pragma GCC unroll 16
        for (int i = 0; i < VEC; i++)
            sum[i] = t + i / SHORT_ROWS < n ? vec_load(sums + i * VEC) : vec_zero();
        vec_store(totals, vec_totals(sum));
        for (int i = 0; i < AT_ONCE && t + i < n; i++)
            memcpy(y + (t + i) * ldy, totals + i * SHORT_ROWS, sizeof *y * (size_t)rows);
    }
}

// A block of SHORT_ROWS rows, in memory.
struct short_rows {
    const char *at;  // the first row's
    ptrdiff_t apart; // bytes from row to row
    int n;           // rows that there are: of fewer than SHORT_ROWS the last stands for the others
    int cols;        // columns that are left
};
VEC_INLINE struct short_rows short_rows_at(enum dtype type, const struct product_args *a, int row, int col)
{
    return (struct short_rows){.at = block_at(type, a, row, col),
                               .apart = a->cols * (ptrdiff_t)dtype_sizes[type],
                               .n = a->last_row - row,
                               .cols = a->cols - col};
}
VEC_INLINE const char *short_row(const struct short_rows *rows, int r)
{
    return rows->at + (r < rows->n ? r : rows->n - 1) * rows->apart;
}

VEC_INLINE void short_look(enum dtype type, int largest[SHORT_ROWS], const struct short_rows *rows)
{
#pragma GCC unroll 4
    for (int r = 0; r < SHORT_ROWS; r++)
        largest[r] = block_largest(type, short_row(rows, r), rows->cols, SHORT_COLS);
}

// Converts the rows to integers; returns their units, again and again. largest: short_look() at the rows, and afterwards at
// `next`, which comes after them. Each look is a chain of latencies, which pass while this block is multiplied. What is `ahead`
// bytes further in each row is fetched.
VEC_INLINE vec short_convert(enum dtype type, int16_t to[SHORT_ROWS][SHORT_COLS], int largest[SHORT_ROWS],
                             const struct short_rows *rows, const struct short_rows *next, ptrdiff_t ahead)
{
    float units[SHORT_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < SHORT_ROWS; r++) {
        const char *at = short_row(rows, r);
#pragma GCC unroll 8
        for (ptrdiff_t b = 0; b < SHORT_COLS * (ptrdiff_t)dtype_sizes[type]; b += 64)
            __builtin_prefetch(at + ahead + b);
        units[r] = block_integers(type, to[r], at, rows->cols, SHORT_COLS, largest[r]);
    }
    short_look(type, largest, next);
    return vec_repeat_four(units[0], units[1], units[2], units[3]);
}

// Not inlined: what is constant has a register then.
static __attribute__((noinline)) vec short_convert_any(enum dtype type, int16_t to[SHORT_ROWS][SHORT_COLS],
                                                       int largest[SHORT_ROWS], const struct short_rows *rows,
                                                       const struct short_rows *next, ptrdiff_t ahead)
{
    return type == DTYPE_FP16   ? short_convert(DTYPE_FP16, to, largest, rows, next, ahead)
           : type == DTYPE_BF16 ? short_convert(DTYPE_BF16, to, largest, rows, next, ahead)
           : type == DTYPE_FP8  ? short_convert(DTYPE_FP8, to, largest, rows, next, ahead)
                                : short_convert(DTYPE_FP8_E5M2, to, largest, rows, next, ahead);
}

// All tokens' tiles of a block: of three tokens, and what is left over of two. Not inlined: all registers are for a tile alone.
static __attribute__((noinline)) void short_block(float *sums, const struct short_weights *w, bool first, const int16_t *x,
                                                  int tokens)
{
    const int twos = (SHORT_TILE - tokens % SHORT_TILE) % SHORT_TILE, in_threes = tokens - 2 * twos;
    int t = 0;
    for (; t < in_threes; t += SHORT_TILE)
        short_tile(SHORT_TILE, sums + t * SHORT_ROWS * VEC, first, w->integers, w->scales + t * SHORT_ROWS,
                   x + (ptrdiff_t)t * SHORT_COLS);
    for (; t < tokens; t += SHORT_TILE - 1)
        short_tile(SHORT_TILE - 1, sums + t * SHORT_ROWS * VEC, first, w->integers, w->scales + t * SHORT_ROWS,
                   x + (ptrdiff_t)t * SHORT_COLS);
}

VEC_INLINE void short_product(enum dtype type, const struct product_args *a)
{
    if (a->first_row == a->last_row)
        return;
    _Alignas(64) float sums[SHORT_TOKENS * SHORT_ROWS * VEC];
    struct short_weights w;
    int largest[SHORT_ROWS];
    const ptrdiff_t tokens = short_tokens(a->n), size = (ptrdiff_t)dtype_sizes[type], row_bytes = a->cols * size;
    struct short_rows rows = short_rows_at(type, a, a->first_row, 0);
    short_look(type, largest, &rows);
    for (int row = a->first_row; row < a->last_row; row += SHORT_ROWS) {
        const int16_t *x = a->x;
        const float *x_scales = short_scales(a->x, a->n, a->cols);
        for (int col = 0; col < a->cols; col += SHORT_COLS, x += tokens * SHORT_COLS, x_scales += tokens * SHORT_ROWS) {
            const struct short_rows next = col + SHORT_COLS < a->cols       ? short_rows_at(type, a, row, col + SHORT_COLS)
                                           : row + SHORT_ROWS < a->last_row ? short_rows_at(type, a, row + SHORT_ROWS, 0)
                                                                            : rows;
            const vec units = short_convert_any(type, w.integers, largest, &rows, &next,
                                                rows_further(col * size, SHORT_AHEAD, row_bytes, SHORT_ROWS));
            for (int t = 0; t < a->n; t += AT_ONCE)
                vec_store(w.scales + t * SHORT_ROWS, vec_mul(vec_load(x_scales + t * SHORT_ROWS), units));
            short_block(sums, &w, col == 0, x, (int)tokens);
            rows = next;
        }
        short_outputs(a->y + (row - a->first_row), a->ldy, sums,
                      a->last_row - row < SHORT_ROWS ? a->last_row - row : SHORT_ROWS, a->n);
    }
}

FIXED_PRODUCTS(short_product)

const struct matmul16 matmul16_short = {
    .name = "16-bit integers",
    .size = short_size,
    .pack = short_pack,
    .product = FIXED_TABLE,
    .rows = MANY_ROWS,
    .most = SHORT_TOKENS,
    .fma_loop = fixed_dot_loop,
};
