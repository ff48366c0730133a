// The grids of GGUF's IQ types: what an index of eight columns, or of four, stands for, as bytes, the first column lowest. And
// where a group's indices and signs lie (docs/format.md, "Grids").
#pragma once
#include <string.h>

#include "model/dtype.h"

extern const uint64_t iq2xxs_grid[256], iq2xs_grid[512], iq2s_grid[1024];
extern const uint32_t iq3xxs_grid[256], iq3s_grid[512];

// Of a group whose planes are at `low` and `high`: the index of four columns of IQ3, or of eight of IQ2.
static inline int grid_index(enum dtype type, const uint8_t *low, const uint8_t *high, int i)
{
    switch (type) {
    case DTYPE_IQ3S:
        return low[i] | (high[4] >> i & 1) << 8;
    case DTYPE_IQ2S:
        return low[i] | (high[4] >> 2 * i & 3) << 8;
    case DTYPE_IQ2XS:
        return low[i] | (high[i] & 128) << 1;
    default:
        return low[i];
    }
}

// The magnitudes of eight columns, of a group's four eights.
static inline uint64_t grid_eight(enum dtype type, const uint8_t *low, const uint8_t *high, int eight)
{
    const uint64_t *by_eights = type == DTYPE_IQ2S ? iq2s_grid : type == DTYPE_IQ2XS ? iq2xs_grid : iq2xxs_grid;
    const uint32_t *by_fours = type == DTYPE_IQ3S ? iq3s_grid : iq3xxs_grid;
    if (type == DTYPE_IQ3S || type == DTYPE_IQ3XXS)
        return by_fours[grid_index(type, low, high, 2 * eight)] | (uint64_t)by_fours[grid_index(type, low, high, 2 * eight + 1)]
                                                                      << 32;
    return by_eights[grid_index(type, low, high, eight)];
}

// Bits in the order of columns, set where a magnitude is to be negative. Types with a bit for each of seven columns have an
// even number of them in each eight.
static inline uint32_t grid_signs(enum dtype type, const uint8_t *high)
{
    uint32_t signs;
    memcpy(&signs, high, sizeof signs);
    if (type == DTYPE_IQ3S || type == DTYPE_IQ2S)
        return signs;
    signs &= 0x7f7f7f7f;
    uint32_t odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return signs | (odd & 0x01010101) << 7;
}

// The scale's four bits, of types that have one in each byte of signs.
static inline int grid_scale(const uint8_t *high)
{
    return high[0] >> 7 | high[1] >> 7 << 1 | high[2] >> 7 << 2 | high[3] >> 7 << 3;
}
