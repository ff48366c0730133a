// Many tokens, and weights that are floating-point numbers, as 16-bit integers, for vec_quant_many.h; included by kernels_<isa>_fixed.c.
//
// A token has one scale in each block of 128 columns, and so has a row of W. An instruction multiplies twice as many 16-bit integers as it does float32
// numbers, and adds their products without error: what is lost is lost in rounding the factors, once. The sums of 32 columns go over to float32. That
// is one conversion and one addition for 16 dot products of a vector, which some processors do beside them; the scales wait until the block's end.
//
// No such sum may leave 32 bits. A weight's integer is at most 2^14, so a token's magnitudes may add up to 2^17 in any 32 columns: where they are alike,
// that makes them 12 bits long, where one value stands out up to 15. On a sum of products of normal numbers the two roundings together
// cost 8e-5 of its size, a twentieth of what rounding tokens to bfloat16 does.
#pragma once
#include "cpu/vec_quant.h"

typedef int16_t many_weight;

enum {
    MANY_COLS = QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP,                // whose sums are in integers
    MANY_SCALES = 1,                                      // of a row of a block
    PANEL_BLOCK = MANY_COLS * VEC * (int)sizeof(int16_t), // bytes of a block's columns
    FIXED_VECS = MANY_COLS / VEC,
    TURNS = 4, // see tile_sums()
    TURN_COLS = QUANT_GROUP / TURNS,
    LARGEST_WEIGHT = 1 << 14,
    LARGEST_SUM = (1 << 17) - QUANT_GROUP, // of a token's magnitudes in 32 columns, before they are rounded
    LARGEST_VALUE = INT16_MAX,
};
_Static_assert((int64_t)LARGEST_WEIGHT *(LARGEST_SUM + QUANT_GROUP / 2) <= INT32_MAX, "sums fit in 32 bits");

static const float least_magnitude = 1e-30f; // what is smaller counts as 0

// A block's elements from `at` on, n of them and zeros.
VEC_INLINE void load_block(enum dtype type, vec to[FIXED_VECS], const void *from, ptrdiff_t at, int n)
{
    for (int i = 0; i < FIXED_VECS; i++) {
        const int left = n - i * VEC;
        to[i] = left >= VEC ? vec_load_unit(type, from, at + i * VEC)
                : left > 0  ? vec_load_part_unit(type, from, at + i * VEC, left)
                            : vec_zero();
    }
}

VEC_INLINE void store_block(int16_t to[MANY_COLS], const vec x[FIXED_VECS], float factor)
{
    for (int i = 0; i < FIXED_VECS; i++)
        ivec_store_narrow(to + i * VEC, ivec_round(vec_mul(x[i], vec_set(factor))));
}

// The largest sum of |x| * factor over as many columns as go into an integer sum, wherever a turn may begin it.
VEC_INLINE float largest_sum(const vec x[FIXED_VECS], float factor)
{
    float magnitudes[MANY_COLS], sums[MANY_COLS / TURN_COLS] = {0}, largest = 0;
    for (int i = 0; i < FIXED_VECS; i++)
        vec_store(magnitudes + i * VEC, vec_abs(vec_mul(x[i], vec_set(factor))));
    for (int c = 0; c < TURN_COLS; c++)
        for (int i = 0; i < MANY_COLS / TURN_COLS; i++)
            sums[i] += magnitudes[i * TURN_COLS + c];
    for (int i = 0; i + TURNS <= MANY_COLS / TURN_COLS; i++) {
        const float sum = (sums[i] + sums[i + 1]) + (sums[i + 2] + sums[i + 3]);
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

// A token's values from column `first` on; returns their scale. Of values that are not numbers, or infinite, it is such a scale.
VEC_INLINE float token_block(int16_t to[MANY_COLS], const float *x, int first, int cols)
{
    vec v[FIXED_VECS];
    load_block(DTYPE_FP32, v, x, first, cols - first);
    const float most = largest_magnitude(v, FIXED_VECS);
    const float inverse = most > least_magnitude ? 1 / most : 0;
    const float needed = largest_sum(v, inverse),
                least = (float)LARGEST_SUM / LARGEST_VALUE; // so that none passes LARGEST_VALUE
    const float largest = needed > least ? needed : least;
    store_block(to, v, LARGEST_SUM / largest * inverse);
    return most * (largest / LARGEST_SUM);
}

// f += the tile's sums. Its rows go over to float32 in turns, a quarter of them each quarter of a group: all at once would keep the dot products waiting.
VEC_INLINE void tile_sums(int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS], const struct many_tile *a)
{
    const many_weight *w = a->w;
    const char *panel = a->panel;
    ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            c[r][j] = ivec_zero();
    for (int g = 0; g < a->groups; g++) {
#pragma GCC unroll 4
        for (int turn = 0; turn < TURNS; turn++) {
#pragma GCC unroll 8
            for (int r = turn * n_rows / TURNS; r < (turn + 1) * n_rows / TURNS; r++)
#pragma GCC unroll 8
                for (int j = 0; j < n_vecs; j++) {
                    f[r][j] = vec_add(f[r][j], ivec_to_float(c[r][j]));
                    c[r][j] = ivec_zero();
                }
#pragma GCC unroll 1
            for (int k = 0; k < TURN_COLS; k += 2) {
                add_pair(n_rows, n_vecs, c, w, MANY_COLS, panel, a->panel_size);
                w += 2;
                panel += 2 * VEC * sizeof *w;
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            f[r][j] = vec_add(f[r][j], ivec_to_float(c[r][j]));
}

VEC_INLINE vec both_scales(vec tokens, const float *scales)
{
    return vec_mul(tokens, vec_set(scales[0]));
}

// A row's block of columns, from group `first_group` on, as integers, and its scale.
VEC_INLINE void many_row(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], const struct quant_args *a,
                         ptrdiff_t row, int first_group, int groups)
{
    (void)groups;
    const int first = first_group * QUANT_GROUP;
    vec v[FIXED_VECS];
    load_block(type, v, a->w, row * a->cols + first, a->cols - first);
    const float most = largest_magnitude(v, FIXED_VECS);
    store_block(to, v, most > least_magnitude ? LARGEST_WEIGHT / most : 0);
    *scales = most / LARGEST_WEIGHT * (type == DTYPE_FP8 ? fp8_unit(type) : 1);
}

VEC_INLINE void many_fetch_row(enum dtype type, const struct quant_args *a, ptrdiff_t row, int first_group)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type];
    const char *from = (const char *)a->w + (row * a->cols + first_group * QUANT_GROUP) * size;
    for (ptrdiff_t b = 0; b < MANY_COLS * size; b += 64)
        __builtin_prefetch(from + b, 0, 2);
}

#include "cpu/vec_panels16.h"
