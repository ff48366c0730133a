// What every vector width has, whatever the processor.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/dtype.h"

// Kernels are written once as inline functions over a vector width (vec/vec_avx2.h and its likes) and an element type; each
// instantiation must be one flat loop, hence the force. Not where each address is checked: such loops take the compiler ten
// times as long.
#ifdef __SANITIZE_ADDRESS__
#define VEC_INLINE static inline
#else
#define VEC_INLINE static inline __attribute__((always_inline))
#endif

// fp8 elements become floats by way of halves. E5M2 is a half's upper byte. E4M3's exponent has a bit less than a half's, and a
// bias of 7 instead of 15. With its bits in a half's places, the half lacks this factor, subnormals included.
VEC_INLINE float fp8_unit(enum dtype type)
{
    return type == DTYPE_FP8 ? 0x1p8f : 1.0f;
}
