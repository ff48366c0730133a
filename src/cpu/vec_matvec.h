// y[t, r] = W[r] · x[t] for a few tokens, for either vector width; included by kernels_<isa>_matvec.c.
//
// Bound by reading W, once. Four streams of rows, each contiguous in memory across its rows, keep more requests in flight than one
// stream can; each is prefetched ahead, across the ends of rows too. A result has one vector of running sums over the columns,
// in their order, however rows are shared among threads and however many tokens come along.
#pragma once
#include "cpu/kernels.h"
#include "cpu/vec.h"

enum { STREAMS = 4, AHEAD = 4096, MATVEC_MAX = 8 }; // AHEAD: bytes

// Rows row[0] … row[n_rows - 1] with n_tokens tokens; both are constants where this is inlined.
VEC_INLINE void matvec_rows(enum dtype type, int n_rows, int n_tokens, float *const y[STREAMS], ptrdiff_t ldy,
                            const char *const row[STREAMS], int cols, const float *x, ptrdiff_t ldx)
{
    vec sum[STREAMS][MATVEC_MAX];
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int t = 0; t < n_tokens; t++)
            sum[r][t] = vec_zero();
    const int step = 64 / (int)dtype_sizes[type]; // a cache line
    ptrdiff_t c = 0;
    for (; c + step <= cols; c += step) {
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            __builtin_prefetch(row[r] + c * (ptrdiff_t)dtype_sizes[type] + AHEAD);
#pragma GCC unroll 8
        for (int i = 0; i < step; i += VEC)
#pragma GCC unroll 8
            for (int r = 0; r < n_rows; r++) {
                const vec w = vec_load_as(type, row[r], c + i);
#pragma GCC unroll 8
                for (int t = 0; t < n_tokens; t++)
                    sum[r][t] = vec_fma(w, vec_load(x + t * ldx + c + i), sum[r][t]);
            }
    }
    for (; c < cols; c += VEC) {
        const int n = cols - c < VEC ? (int)(cols - c) : VEC;
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            const vec w = vec_load_part_as(type, row[r], c, n);
#pragma GCC unroll 8
            for (int t = 0; t < n_tokens; t++)
                sum[r][t] = vec_fma(w, vec_load_part(x + t * ldx + c, n), sum[r][t]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int t = 0; t < n_tokens; t++)
            y[r][t * ldy] = vec_total(sum[r][t]);
}

// All rows, n_streams of them at a time: stream s has rows s * per_stream … (s + 1) * per_stream - 1.
VEC_INLINE void matvec_streams(enum dtype type, int n_streams, int n_tokens, float *y, ptrdiff_t ldy, const void *w,
                               int first_row, int last_row, int cols, const float *x, ptrdiff_t ldx)
{
    const ptrdiff_t row_bytes = cols * (ptrdiff_t)dtype_sizes[type];
    const char *base = (const char *)w + first_row * row_bytes;
    const int n = last_row - first_row, per_stream = n / n_streams;
    float *to[STREAMS];
    const char *row[STREAMS];
    for (int i = 0; i < per_stream; i++) {
        for (int s = 0; s < n_streams; s++) {
            row[s] = base + (i + (ptrdiff_t)s * per_stream) * row_bytes;
            to[s] = y + i + (ptrdiff_t)s * per_stream;
        }
        matvec_rows(type, n_streams, n_tokens, to, ldy, row, cols, x, ldx);
    }
    for (int i = n_streams * per_stream; i < n; i++) {
        row[0] = base + i * row_bytes;
        to[0] = y + i;
        matvec_rows(type, 1, n_tokens, to, ldy, row, cols, x, ldx);
    }
}

// Fewer streams where their sums and tokens would not fit in the registers.
VEC_INLINE void matvec(enum dtype type, float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols,
                       const float *x, ptrdiff_t ldx, int n)
{
    enum { WIDE = VEC == 16 ? 4 : 2, NARROW = VEC == 16 ? 2 : 1 };
    switch (n) {
    case 1:
        return matvec_streams(type, 2, 1, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 2:
        return matvec_streams(type, 4, 2, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 3:
        return matvec_streams(type, WIDE, 3, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 4:
        return matvec_streams(type, WIDE, 4, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 5:
        return matvec_streams(type, WIDE, 5, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 6:
        return matvec_streams(type, NARROW, 6, y, ldy, w, first_row, last_row, cols, x, ldx);
    case 7:
        return matvec_streams(type, NARROW, 7, y, ldy, w, first_row, last_row, cols, x, ldx);
    default:
        return matvec_streams(type, NARROW, 8, y, ldy, w, first_row, last_row, cols, x, ldx);
    }
}
