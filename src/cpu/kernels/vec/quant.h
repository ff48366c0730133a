// Products of quantised matrices, for either vector width; included by vec/quant_few.h, vec/quant_many.h and what else
// multiplies in integers.
//
// Tokens are quantised too: each block of 128 values to 16-bit integers and one scale. So a group's sum of products is exact in
// integers, and costs as little as 16-bit multiplications do. The tokens keep 15 bits: quantised to 8, they would do more harm
// than the weights' own rounding does. (A block is four groups: with many tokens the weights' scale is then all that differs
// from group to group.)
#pragma once
#include "cpu/kernels/kernels.h"
#ifdef __AVX512F__
#include "cpu/kernels/vec/quant_avx512.h"
#elif defined __AVX2__
#include "cpu/kernels/vec/quant_avx2.h"
#else
#include "cpu/kernels/vec/quant_neon.h"
#endif
#include "cpu/kernels/vec/quant_scales.h"

static const float quant_most = 32512; // of a token's values; 127 * 256

// Where to fetch, in bytes from `at` of a row of `length`, for what is read `ahead` later. `rows` rows are read together from
// beginning to end; behind a row's end comes the row that takes its place.
VEC_INLINE ptrdiff_t rows_further(ptrdiff_t at, ptrdiff_t ahead, ptrdiff_t length, int rows)
{
    return at + ahead < length ? ahead : ahead + (rows - 1) * length;
}

// ------------------------------------------------------------------------------------------ rows

VEC_INLINE struct quants_at quants_of_row(enum dtype type, const struct product_args *a, ptrdiff_t row, ptrdiff_t group)
{
    const ptrdiff_t groups = (ptrdiff_t)quant_groups(a->cols);
    const enum dtype planes = planes_of(type, a->type);
    const uint8_t *low = (const uint8_t *)a->w + row * groups * (ptrdiff_t)dtype_group_bytes[planes];
    return groups_on(type, (struct quants_at){low, low + groups * low_bytes(planes), a->type}, group);
}
VEC_INLINE const uint8_t *scales_of_row(enum dtype type, const struct product_args *a, ptrdiff_t row, ptrdiff_t group)
{
    const size_t first = (size_t)(row * (ptrdiff_t)quant_groups(a->cols) + group);
    return quants_of_row(type, a, a->rows, 0).low + quant_scale_bytes(a->type, first);
}

// ------------------------------------------------------------------------------------------ many tokens

enum {
    MANY_ROWS = VEC == 16 ? 128 : 64,  // of a block of W
    MANY_TILE = QUANT_TILE_VECS * VEC, // tokens
    MANY_TOKENS = 528,                 // whole tiles: a prompt of 512 reads W once
};

// Tokens become integers VEC at a time, a vector for each column.

static const float least_magnitude = 1e-30f; // what is smaller counts as 0

// The integer nearest to x * factor, below 2^22, in the last bits: those of its sum with 1.5 * 2^23.
VEC_INLINE vec nearest_bits(vec x, vec factor)
{
    return vec_add(vec_mul(x, factor), vec_set(0x1.8p23f));
}

// Columns [0, n) of `tokens` tokens, and zeros: to (most, VEC).
VEC_INLINE void load_columns(float *to, int most, const float *x, ptrdiff_t ldx, int tokens, int n)
{
    if (tokens < VEC || n < most)
        memset(to, 0, sizeof *to * (size_t)most * VEC);
    transpose(to, VEC, x, ldx, tokens < VEC ? tokens : VEC, n < most ? n : most);
}

// Of each token the largest magnitude, compared as bits: NaN is larger than any number.
VEC_INLINE vec largest_of_columns(const float *columns, int n)
{
    ivec most[4] = {ivec_zero(), ivec_zero(), ivec_zero(), ivec_zero()};
    for (int c = 0; c < n; c += 4)
        for (int i = 0; i < 4; i++)
            most[i] = ivec_larger(most[i], vec_abs(vec_load(columns + (ptrdiff_t)(c + i) * VEC)));
    return ivec_as_floats(ivec_larger(ivec_larger(most[0], ivec_as_floats(most[1])),
                                      ivec_as_floats(ivec_larger(most[2], ivec_as_floats(most[3])))));
}

struct token_scales {
    vec unit, inverse; // a token's values are multiplied by the inverse, and their integers then count units
};

// So that the largest becomes `whole`. Where a value is not a number, or infinite, the unit is such a one.
VEC_INLINE struct token_scales scales_to(vec most, float whole)
{
    return (struct token_scales){.unit = vec_mul(most, vec_set(1 / whole)),
                                 .inverse = vec_where_above(most, least_magnitude, vec_div(vec_set(whole), most))};
}

// As many rows of W as a tile has, of the block that comes next: what a tile of vnni/fixed.h names a few lines of at a time.
// NULL: nothing.
struct many_lines {
    const char *at;
    ptrdiff_t apart; // bytes from row to row
};

// A block's rows, a few of them, with the tokens of a few panels, over `groups` groups.
struct many_tile {
    float *sums;             // (rows, MANY_TOKENS): the products are added to these, or, where `first`, replace them
    const void *w;           // (rows, MANY_COLS) many_weight
    const float *w_scales;   // (rows, MANY_SCALES)
    const char *panel;       // the first panel at the block's first group; the next panel's are panel_size bytes further
    const float *scales;     // of its tokens, where they have one in the whole block
    const float *group_sums; // of 16-bit tokens, sums of groups' integers: (groups, VEC)
    ptrdiff_t panel_size;
    int groups;
    bool first;
    struct many_lines next;
};

// Brings a float sum of a tile to memory. AVX2's 16 registers do not hold both kinds of sums, and gcc would rather have integer
// ones in memory through their loop.
VEC_INLINE void leave_registers(vec *sum)
{
#if defined __AVX2__ && !defined __AVXVNNI__ && !defined __AVX512F__
    __asm__("" : "+m"(*sum));
#else
    (void)sum;
#endif
}

// c[r][j] += the products of a pair of columns, of 16-bit integers, or with `first` are these. w: (n_rows, ldw), at the pair;
// panel: likewise.
VEC_INLINE void add_pair(bool first, int n_rows, int n_vecs, ivec c[QUANT_TALL_ROWS][QUANT_TILE_VECS], const int16_t *w,
                         ptrdiff_t ldw, const char *panel, ptrdiff_t panel_size)
{
    ivec x[QUANT_TILE_VECS];
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++)
        x[j] = ivec_load(panel + j * panel_size);
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        int32_t pair;
        memcpy(&pair, w + r * ldw, sizeof pair);
        const ivec weights = ivec_set(pair);
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            c[r][j] = first ? ivec_products(weights, x[j]) : ivec_dot(c[r][j], weights, x[j]);
    }
}

VEC_INLINE double dot_loop(long rounds)
{
    enum { CHAINS = 12 }; // as in fma_loop()
    ivec sum[CHAINS];
    volatile int start = 0x01010101; // volatile: the compiler must not know the factors
    const ivec b = ivec_set(start);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum[i] = ivec_set(i);
    for (long round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            sum[i] = ivec_dot8(sum[i], sum[i], b); // of itself, since products that stay the same could be computed once
    int32_t all[VEC];
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) {
        ivec_store(all, sum[i]);
        start = all[0]; // used
    }
    return 8.0 * VEC * CHAINS * (double)rounds;
}
