// Rows of quantised matrices on their way into a block, for vec/quant_many.h; included by vec/quant_int16.h and
// vec/quant_int8.h, which say what becomes of the quants.
#pragma once
#include "cpu/kernels/vec/quant.h"

// A block's scales, which begin behind `skip` others.
VEC_INLINE void many_store_scales(float to[MANY_GROUPS], vec scales, float unit, int skip)
{
    float all[VEC];
    vec_store(all, vec_mul(scales, vec_set(unit)));
    memcpy(to, all + skip, MANY_GROUPS * sizeof *all);
}

// Of a folded type the integers at `from`, and its groups' scales s, those from `skip` on. What eight groups have in common is
// at `eight`, and there too the whole numbers that multiply it.
VEC_INLINE void many_fold(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], struct quants_at from,
                          const uint8_t *eight, const struct group_scales *s, int skip, int groups);

// `groups` groups of W's row as integers, and their scales: at 0 those of groups, or first halves; at MANY_SECOND those of
// second ones; at MANY_LIFTS what an affine type adds, and likewise of second halves.
VEC_INLINE void many_row(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], const struct product_args *a,
                         ptrdiff_t row, int first_group, int groups)
{
    const struct quants_at from = quants_of_row(type, a, row, first_group);
    const bool eights = dtype_in_eights(a->type);
    const int skip = eights ? first_group % QUANT_EIGHT : 0;
    const struct group_scales s = load_scales(type, quants_of_row(type, a, row, first_group - skip),
                                              scales_of_row(type, a, row, first_group - skip), eights ? QUANT_EIGHT : groups);
    const enum dtype of = dtype_is_shared(type) ? a->type : type; // a compiler knows it of most; where it folds, it is `type`
    if (folded_cols(of)) {
        many_fold(type, to, scales, from, scales_of_row(type, a, row, first_group - skip), &s, skip, groups);
        return;
    }
    const float unit = many_quants(type, to, from, groups);
    many_store_scales(scales, s.scale[0], unit, skip);
    if (dtype_has_halves(type))
        many_store_scales(scales + MANY_SECOND, s.scale[1], unit, skip);
    if (dtype_is_affine(type))
        many_store_scales(scales + MANY_LIFTS, many_lifts(type, &s, 0), many_lift, skip);
    if (dtype_is_affine(type) && dtype_has_halves(type))
        many_store_scales(scales + MANY_LIFTS + MANY_SECOND, many_lifts(type, &s, 1), many_lift, skip);
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
