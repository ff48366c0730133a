// Matrix products in plain C. A row of W is converted piece by piece, so all tokens share the conversion. Each (row, token) has
// eight running sums in double, always over the same columns: a result does not depend on the rows or tokens computed with it.
#include "cpu/kernels/ref/scalar.h"

enum { PIECE = 256, SUMS = 8, TOKENS = 8 };

// n elements of row `row`, from column `first` on.
static inline __attribute__((always_inline)) void row_piece(enum dtype type, float *piece, const void *w, int row, int cols,
                                                            int first, int n)
{
    if (type == DTYPE_BF12)
        bf12_to_fp32(piece, w, cols, row, first, n);
    else
        for (int c = 0; c < n; c++)
            piece[c] = element(type, w, (ptrdiff_t)row * cols + first + c);
}

// sum[c mod 8] += w[c] x[c]
static void dot_piece(double sum[SUMS], const float *w, const float *x, int n)
{
    int c = 0;
    for (; c + SUMS <= n; c += SUMS)
        for (int i = 0; i < SUMS; i++)
            sum[i] += (double)w[c + i] * (double)x[c + i];
    for (int i = 0; c + i < n; i++)
        sum[i] += (double)w[c + i] * (double)x[c + i];
}

static float total(const double sum[SUMS])
{
    return (float)(((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])));
}

// y[t, r - first_row] = W[r] · x[t]
static inline __attribute__((always_inline)) void products(enum dtype type, float *y, ptrdiff_t ldy, const void *w,
                                                           int first_row, int last_row, int cols, const float *x, ptrdiff_t ldx,
                                                           int n)
{
    for (int r = first_row; r < last_row; r++)
        for (int t0 = 0; t0 < n; t0 += TOKENS) {
            const int n_tokens = n - t0 < TOKENS ? n - t0 : TOKENS;
            double sums[TOKENS][SUMS] = {{0}};
            for (int c = 0; c < cols; c += PIECE) {
                float piece[PIECE];
                const int length = cols - c < PIECE ? cols - c : PIECE;
                row_piece(type, piece, w, r, cols, c, length);
                for (int t = 0; t < n_tokens; t++)
                    dot_piece(sums[t], piece, x + (t0 + t) * ldx + c, length);
            }
            for (int t = 0; t < n_tokens; t++)
                y[(t0 + t) * ldy + (r - first_row)] = total(sums[t]);
        }
}

#define MATVEC(TYPE, type, ...)                                                                                                \
    void scalar_matvec_##type(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,   \
                              ptrdiff_t ldx, int n, bool to_l2)                                                                \
    {                                                                                                                          \
        (void)to_l2;                                                                                                           \
        products(DTYPE_##TYPE, y, ldy, w, first_row, last_row, cols, x, ldx, n);                                               \
    }
FLOAT_TYPES(MATVEC, )
MATVEC(BF12, bf12, )

// Packed tokens are just tokens here: (n, cols).
size_t scalar_packed_size(int n, int cols)
{
    return (size_t)n * (size_t)cols;
}

void scalar_pack_tokens(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (ptrdiff_t t = 0; t < n; t++)
        memcpy(packed + t * cols + first_col, x + t * ldx + first_col, (size_t)(last_col - first_col) * sizeof *x);
}

#define MATMUL(TYPE, type, ...)                                                                                                \
    void scalar_matmul_##type(const struct product_args *m)                                                                    \
    {                                                                                                                          \
        products(DTYPE_##TYPE, m->y, m->ldy, m->w, m->first_row, m->last_row, m->cols, m->x, m->cols, m->n);                   \
    }
FLOAT_TYPES(MATMUL, )
