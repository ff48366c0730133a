// fp16 and float32 numbers as their bits.
#pragma once
#include <stdint.h>
#include <string.h>

static inline float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fp16_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) { // infinity, or NaN (made quiet, as the hardware does)
        const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
        return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | quiet);
    }
    if (magnitude < 0x400) // zero or subnormal: a multiple of 2^-24, exact in a float
        return bits_to_float(sign | float_to_bits((float)magnitude * 0x1p-24f));
    return bits_to_float(sign | ((magnitude << 13) + ((uint32_t)(127 - 15) << 23)));
}
