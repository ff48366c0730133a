// y[t, r] = W[r] · x[t] for a few tokens, for either vector width; included by matvec.c.
//
// Bound by reading W, once: rows one after another, prefetched across the ends of rows. Types narrower than fp32 are read in
// two streams, one for each half of a call's rows. (On an Emerald Rapids Xeon two streams read fp16 at 93 to 95 % of the limit
// where one had 89; a Zen 5 EPYC read both at one speed.) A result has SPLIT vectors of running sums over the columns, in their
// order, however rows are shared among threads and however many tokens come along.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec/vec.h"

enum {
    // Bytes, in each stream, to L1. 6144, beside 22 KB of x where a row has 5,632 columns, were more than 48 KiB of it keep.
    AHEAD = 3072,
    BYTES_AHEAD = 2048,           // likewise, of fp8
    AHEAD_TO_L2 = 8192,           // likewise, of all types
    SPLIT = VEC == 16 ? 2 : 4,    // chains of additions for one row and token: enough to keep up with memory
    TOGETHER = VEC == 16 ? 4 : 3, // tokens whose sums fit in the registers
    MATVEC_MAX = 8,
    WIDE_FROM = 44 << 10, // bytes of tokens; where 40 KiB of 48 are theirs, reading the rows again is faster
};

// n_rows rows, `apart` rows from one to the next, with n_tokens <= TOGETHER tokens; n_rows and n_tokens are constants where
// this is inlined.
VEC_INLINE void matvec_tile(enum dtype type, int n_rows, int apart, int n_tokens, bool fetch, bool to_l2, float *y,
                            ptrdiff_t ldy, const char *row, int cols, const float *x, ptrdiff_t ldx)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type], row_bytes = apart * cols * size,
                    ahead = to_l2 ? AHEAD_TO_L2 : (size == 1 ? BYTES_AHEAD : AHEAD);
    const int step = (size == 1 ? 2 : 1) * SPLIT * VEC, lines = (int)(step * size / 64);
    vec sum[2][TOGETHER][SPLIT];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
            for (int i = 0; i < SPLIT; i++)
                sum[r][t][i] = vec_zero();
    ptrdiff_t c = 0;
    for (; c + step <= cols; c += step) {
        if (fetch) {
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
                for (int line = 0; line < lines; line++)
                    fetch_line(row + r * row_bytes + c * size + ahead + 64 * (ptrdiff_t)line, to_l2);
        }
#pragma GCC unroll 8
        for (int i = 0; i < step / VEC; i++) {
            vec w[2];
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++)
                w[r] = vec_load_unit(type, row + r * row_bytes, c + i * VEC);
#pragma GCC unroll 4
            for (int t = 0; t < n_tokens; t++) {
                const vec token = vec_load(x + t * ldx + c + i * VEC);
#pragma GCC unroll 2
                for (int r = 0; r < n_rows; r++)
                    sum[r][t][i % SPLIT] = vec_fma(w[r], token, sum[r][t][i % SPLIT]);
            }
        }
    }
    for (; c < cols; c += VEC) {
        const int n = cols - c < VEC ? (int)(cols - c) : VEC;
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++) {
            const vec w = vec_load_part_unit(type, row + r * row_bytes, c, n);
#pragma GCC unroll 4
            for (int t = 0; t < n_tokens; t++)
                sum[r][t][0] = vec_fma(w, vec_load_part(x + t * ldx + c, n), sum[r][t][0]);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++) {
            vec all = sum[r][t][0];
#pragma GCC unroll 4
            for (int i = 1; i < SPLIT; i++)
                all = vec_add(all, sum[r][t][i]);
            y[t * ldy + (ptrdiff_t)r * apart] = fp8_unit(type) * vec_total(all);
        }
}

// Where the tokens do not fit in the registers at once, the rows are read again from L1.
VEC_INLINE void matvec_tokens(enum dtype type, int n_rows, int apart, int n_tokens, bool to_l2, float *y, ptrdiff_t ldy,
                              const char *row, int cols, const float *x, ptrdiff_t ldx)
{
    enum { WHOLE = TOGETHER };
    int t = 0;
    for (; t + WHOLE <= n_tokens; t += WHOLE)
        matvec_tile(type, n_rows, apart, WHOLE, t == 0, to_l2, y + t * ldy, ldy, row, cols, x + t * ldx, ldx);
    if (n_tokens % WHOLE)
        matvec_tile(type, n_rows, apart, n_tokens % WHOLE, t == 0, to_l2, y + t * ldy, ldy, row, cols, x + t * ldx, ldx);
}

// ------------------------------------------------------------------------------------------ more tokens than L1 keeps

// With AVX2, of fp16 and bf16: WIDE_ROWS rows take a block of columns at a time, whose tokens stay in L1 meanwhile. A tile is
// two rows, up to four tokens and one of the chains. So its sums fit in 16 registers, six loads serve eight multiply-adds, and
// a weight becomes a float twice, not three times. From block to block sums lie in memory; each has its terms in the same order
// as above.
enum { WIDE_ROWS = 8, WIDE_COLS = 16 * SPLIT * VEC, WIDE_TOKENS = 4 };

typedef vec wide_sums[MATVEC_MAX][SPLIT]; // of a row

// Columns [first, last), of those the chain's.
VEC_INLINE void wide_tile(enum dtype type, int n_tokens, wide_sums *sums, int token, int chain, const char *row,
                          ptrdiff_t row_bytes, const float *x, ptrdiff_t ldx, ptrdiff_t first, ptrdiff_t last)
{
    vec sum[2][WIDE_TOKENS];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n_tokens; i++)
        sum[i % 2][i / 2] = sums[i % 2][token + i / 2][chain];
    x += token * ldx;
    for (ptrdiff_t c = first + (ptrdiff_t)chain * VEC; c < last; c += SPLIT * VEC) {
        const vec a = vec_loaded(vec_load_unit(type, row, c)), b = vec_loaded(vec_load_unit(type, row + row_bytes, c));
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++) {
            const vec of_token = vec_loaded(vec_load(x + t * ldx + c));
            sum[0][t] = vec_fma(a, of_token, sum[0][t]);
            sum[1][t] = vec_fma(b, of_token, sum[1][t]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n_tokens; i++)
        sums[i % 2][token + i / 2][chain] = sum[i % 2][i / 2];
}

// A row and the next one with all tokens. behind: so many bytes further on lies what they read next.
VEC_INLINE void wide_pair(enum dtype type, int n, bool to_l2, wide_sums *sums, const char *row, ptrdiff_t row_bytes,
                          ptrdiff_t behind, const float *x, ptrdiff_t ldx, ptrdiff_t first, ptrdiff_t last)
{
    const int half = (n + 1) / 2;
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type], part = (last - first) * size / SPLIT;
    for (int chain = 0; chain < SPLIT; chain++) {
        const char *next = row + first * size + behind + chain * part; // not all at once: few lines can be on their way
        for (ptrdiff_t line = 0; line < part; line += 64) {
            fetch_line(next + line, to_l2);
            fetch_line(next + line + row_bytes, to_l2);
        }
        for (int t = 0, tokens = half; t < n; t += tokens, tokens = n - half)
            switch (tokens) {
            case 4:
                wide_tile(type, 4, sums, t, chain, row, row_bytes, x, ldx, first, last);
                break;
            case 3:
                wide_tile(type, 3, sums, t, chain, row, row_bytes, x, ldx, first, last);
                break;
            default:
                wide_tile(type, 2, sums, t, chain, row, row_bytes, x, ldx, first, last);
            }
    }
}

// WIDE_ROWS rows with n tokens, 4 < n.
VEC_INLINE void wide_rows(enum dtype type, float *y, ptrdiff_t ldy, const char *rows, int cols, const float *x, ptrdiff_t ldx,
                          int n, bool to_l2)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type], row_bytes = cols * size, whole = cols / (SPLIT * VEC) * (SPLIT * VEC);
    wide_sums sums[WIDE_ROWS];
    memset(sums, 0, sizeof sums);
    for (ptrdiff_t first = 0, last; first < whole; first = last) {
        last = whole - first < WIDE_COLS ? whole : first + WIDE_COLS;
        const ptrdiff_t behind = last < whole ? (last - first) * size : WIDE_ROWS * row_bytes - first * size;
        for (int r = 0; r < WIDE_ROWS; r += 2)
            wide_pair(type, n, to_l2, sums + r, rows + r * row_bytes, row_bytes, behind, x, ldx, first, last);
    }
    for (int r = 0; r < WIDE_ROWS; r++)
        for (int t = 0; t < n; t++) {
            vec *sum = sums[r][t];
            for (ptrdiff_t c = whole; c < cols; c += VEC) {
                const int left = cols - c < VEC ? (int)(cols - c) : VEC;
                sum[0] = vec_fma(vec_load_part_unit(type, rows + r * row_bytes, c, left), vec_load_part(x + t * ldx + c, left),
                                 sum[0]);
            }
            for (int i = 1; i < SPLIT; i++)
                sum[0] = vec_add(sum[0], sum[i]);
            y[t * ldy + r] = vec_total(sum[0]);
        }
}

VEC_INLINE bool is_wide(enum dtype type, int n, int cols)
{
#if defined __AVX2__ && !defined __AVX512F__
    return dtype_sizes[type] == 2 && n > WIDE_TOKENS && n * cols * (ptrdiff_t)sizeof(float) > WIDE_FROM;
#else
    (void)type, (void)n, (void)cols;
    return false;
#endif
}

// Two streams: r and r + half together. Many tokens do not fit in L1 and have to come from L2 for each row: there neighbours go
// in pairs.
VEC_INLINE void matvec_rows(enum dtype type, int n_tokens, float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row,
                            int cols, const float *x, ptrdiff_t ldx, bool to_l2)
{
    const ptrdiff_t row_bytes = cols * (ptrdiff_t)dtype_sizes[type];
    const bool pairs = VEC == 16 && n_tokens > TOGETHER && dtype_sizes[type] > 1;
    const bool halves = dtype_sizes[type] <= 2 && !pairs && (VEC == 16 || n_tokens == 1);
    const int half = (last_row - first_row) / 2;
    int r = first_row;
    for (; halves && r < first_row + half; r++)
        matvec_tokens(type, 2, half, n_tokens, to_l2, y + (r - first_row), ldy, (const char *)w + r * row_bytes, cols, x, ldx);
    if (halves)
        r += half;
    for (; pairs && r + 2 <= last_row; r += 2)
        matvec_tokens(type, 2, 1, n_tokens, to_l2, y + (r - first_row), ldy, (const char *)w + r * row_bytes, cols, x, ldx);
    for (; r < last_row; r++)
        matvec_tokens(type, 1, 1, n_tokens, to_l2, y + (r - first_row), ldy, (const char *)w + r * row_bytes, cols, x, ldx);
}

VEC_INLINE void matvec(enum dtype type, float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols,
                       const float *x, ptrdiff_t ldx, int n, bool to_l2)
{
    to_l2 = to_l2 && (ptrdiff_t)n * cols * (ptrdiff_t)sizeof *x > L1_KEEPS;
    if (is_wide(type, n, cols))
        for (; first_row + WIDE_ROWS <= last_row; first_row += WIDE_ROWS, y += WIDE_ROWS)
            wide_rows(type, y, ldy, (const char *)w + (ptrdiff_t)first_row * cols * (ptrdiff_t)dtype_sizes[type], cols, x, ldx,
                      n, to_l2);
    switch (n) {
    case 1:
        return matvec_rows(type, 1, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 2:
        return matvec_rows(type, 2, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 3:
        return matvec_rows(type, 3, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 4:
        return matvec_rows(type, 4, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 5:
        return matvec_rows(type, 5, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 6:
        return matvec_rows(type, 6, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 7:
        return matvec_rows(type, 7, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 8:
        return matvec_rows(type, 8, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    default: // no tokens
        return;
    }
}
