// Integers of six bits, -32 … 31, among them those of fewer bits, and how the file encodes them (docs/format.md,
// "Quantised matrices").
#pragma once
#include "model/dtype.h"

// CUDA's kernels are compiled with the tables.
#ifdef __cplusplus
#define QUANT_TABLE static constexpr int8_t
#else
#define QUANT_TABLE static const int8_t
#endif

// The values of q4n's four bits, q5's five, q3's three and q2's two (vectors look up sixteen). Where bits are enough they are
// dense near 0, where most weights are.
QUANT_TABLE q4n_values[16] = {-32, -24, -18, -13, -9, -6, -4, -2, 0, 2, 4, 7, 10, 14, 19, 26};
QUANT_TABLE q5_values[32] = {-32, -28, -25, -22, -19, -17, -15, -13, -11, -9, -7, -6, -5, -3, -2, -1,
                             0,   1,   2,   3,   4,   5,   6,   8,   10,  12, 14, 16, 19, 22, 25, 29};
QUANT_TABLE q3_values[16] = {-32, -18, -10, -4, 2, 8, 16, 26};
QUANT_TABLE q2_values[16] = {-32, -11, 4, 21};
// Twice the numbers of OCP's E2M1, and the integers of GGUF's IQ4_NL, which have eight bits.
QUANT_TABLE mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
QUANT_TABLE iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// What four bits or fewer stand for, where they are looked up.
static inline const int8_t *dtype_table(enum dtype type)
{
    type = dtype_quants[type];
    return type == DTYPE_Q4N     ? q4n_values
           : type == DTYPE_Q3    ? q3_values
           : type == DTYPE_Q2    ? q2_values
           : type == DTYPE_MXFP4 ? mxfp4_values
           : type == DTYPE_IQ4NL ? iq4_values
                                 : (const int8_t *)0;
}
// Whether the type's integers are multiplied as q8's.
static inline int dtype_is_byte(enum dtype type)
{
    return dtype_quants[type] == DTYPE_Q8 || dtype_quants[type] == DTYPE_IQ4NL || dtype_is_grid(type);
}

// Whether the type has such integers, with a second plane or values that are looked up.
static inline int dtype_is_six_bit(enum dtype type)
{
    const enum dtype quants = dtype_quants[type];
    return quants == DTYPE_Q4N || quants == DTYPE_MXFP4 || quants == DTYPE_Q5 || quants == DTYPE_Q6 || quants == DTYPE_Q5K ||
           dtype_low_pairs(quants);
}

// What is added to an affine type's integers, which have a sign in the file, before they are multiplied by a scale: then they
// begin with 0. (q2k's have none.)
static inline int dtype_centre(enum dtype type)
{
    if (!dtype_is_affine(type) || type == DTYPE_Q2K)
        return 0;
    return dtype_quants[type] == DTYPE_Q4 ? 8 : 16;
}

// Column c of 32 of a group, whose first plane is at `low` and whose second one is at `high`.
static inline int six_bit_value(enum dtype type, const uint8_t *low, const uint8_t *high, int c)
{
    const int eight = c / 8, pair = c % 8 / 2, odd = c % 2;
    type = dtype_quants[type];
    if (dtype_low_pairs(type)) {
        const int two = low[4 * odd + pair] >> (2 * eight) & 3;
        const int third = dtype_group_bytes[type] > QUANT_GROUP / 4 ? (high[pair] >> (2 * eight + odd) & 1) * 4 : 0;
        return dtype_table(type) ? dtype_table(type)[two + third] : two - third;
    }
    const int nibble = low[c / 2] >> (c % 2 * 4) & 15;
    if (dtype_table(type))
        return dtype_table(type)[nibble];
    if (type == DTYPE_Q5 || type == DTYPE_Q5K) {
        const int bits = nibble | (high[pair] >> (2 * eight + odd) & 1) << 4;
        return type == DTYPE_Q5 ? q5_values[bits] : bits - (bits & 16) * 2;
    }
    const int bits = nibble | (high[4 * odd + pair] >> (2 * eight) & 3) << 4;
    return bits - (bits & 32) * 2;
}
