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
