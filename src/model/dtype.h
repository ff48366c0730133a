// Element types of tensors.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_FP32,
    DTYPE_FP16,
    DTYPE_BF16,
    DTYPE_FP8, // E4M3 without infinities (Micikevicius et al., arXiv 2209.05433), and a scale for each row
    DTYPE_FP8_E5M2,
    DTYPE_Q8,
    DTYPE_Q4,
    DTYPE_Q4N, // q4n, q5, q6: integers of six bits, model/quant_values.h
    DTYPE_Q5,
    DTYPE_Q6,
    DTYPE_BF12, // bfloat16 without loss, in 12 bits: model/bf12.h
    DTYPE_U8,
    DTYPE_U32,
    DTYPE_COUNT
};

// The types that a weight matrix can have come first, and of these the ones that are arrays of floating-point numbers.
enum { DTYPE_FLOATS = DTYPE_FP8_E5M2 + 1, DTYPE_WEIGHTS = DTYPE_BF12 + 1 };

// The quantised types: each group of QUANT_GROUP columns in a row has one scale, and with six bits each row another. All rows'
// quants come first, then all groups' scales, then all rows' (docs/format.md, "Quantised matrices").
enum { QUANT_GROUP = 32 };

// ROW(Q8, q8, …) for each quantised type: tables of functions are made with it.
#define QUANT_TYPES(ROW, ...)                                                                                                  \
    ROW(Q8, q8, __VA_ARGS__)                                                                                                   \
    ROW(Q4, q4, __VA_ARGS__)                                                                                                   \
    ROW(Q4N, q4n, __VA_ARGS__)                                                                                                 \
    ROW(Q5, q5, __VA_ARGS__)                                                                                                   \
    ROW(Q6, q6, __VA_ARGS__)

static const char *const dtype_names[DTYPE_COUNT] = {"fp32", "fp16", "bf16", "fp8",  "fp8_e5m2", "q8", "q4",
                                                     "q4n",  "q5",   "q6",   "bf12", "u8",       "u32"};

// Bytes of an element; of the quantised types and bf12, 0.
static const uint64_t dtype_sizes[DTYPE_COUNT] = {4, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 4};

// Bytes of a group's quants; 0 for types that are not quantised. (In order: C++ reads this too.)
static const uint64_t dtype_group_bytes[DTYPE_COUNT] = {
    0, 0, 0, 0, 0, QUANT_GROUP, QUANT_GROUP / 2, QUANT_GROUP / 2, QUANT_GROUP / 8 * 5, QUANT_GROUP / 8 * 6, 0, 0, 0};

// Bytes of a group's scale: fp16, or an integer with sign.
static const uint64_t dtype_group_scale[DTYPE_COUNT] = {0, 0, 0, 0, 0, 2, 2, 1, 1, 1, 0, 0, 0};

// Bytes of a row's scale, a float: after all rows' elements, and groups' scales, follow all rows' scales, which need not be
// aligned.
static const uint64_t dtype_row_scale[DTYPE_COUNT] = {
    0, 0, 0, sizeof(float), 0, 0, 0, sizeof(float), sizeof(float), sizeof(float), 0, 0, 0};

// Bytes of a group in the first plane: all of q8's bits, the low four of the others. A row has the first planes of all its
// groups, then the second.
static inline size_t dtype_low_bytes(enum dtype type)
{
    return dtype_group_bytes[type] > QUANT_GROUP / 2 && type != DTYPE_Q8 ? QUANT_GROUP / 2 : (size_t)dtype_group_bytes[type];
}

static inline size_t quant_groups(int cols) // in a row; the last one is filled up with zeros
{
    return ((size_t)cols + QUANT_GROUP - 1) / QUANT_GROUP;
}

// bf12: a row is a header, a cache line for each BF12_HEADER_COLS columns, and then blocks of BF12_BLOCK columns
// (docs/format.md, "bfloat16 in 12 bits").
enum { BF12_BLOCK = 128, BF12_BLOCK_BYTES = BF12_BLOCK * 12 / 8, BF12_HEADER_COLS = 4096, BF12_MOST_COLS = 65536 };

static inline size_t bf12_header_bytes(int cols)
{
    return ((size_t)cols + BF12_HEADER_COLS - 1) / BF12_HEADER_COLS * 64;
}

static inline size_t bf12_row_bytes(int cols)
{
    return bf12_header_bytes(cols) + ((size_t)cols + BF12_BLOCK - 1) / BF12_BLOCK * BF12_BLOCK_BYTES;
}

// Bytes that a matrix of this type has for each row, scales included.
static inline size_t dtype_row_bytes(enum dtype type, int cols)
{
    const size_t group = dtype_group_bytes[type];
    if (type == DTYPE_BF12)
        return bf12_row_bytes(cols);
    return (group ? quant_groups(cols) * (group + dtype_group_scale[type]) : (size_t)cols * dtype_sizes[type]) +
           dtype_row_scale[type];
}
