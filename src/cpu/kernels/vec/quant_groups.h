// Rows of quantised matrices on their way into a block, for vec/quant_many.h; included by vec/quant_int16.h and
// vec/quant_int8.h, which say what becomes of the quants.
#pragma once
#include "cpu/kernels/vec/quant.h"

// `groups` groups of W's row as integers, and their scales.
VEC_INLINE void many_row(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], const struct product_args *a,
                         ptrdiff_t row, int first_group, int groups)
{
    const float unit = many_quants(type, to, quants_of_row(type, a, row, first_group), groups);
    vec s = load_scales(type, scales_of_row(type, a, row, first_group), groups);
    if (unit != 1)
        s = vec_mul(s, vec_set(unit));
    vec_store_part(scales, s, groups);
}

// What many_row() will read, from memory to L2.
VEC_INLINE void many_fetch_row(enum dtype type, const struct product_args *a, ptrdiff_t row, int first_group)
{
    const struct quants_at from = quants_of_row(type, a, row, first_group);
    for (ptrdiff_t b = 0; b < MANY_GROUPS * low_bytes(type); b += 64)
        __builtin_prefetch(from.low + b, 0, 2);
    for (ptrdiff_t b = 0; b < MANY_GROUPS * high_bytes(type); b += 64)
        __builtin_prefetch(from.high + b, 0, 2);
    __builtin_prefetch(scales_of_row(type, a, row, first_group), 0, 2);
}
VEC_INLINE struct many_lines many_lines_at(enum dtype type, const struct product_args *a, ptrdiff_t row, int first_group)
{
    (void)type, (void)a, (void)row, (void)first_group;
    return (struct many_lines){NULL, 0};
}
