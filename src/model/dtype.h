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
    DTYPE_Q4N, // q4n, q5, q6, q3, q2: integers of six bits, model/quant_values.h
    DTYPE_Q5,
    DTYPE_Q6,
    DTYPE_Q3,
    DTYPE_Q2,
    DTYPE_Q5U, // five bits in equal steps, as q4's four
    DTYPE_Q4K, // q4k, q5k, q6k: GGUF's K-quants, value by value; q4a, q5a: groups with a minimum (docs/format.md)
    DTYPE_Q5K,
    DTYPE_Q6K,
    DTYPE_Q4A,
    DTYPE_Q5A,
    DTYPE_MXFP4, // E2M1 times powers of two; iq4nl, iq4xs: GGUF's, whose four bits stand for integers of eight
    DTYPE_IQ4NL,
    DTYPE_IQ4XS,
    DTYPE_Q4Z32, // AWQ's and GPTQ's: a scale and a zero point for 32 columns, 64, or 128
    DTYPE_Q4Z64,
    DTYPE_Q4Z128,
    DTYPE_Q3K, // GGUF's K-quants of three and two bits
    DTYPE_Q2K,
    DTYPE_IQ3S, // and its grids: model/quant_grids.h
    DTYPE_IQ3XXS,
    DTYPE_IQ2S,
    DTYPE_IQ2XS,
    DTYPE_IQ2XXS,
    DTYPE_BF12, // bfloat16 without loss, in 12 bits: model/bf12.h
    DTYPE_U8,
    DTYPE_U32,
    DTYPE_COUNT
};

// The types that a weight matrix can have come first, and of these the ones that are arrays of floating-point numbers.
enum { DTYPE_FLOATS = DTYPE_FP8_E5M2 + 1, DTYPE_WEIGHTS = DTYPE_BF12 + 1 };

// The quantised types: each group of QUANT_GROUP columns in a row has a scale of its own, and what more its type has. All rows'
// quants come first, then all groups' scales, then all rows' (docs/format.md, "Quantised matrices"). A row's scales are counted
// in eights of groups: those of some types stand together, with scales in common, so their rows are whole eights.
enum { QUANT_GROUP = 32, QUANT_EIGHT = 8, QUANT_EIGHT_COLS = QUANT_EIGHT * QUANT_GROUP };

// ROW(Q4A, q4k, …) for each quantised type, and the one whose kernels multiply it. Of those that share kernels the integers
// lie alike; what they are multiplied by is read in another way. Tables of functions are made with it.
#define QUANT_TYPES(ROW, ...)                                                                                                  \
    QUANT_KERNELS(ROW, __VA_ARGS__)                                                                                            \
    ROW(Q4A, q4k, __VA_ARGS__)                                                                                                 \
    ROW(Q5A, q5k, __VA_ARGS__)                                                                                                 \
    ROW(IQ4XS, iq4nl, __VA_ARGS__)                                                                                             \
    ROW(Q4Z32, q4k, __VA_ARGS__)                                                                                               \
    ROW(Q4Z64, q4k, __VA_ARGS__)                                                                                               \
    ROW(Q4Z128, q4k, __VA_ARGS__)                                                                                              \
    ROW(IQ3XXS, iq3s, __VA_ARGS__)                                                                                             \
    ROW(IQ2S, iq3s, __VA_ARGS__)                                                                                               \
    ROW(IQ2XS, iq3s, __VA_ARGS__)                                                                                              \
    ROW(IQ2XXS, iq3s, __VA_ARGS__)
// ROW(Q8, q8, …) for those that have kernels.
#define QUANT_KERNELS(ROW, ...)                                                                                                \
    DEVICE_QUANT_TYPES(ROW, __VA_ARGS__)                                                                                       \
    ROW(Q3, q3, __VA_ARGS__)                                                                                                   \
    ROW(Q2, q2, __VA_ARGS__)                                                                                                   \
    ROW(Q4K, q4k, __VA_ARGS__)                                                                                                 \
    ROW(Q5K, q5k, __VA_ARGS__)                                                                                                 \
    ROW(Q6K, q6k, __VA_ARGS__)                                                                                                 \
    ROW(Q5U, q5u, __VA_ARGS__)                                                                                                 \
    ROW(IQ4NL, iq4nl, __VA_ARGS__)                                                                                             \
    ROW(MXFP4, mxfp4, __VA_ARGS__)                                                                                             \
    ROW(Q3K, q3k, __VA_ARGS__)                                                                                                 \
    ROW(Q2K, q2k, __VA_ARGS__)                                                                                                 \
    ROW(IQ3S, iq3s, __VA_ARGS__)
// Those that the CUDA half multiplies.
#define DEVICE_QUANT_TYPES(ROW, ...)                                                                                           \
    ROW(Q8, q8, __VA_ARGS__)                                                                                                   \
    ROW(Q4, q4, __VA_ARGS__)                                                                                                   \
    ROW(Q4N, q4n, __VA_ARGS__)                                                                                                 \
    ROW(Q5, q5, __VA_ARGS__)                                                                                                   \
    ROW(Q6, q6, __VA_ARGS__)

static const char *const dtype_names[DTYPE_COUNT] = {
    "fp32", "fp16", "bf16", "fp8",    "fp8_e5m2", "q8",    "q4",     "q4n",   "q5",    "q6",    "q3",    "q2",
    "q5u",  "q4k",  "q5k",  "q6k",    "q4a",      "q5a",   "mxfp4",  "iq4nl", "iq4xs", "q4z32", "q4z64", "q4z128",
    "q3k",  "q2k",  "iq3s", "iq3xxs", "iq2s",     "iq2xs", "iq2xxs", "bf12",  "u8",    "u32"};

// Bytes of an element; of the quantised types and bf12, 0. (These tables are in order: C++ reads them too.)
static const uint64_t dtype_sizes[DTYPE_COUNT] = {4, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4};

// Bytes of a group's quants; 0 for types that are not quantised.
static const uint64_t dtype_group_bytes[DTYPE_COUNT] = {0,  0,  0,  0,  0,  32, 16, 16, 20, 24, 12, 8, 20, 16, 20, 24, 16,
                                                        20, 16, 16, 16, 16, 16, 16, 12, 8,  13, 12, 9, 8,  8,  0,  0,  0};

// Bytes that eight groups have as scales.
static const uint64_t dtype_eight_scales[DTYPE_COUNT] = {0,  0, 0,  0,  0,  16, 16, 8,  8,  8, 8, 8,  16, 16, 16, 18, 32,
                                                         32, 8, 16, 10, 24, 12, 6,  14, 20, 6, 2, 10, 10, 2,  0,  0,  0};

// Bytes of a row's scale, a float: after all rows' elements, and groups' scales, follow all rows' scales, which need not be
// aligned.
static const uint64_t dtype_row_scale[DTYPE_COUNT] = {0, 0, 0, 4, 0, 0, 0, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0,
                                                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

// The type whose integers this one has: theirs differ in scales alone.
static const enum dtype dtype_quants[DTYPE_COUNT] = {
    DTYPE_FP32,  DTYPE_FP16,  DTYPE_BF16,  DTYPE_FP8,  DTYPE_FP8_E5M2, DTYPE_Q8,  DTYPE_Q4,  DTYPE_Q4N, DTYPE_Q5,
    DTYPE_Q6,    DTYPE_Q3,    DTYPE_Q2,    DTYPE_Q5K,  DTYPE_Q4,       DTYPE_Q5K, DTYPE_Q6,  DTYPE_Q4,  DTYPE_Q5K,
    DTYPE_MXFP4, DTYPE_IQ4NL, DTYPE_IQ4NL, DTYPE_Q4,   DTYPE_Q4,       DTYPE_Q4,  DTYPE_Q3K, DTYPE_Q2K, DTYPE_IQ3S,
    DTYPE_IQ3S,  DTYPE_IQ3S,  DTYPE_IQ3S,  DTYPE_IQ3S, DTYPE_BF12,     DTYPE_U8,  DTYPE_U32};

// Whether the type is there to keep the numbers of a file that is quantised, and no weight is rounded to it.
static inline int dtype_keeps(enum dtype type)
{
    return type >= DTYPE_Q5U && type <= DTYPE_IQ2XXS;
}
// How many scales with zero points eight groups have; 0 for other types.
static inline int dtype_zeros(enum dtype type)
{
    return type == DTYPE_Q4Z32 ? 8 : type == DTYPE_Q4Z64 ? 4 : type == DTYPE_Q4Z128 ? 2 : 0;
}
// Whether magnitudes are looked up for several columns at a time.
static inline int dtype_is_grid(enum dtype type)
{
    return type >= DTYPE_IQ3S && type <= DTYPE_IQ2XXS;
}
// Whether other types share this one's kernels.
static inline int dtype_is_shared(enum dtype type)
{
    return type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_IQ4NL;
}
// Whether eight groups' scales stand together: columns are a multiple of QUANT_EIGHT_COLS.
static inline int dtype_in_eights(enum dtype type)
{
    return type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q6K || type == DTYPE_IQ4XS || type == DTYPE_Q3K ||
           type == DTYPE_Q2K || dtype_is_grid(type) || dtype_zeros(type);
}
// Whether a group has a number that is added to all its values; and whether either half has its own, and its own scale.
static inline int dtype_is_affine(enum dtype type)
{
    return type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q4A || type == DTYPE_Q5A || type == DTYPE_Q2K ||
           dtype_zeros(type);
}
static inline int dtype_has_halves(enum dtype type)
{
    return type == DTYPE_Q6K || type == DTYPE_Q3K || type == DTYPE_Q2K || dtype_is_grid(type);
}

// Whether the first plane has two bits of each column, as q6's second one.
static inline int dtype_low_pairs(enum dtype type)
{
    return type == DTYPE_Q3K || type == DTYPE_Q2K || type == DTYPE_Q3 || type == DTYPE_Q2;
}
// Bytes of a group in the first plane: all of q8's bits, the low two or four of the others. A row has the first planes of all
// its groups, then the second.
static inline size_t dtype_low_bytes(enum dtype type)
{
    if (dtype_low_pairs(type))
        return QUANT_GROUP / 4;
    if (dtype_is_grid(type)) // indices' low bytes
        return type == DTYPE_IQ3S || type == DTYPE_IQ3XXS ? QUANT_GROUP / 4 : QUANT_GROUP / 8;
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

// Bytes of the scales of so many groups.
static inline size_t quant_scale_bytes(enum dtype type, size_t groups)
{
    return groups * (size_t)dtype_eight_scales[type] / QUANT_EIGHT;
}

// Bytes that a matrix of this type has for each row, scales included.
static inline size_t dtype_row_bytes(enum dtype type, int cols)
{
    const size_t group = dtype_group_bytes[type];
    if (type == DTYPE_BF12)
        return bf12_row_bytes(cols);
    return (group ? quant_groups(cols) * group + quant_scale_bytes(type, quant_groups(cols))
                  : (size_t)cols * dtype_sizes[type]) +
           dtype_row_scale[type];
}
