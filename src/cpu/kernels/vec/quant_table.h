// A table of products with quantised weights; included by quant.c and quant8.c after vec/quant_int16.h or vec/quant_int8.h,
// which say what tokens become.
#pragma once
#include "cpu/kernels/vec/quant_few.h"

VEC_INLINE void few_or_small(enum dtype type, const struct product_args *args)
{
    struct small_matrix copy;
    struct product_args of_copy;
    if (is_small(args)) {
        of_copy = in_small(&copy, type, args);
        args = &of_copy;
    }
    few(type, args);
}

// product_NAME_q8 and its likes, which are FUNCTION(DTYPE_Q8, args) …
#define PRODUCT(TYPE, type, name, function)                                                                                    \
    static void product_##name##_##type(const struct product_args *args)                                                       \
    {                                                                                                                          \
        function(DTYPE_##TYPE, args);                                                                                          \
    }
// … and the form of tokens that has them.
#define PRODUCT_ENTRY(TYPE, type, name) [DTYPE_##TYPE] = product_##name##_##type,
#define QUANT_FORM(name)                                                                                                       \
    {                                                                                                                          \
        .size = name##_size, .quantise = name##_quantise, .product = {QUANT_TYPES(PRODUCT_ENTRY, name)},                       \
    }

QUANT_KERNELS(PRODUCT, few, few_or_small)
QUANT_KERNELS(PRODUCT, many, many)
