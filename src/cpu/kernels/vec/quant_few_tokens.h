// What a few tokens become for vec/quant_few.h, which says how they are multiplied.
#pragma once
#include "cpu/kernels/vec/quant.h"

enum {
    FEW_BLOCK = DIGITS == 2 ? QUANT_BLOCK : QUANT_GROUP, // columns with one scale
    PIECES = 4,                                          // of 4 bytes, in each lane
};

// The values of x in [first, first + FEW_BLOCK), less where the row ends at `cols`, as integers, then zeros; returns their
// scale. A block with a value that is not a number, or infinite, has such a scale.
VEC_INLINE float quantise_block(int16_t to[FEW_BLOCK], const float *x, int first, int cols)
{
    enum { N = FEW_BLOCK / VEC };
    const float largest = DIGITS == 2 ? quant_most : 127;
    vec v[N];
    for (int i = 0; i < N; i++) {
        const int left = cols - first - i * VEC;
        v[i] = left >= VEC ? vec_load(x + first + i * VEC) : vec_load_part(x + first + i * VEC, left > 0 ? left : 0);
    }
    const float most = largest_magnitude(v, N);
    const vec inverse = vec_set(most > 1e-30f ? largest / most : 0); // what is smaller counts as 0
    for (int i = 0; i < N; i++)
        ivec_store_narrow(to + i * VEC, ivec_round(vec_mul(v[i], inverse)));
    return most / largest;
}

// What four vectors of q4's nibbles, VEC groups, are multiplied with.
struct nibble_part {
    int8_t digits[DIGITS][PIECES][2][4 * VEC]; // the low ones come last; of each piece the even columns, and the odd ones
    int32_t less[VEC], less_second[VEC];       // -8 Σ x over a lane, and over the second half of its group
    float scales[VEC];
};

#if defined __AVX512VNNI__ || defined __ARM_FEATURE_DOTPROD
enum { BYTE_PARTS = DIGITS };
#else
enum { BYTE_PARTS = 2 };
#endif

// Likewise of q8, VEC / 2 groups.
struct byte_part {
    char x[PIECES][BYTE_PARTS][4 * VEC]; // the columns' digits; or else even and odd columns' integers
    int32_t less[VEC];                   // -128 Σ x over a lane
    float scales[VEC];
};

// Whether a type is multiplied as q8 is. Not iq4nl with VNNI, which is looked up after its nibbles are taken apart.
VEC_INLINE bool few_is_byte(enum dtype type)
{
#ifdef __AVX512VNNI__
    if (dtype_quants[type] == DTYPE_IQ4NL)
        return false;
#endif
    return dtype_is_byte(type);
}
VEC_INLINE int part_groups(enum dtype type)
{
    return few_is_byte(type) ? VEC / 2 : VEC;
}
VEC_INLINE ptrdiff_t part_size(enum dtype type)
{
    return (ptrdiff_t)(few_is_byte(type) ? sizeof(struct byte_part) : sizeof(struct nibble_part));
}

// A token: its groups, rounded up to VEC, as byte_parts, then as nibble_parts.
VEC_INLINE size_t few_groups(int cols)
{
    return (quant_groups(cols) + VEC - 1) / VEC * VEC;
}
VEC_INLINE ptrdiff_t few_parts(enum dtype type, int cols) // bytes
{
    return (ptrdiff_t)few_groups(cols) / part_groups(type) * part_size(type);
}
VEC_INLINE ptrdiff_t few_bytes(int cols)
{
    return few_parts(DTYPE_Q8, cols) + few_parts(DTYPE_Q4, cols);
}

// The lane of the i-th group of a part, or, of q8, of that half of it.
VEC_INLINE int part_lane(enum dtype type, int i, int half)
{
    const int in_vector = part_groups(type) / 4; // groups
    return (few_is_byte(type) ? i % in_vector * 2 + half : i % in_vector) * 4 + i / in_vector;
}

VEC_INLINE int8_t high_byte(int x)
{
    return (int8_t)((x + 128) >> 8);
}

VEC_INLINE int group_sum(const int16_t *x, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

VEC_INLINE void fill_nibbles(struct nibble_part *to, int lane, const int16_t x[QUANT_GROUP], float scale)
{
    int8_t high[2][QUANT_GROUP / 2], low[2][QUANT_GROUP / 2];
    for (int odd = 0; odd < 2; odd++)
        for (int i = 0; i < QUANT_GROUP / 2; i++) {
            high[odd][i] = high_byte(x[2 * i + odd]);
            low[odd][i] = (int8_t)x[2 * i + odd];
        }
    for (int piece = 0; piece < PIECES; piece++)
        for (int odd = 0; odd < 2; odd++) {
            memcpy(to->digits[0][piece][odd] + (ptrdiff_t)4 * lane, high[odd] + (ptrdiff_t)4 * piece, 4);
            memcpy(to->digits[DIGITS - 1][piece][odd] + (ptrdiff_t)4 * lane, low[odd] + (ptrdiff_t)4 * piece, 4);
        }
    to->less[lane] = -8 * group_sum(x, QUANT_GROUP);
    to->less_second[lane] = -8 * group_sum(x + QUANT_GROUP / 2, QUANT_GROUP / 2);
    to->scales[lane] = scale;
}

// Half a group.
VEC_INLINE void fill_bytes(struct byte_part *to, int lane, const int16_t x[QUANT_GROUP / 2], float scale)
{
    char first[QUANT_GROUP], second[QUANT_GROUP];
#if defined __AVX512VNNI__ || defined __ARM_FEATURE_DOTPROD
    for (int i = 0; i < QUANT_GROUP / 2; i++) {
        first[i] = high_byte(x[i]);
        second[i] = (int8_t)x[i];
    }
#else
    for (int i = 0; i < QUANT_GROUP / 4; i++) {
        memcpy(first + (ptrdiff_t)2 * i, x + (ptrdiff_t)2 * i, 2);
        memcpy(second + (ptrdiff_t)2 * i, x + (ptrdiff_t)2 * i + 1, 2);
    }
#endif
    for (int piece = 0; piece < PIECES; piece++) {
        memcpy(to->x[piece][0] + (ptrdiff_t)4 * lane, first + (ptrdiff_t)4 * piece, 4);
        memcpy(to->x[piece][BYTE_PARTS - 1] + (ptrdiff_t)4 * lane, second + (ptrdiff_t)4 * piece, 4);
    }
    to->less[lane] = -128 * group_sum(x, QUANT_GROUP / 2);
    to->scales[lane] = scale;
}

VEC_INLINE void quantise_token(char *to, const float *x, int cols, int first_col, int last_col)
{
    struct byte_part *bytes = (struct byte_part *)to;
    struct nibble_part *nibbles = (struct nibble_part *)(to + few_parts(DTYPE_Q8, cols));
    // Past the end to the last whole part, zeros: weights may be absent there, but what was in memory could be anything.
    const int end = last_col < cols ? last_col : (int)few_groups(cols) * QUANT_GROUP;
    for (int c = first_col; c < end; c += FEW_BLOCK) {
        int16_t block[FEW_BLOCK];
        const float scale = quantise_block(block, x, c, cols);
        for (int i = 0; i < FEW_BLOCK / QUANT_GROUP; i++) {
            const int group = c / QUANT_GROUP + i, in_bytes = group % part_groups(DTYPE_Q8);
            const int16_t *values = block + (ptrdiff_t)i * QUANT_GROUP;
            fill_nibbles(nibbles + group / VEC, part_lane(DTYPE_Q4, group % VEC, 0), values, scale);
            for (int half = 0; half < 2; half++)
                fill_bytes(bytes + group / part_groups(DTYPE_Q8), part_lane(DTYPE_Q8, in_bytes, half),
                           values + (ptrdiff_t)half * (QUANT_GROUP / 2), scale);
        }
    }
}

VEC_INLINE size_t few_size(int n, int cols)
{
    return (size_t)n * (size_t)few_bytes(cols);
}

VEC_INLINE void few_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (int t = 0; t < n; t++)
        quantise_token((char *)to + t * few_bytes(cols), x + t * ldx, cols, first_col, last_col);
}
