// Products of quantised matrices with AVX-512 (F, BW, DQ, VL) and VNNI.
#include "cpu/kernels/vec/quant_int16.h"

#include "cpu/kernels/vec/quant_many.h"

enum {
    DIGITS = 2,
    FEW_TOKENS = QUANT_FEW, // of these few() is as fast
};
#include "cpu/kernels/vnni/digits.h"

static size_t avx512vnni_size(int n, int cols) // of up to so many
{
    const size_t of_few = few_size(n < FEW_TOKENS ? n : FEW_TOKENS, cols);
    const size_t of_more = digits_or_many_size(n, cols);
    return of_few > of_more ? of_few : of_more;
}
static void avx512vnni_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= FEW_TOKENS)
        few_quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        digits_or_many_quantise(to, x, ldx, n, cols, first_col, last_col);
}
static void avx512vnni_q8(const struct quant_args *args)
{
    if (args->n <= FEW_TOKENS)
        few(DTYPE_Q8, args);
    else
        digits_or_many(DTYPE_Q8, args);
}
static void avx512vnni_q4(const struct quant_args *args)
{
    if (args->n <= FEW_TOKENS)
        few(DTYPE_Q4, args);
    else
        digits_or_many(DTYPE_Q4, args);
}
static void avx512vnni_q4n(const struct quant_args *args)
{
    if (args->n <= FEW_TOKENS)
        few(DTYPE_Q4N, args);
    else
        digits_or_many(DTYPE_Q4N, args);
}
static void avx512vnni_q5(const struct quant_args *args)
{
    if (args->n <= FEW_TOKENS)
        few(DTYPE_Q5, args);
    else
        digits_or_many(DTYPE_Q5, args);
}
static void avx512vnni_q6(const struct quant_args *args)
{
    if (args->n <= FEW_TOKENS)
        few(DTYPE_Q6, args);
    else
        digits_or_many(DTYPE_Q6, args);
}

const struct quant_kernels quant_kernels_avx512vnni = {
    .size = avx512vnni_size,
    .quantise = avx512vnni_quantise,
    .product =
        {
            [DTYPE_Q8] = avx512vnni_q8,
            [DTYPE_Q4] = avx512vnni_q4,
            [DTYPE_Q4N] = avx512vnni_q4n,
            [DTYPE_Q5] = avx512vnni_q5,
            [DTYPE_Q6] = avx512vnni_q6,
        },
    .scratch = QUANT_SCRATCH,
    .alike = FEW_TOKENS,
    .dot_loop = dot_loop,
};
