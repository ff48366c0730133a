// Products of quantised matrices: of many tokens as 8-bit integers.
#include "cpu/kernels/vec/parts.h"
#include "cpu/kernels/vec/quant_int8.h"
#include "cpu/kernels/vec/quant_many.h"

static size_t int8_size(int n, int cols)
{
    return n <= QUANT_FEW ? ISA(quant_kernels).size(n, cols) : many_size(n, cols);
}
static void int8_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW)
        ISA(quant_kernels).quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        many_quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void int8_q8(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        ISA(quant_kernels).product[DTYPE_Q8](args);
    else
        many(DTYPE_Q8, args);
}
static void int8_q4(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        ISA(quant_kernels).product[DTYPE_Q4](args);
    else
        many(DTYPE_Q4, args);
}
static void int8_q4n(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        ISA(quant_kernels).product[DTYPE_Q4N](args);
    else
        many(DTYPE_Q4N, args);
}
static void int8_q5(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        ISA(quant_kernels).product[DTYPE_Q5](args);
    else
        many(DTYPE_Q5, args);
}
static void int8_q6(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        ISA(quant_kernels).product[DTYPE_Q6](args);
    else
        many(DTYPE_Q6, args);
}

const struct quant_kernels ISA(quant8_kernels) = {
    .size = int8_size,
    .quantise = int8_quantise,
    .product =
        {
            [DTYPE_Q8] = int8_q8,
            [DTYPE_Q4] = int8_q4,
            [DTYPE_Q4N] = int8_q4n,
            [DTYPE_Q5] = int8_q5,
            [DTYPE_Q6] = int8_q6,
        },
    .scratch = QUANT_SCRATCH,
    .alike = QUANT_FEW,
    .dot_loop = dot_loop,
};
