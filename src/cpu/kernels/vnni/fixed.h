// Many tokens, and weights that are floating-point numbers, as 16-bit integers, for vec/quant_many.h; included by fixed.c and
// fixed_short.c.
//
// A token has one scale in each block of 128 columns, and so has a row of W. An instruction multiplies twice as many 16-bit
// integers as it does float32 numbers, and adds their products without error: what is lost is lost in rounding the factors,
// once. The sums of 32 columns go over to float32. That is one conversion and one addition for 16 dot products of a vector,
// which some processors do beside them; the scales wait until the block's end.
//
// No such sum may leave 32 bits. A weight's integer is at most 2^14, so a token's magnitudes may add up to 2^17 in any 32
// columns. Where they are alike that leaves 12 bits, where one value stands out up to 15. A weight's unit is a power of two, so
// numbers of few bits lose nothing if they are large enough: float16's from an eighth of their block's largest on, bfloat16's
// from a 64th. On a sum of products of normal numbers the two roundings together cost 8e-5 of its size with float16, 7e-5 with
// bfloat16. Rounding tokens to bfloat16 costs twenty times as much.
#pragma once
#include <float.h>
#include <math.h>

#include "cpu/kernels/vnni/fixed_fp8.h"
#include "cpu/kernels/vnni/fixed_half.h"

typedef int16_t many_weight;

enum {
    MANY_COLS = QUANT_BLOCK,
    MANY_GROUPS = MANY_COLS / QUANT_GROUP, // whose sums are in integers
    MANY_SCALES = 1,                       // of a row of a block
    PANEL_SUMS = 0,
    MANY_SIX_APART = 0,
    MANY_NIBBLES = 0,
    PANEL_BLOCK = MANY_COLS * VEC * (int)sizeof(int16_t), // bytes of a block's columns
    TURNS = 4,                                            // see tile_sums()
    TURN_COLS = QUANT_GROUP / TURNS,
    LINES = MANY_COLS * (int)sizeof(uint16_t) / 64, // of a row of a block of fp16 or bf16
    LARGEST_WEIGHT = 1 << 14,
    LARGEST_SUM =
        (1 << 17) - QUANT_GROUP, // of a token's magnitudes in columns that are summed in integers, before they are rounded
    LARGEST_VALUE = INT16_MAX,
};
_Static_assert((int64_t)LARGEST_WEIGHT *(LARGEST_SUM + QUANT_GROUP / 2) <= INT32_MAX, "sums fit in 32 bits");

VEC_INLINE int pair_first(int pair)
{
    return 2 * pair;
}
VEC_INLINE int pair_second(int pair)
{
    return 2 * pair + 1;
}

VEC_INLINE int folded_cols(enum dtype type)
{
    (void)type;
    return 0;
}

// Two vectors of numbers, times a factor, as pairs of integers, rounded once: see nearest_bits().
VEC_INLINE void store_pairs(int16_t to[2 * VEC], vec first, vec second, vec factor)
{
    const vec base = vec_set(0x1.8p23f);
    ivec_store(to, ivec_low_halves(vec_fma(first, factor, base), vec_fma(second, factor, base)));
}

// The same, the second vector's after the first's.
VEC_INLINE void store_in_order(int16_t to[2 * VEC], vec first, vec second, vec factor)
{
    static const _Alignas(64) int16_t lower[2 * VEC] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                        32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    const vec base = vec_set(0x1.8p23f);
    ivec_store(to, _mm512_permutex2var_epi16(_mm512_castps_si512(vec_fma(first, factor, base)), ivec_load(lower),
                                             _mm512_castps_si512(vec_fma(second, factor, base))));
}

// Of each token the largest sum of |x| * inverse over as many columns as go into an integer sum, wherever a turn may begin it.
VEC_INLINE vec largest_sums(const float columns[MANY_COLS][VEC], vec inverse)
{
    vec sums[MANY_COLS / TURN_COLS], largest = vec_zero();
    for (int i = 0; i < MANY_COLS / TURN_COLS; i++) {
        sums[i] = vec_zero();
        for (int pair = i * TURN_COLS / 2; pair < (i + 1) * TURN_COLS / 2; pair++) {
            sums[i] = vec_fma(vec_abs(vec_load(columns[pair_first(pair)])), inverse, sums[i]);
            sums[i] = vec_fma(vec_abs(vec_load(columns[pair_second(pair)])), inverse, sums[i]);
        }
    }
    for (int i = 0; i + TURNS <= MANY_COLS / TURN_COLS; i++)
        largest = vec_max(largest, vec_add(vec_add(sums[i], sums[i + 1]), vec_add(sums[i + 2], sums[i + 3])));
    return largest;
}

// of_one: scales_to(…, 1); sums: the largest of |x| * inverse.
VEC_INLINE struct token_scales scales_of_sums(struct token_scales of_one, vec sums)
{
    // Of sums that are not numbers, since a value is none or infinite, the second: then the unit is none or infinite.
    const vec least = vec_set((float)LARGEST_SUM / LARGEST_VALUE); // so that no value passes LARGEST_VALUE
    const vec largest = vec_max(sums, least);
    return (struct token_scales){.unit = vec_mul(of_one.unit, vec_mul(largest, vec_set(1.0f / LARGEST_SUM))),
                                 .inverse = vec_mul(of_one.inverse, vec_div(vec_set(LARGEST_SUM), largest))};
}

VEC_INLINE struct token_scales token_scales(const float columns[MANY_COLS][VEC])
{
    const struct token_scales of_one = scales_to(largest_of_columns(columns[0], MANY_COLS), 1);
    return scales_of_sums(of_one, largest_sums(columns, of_one.inverse));
}

// Fetches some of the lines that come next of W, four of each row, in turn `turn` of a whole tile. All at once are more than a
// core keeps in mind.
VEC_INLINE void name_lines(const struct many_tile *a, int n_rows, int turn)
{
#pragma GCC unroll 4
    for (int i = 0; i < n_rows / TURNS; i++) {
        const int line = turn * (n_rows / TURNS) + i;
        __builtin_prefetch(a->next.at + line / LINES * a->next.apart + line % LINES * 64, 0, 2);
    }
}

// f += the tile's sums. Its rows go over to float32 in turns, a quarter of them each quarter of a group: all at once would keep
// the dot products waiting. A row's turn is the same in tiles of any height, and so are its bits.
VEC_INLINE void tile_sums(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                          const struct many_tile *a)
{
    (void)type;
    const many_weight *w = a->w;
    const char *panel = a->panel;
    ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            c[r][j] = ivec_zero();
    for (int g = 0; g < a->groups; g++) {
#pragma GCC unroll 4
        for (int turn = 0; turn < TURNS; turn++) {
#pragma GCC unroll 16
            for (int r = turn; r < n_rows; r += TURNS)
#pragma GCC unroll 16
                for (int j = 0; j < n_vecs; j++) {
                    f[r][j] = vec_add(f[r][j], ivec_to_float(c[r][j]));
                    c[r][j] = ivec_zero();
                }
            if (n_vecs == 2 && a->next.at)
                name_lines(a, n_rows, g * TURNS + turn);
#pragma GCC unroll 1
            for (int k = 0; k < TURN_COLS; k += 2) {
                add_pair(false, n_rows, n_vecs, c, w, MANY_COLS, panel, a->panel_size);
                w += 2;
                panel += 2 * VEC * sizeof *w;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            f[r][j] = vec_add(f[r][j], ivec_to_float(c[r][j]));
}

VEC_INLINE vec both_scales(vec tokens, const float *scales)
{
    return vec_mul(tokens, vec_set(scales[0]));
}

// Of `cols` columns of a row, n of them and zeros, the largest magnitude, as bits; by which these become integers.
VEC_INLINE int block_largest(enum dtype type, const void *from, int n, int cols)
{
    return dtype_sizes[type] == 1 ? fp8_largest(from, n, cols) : half_largest(from, n, cols);
}
// Returns the integers' unit, so that the least number with the largest one's exponent is 2^13 units.
VEC_INLINE float block_integers(enum dtype type, int16_t *to, const void *from, int n, int cols, int largest)
{
    return dtype_sizes[type] == 1 ? fp8_block(type, to, from, n, cols, largest) : half_block(type, to, from, n, cols, largest);
}

VEC_INLINE const char *block_at(enum dtype type, const struct product_args *a, ptrdiff_t row, int col)
{
    return (const char *)a->w + (row * a->cols + col) * (ptrdiff_t)dtype_sizes[type];
}

VEC_INLINE void many_row(enum dtype type, many_weight to[MANY_COLS], float scales[MANY_SCALES], const struct product_args *a,
                         ptrdiff_t row, int first_group, int groups)
{
    (void)groups;
    const int first = first_group * QUANT_GROUP;
    const char *from = block_at(type, a, row, first);
    const int n = a->cols - first;
    *scales = block_integers(type, to, from, n, MANY_COLS, block_largest(type, from, n, MANY_COLS));
}

VEC_INLINE void many_fetch_row(enum dtype type, const struct product_args *a, ptrdiff_t row, int first_group)
{
    const char *from = block_at(type, a, row, first_group * QUANT_GROUP);
    for (ptrdiff_t b = 0; b < MANY_COLS * (ptrdiff_t)dtype_sizes[type]; b += 64)
        __builtin_prefetch(from + b, 0, 2);
}

// fp8's rows, which are half as long, are fetched at once.
VEC_INLINE struct many_lines many_lines_at(enum dtype type, const struct product_args *a, ptrdiff_t row, int first_group)
{
    if (dtype_sizes[type] == 1)
        return (struct many_lines){NULL, 0};
    return (struct many_lines){block_at(type, a, row, first_group * QUANT_GROUP), a->cols * (ptrdiff_t)sizeof(uint16_t)};
}

#include "cpu/kernels/vec/panels16.h"

// product_fp16 and its likes, which are FUNCTION(DTYPE_FP16, args); their table; and the operations of dot_loop(), half as many
// in 16 bits.
#define FIXED_PRODUCT(function, TYPE, type)                                                                                    \
    static void product_##type(const struct product_args *args)                                                                \
    {                                                                                                                          \
        function(DTYPE_##TYPE, args);                                                                                          \
    }
#define FIXED_PRODUCTS(function)                                                                                               \
    FIXED_PRODUCT(function, FP16, fp16)                                                                                        \
    FIXED_PRODUCT(function, BF16, bf16)                                                                                        \
    FIXED_PRODUCT(function, FP8, fp8)                                                                                          \
    FIXED_PRODUCT(function, FP8_E5M2, fp8_e5m2)                                                                                \
    static double fixed_dot_loop(long rounds)                                                                                  \
    {                                                                                                                          \
        return dot_loop(rounds) / 2;                                                                                           \
    }
#define FIXED_TABLE                                                                                                            \
    {                                                                                                                          \
        [DTYPE_FP16] = product_fp16, [DTYPE_BF16] = product_bf16, [DTYPE_FP8] = product_fp8,                                   \
        [DTYPE_FP8_E5M2] = product_fp8_e5m2,                                                                                   \
    }
