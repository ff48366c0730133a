// Matrices of bfloat16 numbers in 12 bits each, without loss (docs/format.md, "bfloat16 in 12 bits"). Sign and fraction stay;
// the exponent becomes its distance from the row's largest. Of trained weights about one in ten thousand is further below than
// the four bits can say: those stand in the row's header, whole.
//
// Reading needs no branch a weight: a rotation brings sign and fraction to where a float has them, a table of 16 the exponent.
#pragma once
#include <stdint.h>
#include <string.h>

#include "model/dtype.h"

// A number that the row's blocks do not hold, where they have a zero in its place.
struct bf12_exception {
    uint16_t col, value; // bfloat16
};

// What a row's header begins with; as many exceptions follow.
struct bf12_header {
    uint8_t exponent, zero; // the largest, as a float has it
    uint16_t n_exceptions;  // at most what the header has room for; a damaged file may say more
};

// Code BF12_NONE stands for an exponent of zero, so for zeros and numbers below 2^-126.
enum { BF12_NONE = 15 };

struct bf12_row {
    struct bf12_header header; // with n_exceptions that are there
    const struct bf12_exception *exceptions;
    const uint32_t *blocks; // each (3, 16): sign and fraction of columns 0 … 63, of 64 … 127, codes
};

// A row at `at`, which is on a boundary of four bytes.
static inline struct bf12_row bf12_row_at(const void *at, int cols)
{
    struct bf12_row row;
    memcpy(&row.header, at, sizeof row.header);
    row.exceptions = (const struct bf12_exception *)((const char *)at + sizeof row.header);
    row.blocks = (const uint32_t *)((const char *)at + bf12_header_bytes(cols));
    const size_t room = (bf12_header_bytes(cols) - sizeof row.header) / sizeof *row.exceptions;
    if (row.header.n_exceptions > room)
        row.header.n_exceptions = (uint16_t)room;
    return row;
}

static inline float bf16_value(uint16_t bits)
{
    const uint32_t of_float = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &of_float, sizeof value);
    return value;
}

// Column c of the row's blocks, exceptions aside. Its sign and fraction lie rotated by 8 bits for each 16 columns in a word,
// its code 4 bits higher for each 16.
static inline uint16_t bf12_number(const struct bf12_row *row, int c)
{
    const uint32_t *block = row->blocks + c / BF12_BLOCK * (BF12_BLOCK_BYTES / 4);
    const int in_block = c % BF12_BLOCK, lane = c % 16, turn = in_block % 64 / 16 * 8;
    const uint32_t word = block[in_block / 64 * 16 + lane], code = block[32 + lane] >> in_block / 16 * 4 & 15;
    const uint32_t bits = turn ? word << turn | word >> (32 - turn) : word;
    const int exponent = code == BF12_NONE || (int)code > row->header.exponent ? 0 : row->header.exponent - (int)code;
    return (uint16_t)((bits >> 16 & 0x807f) | (uint32_t)exponent << 7);
}

// The bfloat16 numbers of rows [first_row, last_row) of w (rows, cols), in plain C. to: (last_row - first_row, cols).
void bf12_to_bf16(uint16_t *to, const void *w, int first_row, int last_row, int cols);

// Columns first … first + n - 1 of row `row` of w (rows, cols). y: (n).
void bf12_to_fp32(float *y, const void *w, int cols, int row, int first, int n);

// Into a row of bfloat16 numbers, (cols), the exceptions'.
static inline void bf12_put_exceptions(uint16_t *to, const struct bf12_row *row, int cols)
{
    for (int i = 0; i < row->header.n_exceptions; i++)
        if (row->exceptions[i].col < cols) // of a damaged file it may not be
            to[row->exceptions[i].col] = row->exceptions[i].value;
}
