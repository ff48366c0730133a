// What the scalar files share: conversions by bit arithmetic, and the functions that stand in the table.
#pragma once
#include <math.h>
#include <string.h>

#include "cpu/kernels/floats.h"
#include "cpu/kernels/kernels.h"
#include "model/bf12.h"
#include "model/half.h"

// E4M3's exponent has a bit less than a half's, and a bias of 7 instead of 15. With its bits in a half's places, the half is
// 2^-8 of the value, subnormals included.
static inline float fp8_to_float(uint8_t bits)
{
    return 0x1p8f * fp16_to_float((uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7));
}

// Element i of an array of the given type.
static inline float element(enum dtype type, const void *x, ptrdiff_t i)
{
    switch (type) {
    case DTYPE_FP32:
        return ((const float *)x)[i];
    case DTYPE_FP16:
        return fp16_to_float(((const uint16_t *)x)[i]);
    case DTYPE_FP8:
        return fp8_to_float(((const uint8_t *)x)[i]);
    case DTYPE_FP8_E5M2: // a half's upper byte
        return fp16_to_float((uint16_t)(((const uint8_t *)x)[i] << 8));
    default:
        return bf16_value(((const uint16_t *)x)[i]);
    }
}

#define SCALAR_PRODUCTS(TYPE, type, ...)                                                                                       \
    matvec_function scalar_matvec_##type;                                                                                      \
    product_function scalar_matmul_##type;
FLOAT_TYPES(SCALAR_PRODUCTS, )
matvec_function scalar_matvec_bf12;
packed_size_function scalar_packed_size;
pack_function scalar_pack_tokens;
attend_function scalar_attend_fp16, scalar_attend_fp32, scalar_attend_int8;
