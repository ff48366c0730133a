// Products of quantised matrices with AVX2.
#include "cpu/vec_quant_many.h"

static size_t avx2_quantised_size(int n, int cols)
{
    return quantised_size(n, cols);
}
static void avx2_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void avx2_q8(const struct quant_args *args)
{
    quant_product(DTYPE_Q8, args);
}
static void avx2_q4(const struct quant_args *args)
{
    quant_product(DTYPE_Q4, args);
}
static double avx2_dot_loop(long rounds)
{
    return dot_loop(rounds);
}

const struct quant_kernels quant_kernels_avx2 = {
    .size = avx2_quantised_size,
    .quantise = avx2_quantise,
    .product = {[DTYPE_Q8] = avx2_q8, [DTYPE_Q4] = avx2_q4},
    .scratch = QUANT_SCRATCH,
    .dot_loop = avx2_dot_loop,
};
