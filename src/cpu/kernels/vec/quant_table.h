// A table of products with quantised weights; included by quant.c and quant8.c after vec/quant_int16.h or vec/quant_int8.h, which say what
// tokens become.
#pragma once
#include "cpu/kernels/vec/quant_few.h"

// More than QUANT_FEW tokens: MORE(), MORE(_size) and MORE(_quantise) have the signatures of few(), few_size() and few_quantise().
#ifndef MORE
#define MORE(what) many##what
#endif

static size_t table_size(int n, int cols) // of up to so many
{
    const size_t of_few = few_size(n < QUANT_FEW ? n : QUANT_FEW, cols), of_more = n > QUANT_FEW ? MORE(_size)(n, cols) : 0;
    return of_few > of_more ? of_few : of_more;
}
static void table_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= QUANT_FEW)
        few_quantise(to, x, ldx, n, cols, first_col, last_col);
    else
        MORE(_quantise)(to, x, ldx, n, cols, first_col, last_col);
}

VEC_INLINE void product(enum dtype type, const struct quant_args *args)
{
    struct small_matrix copy;
    struct quant_args of_copy;
    if (args->n <= QUANT_FEW) {
        if (is_small(type, args)) {
            of_copy = in_small(&copy, type, args);
            args = &of_copy;
        }
        few(type, args);
    } else {
        MORE()(type, args);
    }
}
static void product_q8(const struct quant_args *args)
{
    product(DTYPE_Q8, args);
}
static void product_q4(const struct quant_args *args)
{
    product(DTYPE_Q4, args);
}
static void product_q4n(const struct quant_args *args)
{
    product(DTYPE_Q4N, args);
}
static void product_q5(const struct quant_args *args)
{
    product(DTYPE_Q5, args);
}
static void product_q6(const struct quant_args *args)
{
    product(DTYPE_Q6, args);
}

// clang-format off
#define PRODUCT_TABLE                  \
    {                                  \
        .size = table_size,            \
        .quantise = table_quantise,    \
        .product = {                   \
            [DTYPE_Q8] = product_q8,   \
            [DTYPE_Q4] = product_q4,   \
            [DTYPE_Q4N] = product_q4n, \
            [DTYPE_Q5] = product_q5,   \
            [DTYPE_Q6] = product_q6,   \
        },                             \
        .scratch = QUANT_SCRATCH,      \
        .alike = QUANT_FEW,            \
        .dot_loop = dot_loop,          \
    }
// clang-format on
