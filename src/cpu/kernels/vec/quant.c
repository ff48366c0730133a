// Products of quantised matrices.
#include "cpu/kernels/vec/parts.h"
#include "cpu/kernels/vec/quant_int16.h"
#include "cpu/kernels/vec/quant_many.h"

static size_t int16_size(int n, int cols)
{
    return n <= QUANT_FEW ? few_size(n, cols) : many_size(n, cols);
}
static void int16_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW)
        few_quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        many_quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void int16_q8(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        few(DTYPE_Q8, args);
    else
        many(DTYPE_Q8, args);
}
static void int16_q4(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        few(DTYPE_Q4, args);
    else
        many(DTYPE_Q4, args);
}
static void int16_q4n(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        few(DTYPE_Q4N, args);
    else
        many(DTYPE_Q4N, args);
}
static void int16_q5(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        few(DTYPE_Q5, args);
    else
        many(DTYPE_Q5, args);
}
static void int16_q6(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        few(DTYPE_Q6, args);
    else
        many(DTYPE_Q6, args);
}

const struct quant_kernels ISA(quant_kernels) = {
    .size = int16_size,
    .quantise = int16_quantise,
    .product =
        {
            [DTYPE_Q8] = int16_q8,
            [DTYPE_Q4] = int16_q4,
            [DTYPE_Q4N] = int16_q4n,
            [DTYPE_Q5] = int16_q5,
            [DTYPE_Q6] = int16_q6,
        },
    .scratch = QUANT_SCRATCH,
    .alike = QUANT_FEW,
    .dot_loop = dot_loop,
};
