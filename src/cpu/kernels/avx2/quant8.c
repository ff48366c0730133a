// Products of quantised matrices with AVX2: of many tokens as 8-bit integers.
#include "cpu/kernels/vec/quant_int8.h"

#include "cpu/kernels/vec/quant_many.h"

static size_t avx2_int8_size(int n, int cols)
{
    return n <= QUANT_FEW ? quant_kernels_avx2.size(n, cols) : many_size(n, cols);
}
static void avx2_int8_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW)
        quant_kernels_avx2.quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        many_quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void avx2_int8_q8(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx2.product[DTYPE_Q8](args);
    else
        many(DTYPE_Q8, args);
}
static void avx2_int8_q4(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx2.product[DTYPE_Q4](args);
    else
        many(DTYPE_Q4, args);
}

const struct quant_kernels quant8_kernels_avx2 = {
    .size = avx2_int8_size,
    .quantise = avx2_int8_quantise,
    .product = {[DTYPE_Q8] = avx2_int8_q8, [DTYPE_Q4] = avx2_int8_q4},
    .scratch = QUANT_SCRATCH,
    .dot_loop = dot_loop,
};
