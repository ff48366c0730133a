// Products of quantised matrices with AVX-512 (F, BW, DQ, VL) and VNNI: of many tokens as 8-bit integers.
#include "cpu/kernels/vec/quant_int8.h"

#include "cpu/kernels/vec/quant_many.h"

enum { DIGITS = 1 };
#include "cpu/kernels/vnni/digits.h"

static size_t avx512vnni_int8_size(int n, int cols)
{
    return n <= QUANT_FEW ? quant_kernels_avx512vnni.size(n, cols) : digits_or_many_size(n, cols);
}
static void avx512vnni_int8_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW)
        quant_kernels_avx512vnni.quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        digits_or_many_quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void avx512vnni_int8_q8(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx512vnni.product[DTYPE_Q8](args);
    else
        digits_or_many(DTYPE_Q8, args);
}
static void avx512vnni_int8_q4(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx512vnni.product[DTYPE_Q4](args);
    else
        digits_or_many(DTYPE_Q4, args);
}
static void avx512vnni_int8_q4n(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx512vnni.product[DTYPE_Q4N](args);
    else
        digits_or_many(DTYPE_Q4N, args);
}
static void avx512vnni_int8_q5(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx512vnni.product[DTYPE_Q5](args);
    else
        digits_or_many(DTYPE_Q5, args);
}
static void avx512vnni_int8_q6(const struct quant_args *args)
{
    if (args->n <= QUANT_FEW)
        quant_kernels_avx512vnni.product[DTYPE_Q6](args);
    else
        digits_or_many(DTYPE_Q6, args);
}

const struct quant_kernels quant8_kernels_avx512vnni = {
    .size = avx512vnni_int8_size,
    .quantise = avx512vnni_int8_quantise,
    .product =
        {
            [DTYPE_Q8] = avx512vnni_int8_q8,
            [DTYPE_Q4] = avx512vnni_int8_q4,
            [DTYPE_Q4N] = avx512vnni_int8_q4n,
            [DTYPE_Q5] = avx512vnni_int8_q5,
            [DTYPE_Q6] = avx512vnni_int8_q6,
        },
    .scratch = QUANT_SCRATCH,
    .alike = QUANT_FEW,
    .dot_loop = dot_loop,
};
