// fp16 and bf16 as bits, converted as IEEE 754 says: to the nearest, ties to even.
#pragma once
#include <cstdint>

#include "emulated_math.h"

// F16C by the compilers' own names: <immintrin.h>, which has the others, takes each file as long to read as all the rest.
#ifdef __F16C__
typedef short emulated_halves __attribute__((vector_size(16)));
typedef float emulated_floats __attribute__((vector_size(16)));
#endif

inline float emulated_half_to_float(uint16_t half)
{
#ifdef __F16C__
    if ((half & 0x7c00u) != 0x7c00u) {
        return __builtin_ia32_vcvtph2ps(emulated_halves{(short)half})[0];
    }
#endif
    uint32_t magnitude = half & 0x7fffu;
    float value;
    if (magnitude >= 0x7c00u) { // infinity, NaN
        value = emulated_bits<float>(0x7f800000u | (magnitude & 0x3ffu) << 13);
    } else {
        value = emulated_bits<float>(magnitude << 13) * 0x1p112f; // subnormals become normal on the way, exactly
    }
    return emulated_bits<float>(emulated_bits<uint32_t>(value) | (uint32_t)(half & 0x8000u) << 16);
}

inline uint16_t emulated_float_to_half(float value)
{
    uint32_t bits = emulated_bits<uint32_t>(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fff; // CUDA's one NaN
    }
#ifdef __F16C__
    return (uint16_t)__builtin_ia32_vcvtps2ph(emulated_floats{value}, 0)[0]; // to the nearest
#else
    uint32_t sign = bits >> 16 & 0x8000u;
    if (magnitude >= 0x477ff000u) { // 65520 and more round to infinity
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { // subnormal: the addition rounds at the place of half's last bit
        float shifted = emulated_bits<float>(magnitude) + 0.5f;
        return (uint16_t)(sign | (emulated_bits<uint32_t>(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
#endif
}

inline float emulated_bfloat16_to_float(uint16_t bits)
{
    return emulated_bits<float>((uint32_t)bits << 16);
}

inline uint16_t emulated_float_to_bfloat16(float value)
{
    uint32_t bits = emulated_bits<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
