// The vectors of the instruction set that this file is compiled for.
#pragma once

#ifdef __AVX512F__
#include "cpu/kernels/vec/vec_avx512.h"
#elif defined __AVX2__
#include "cpu/kernels/vec/vec_avx2.h"
#else
#include "cpu/kernels/vec/vec_neon.h"
#endif

// The elements themselves.
// To L1 and L2, or to L2 alone: struct fetching.
VEC_INLINE void fetch_line(const char *line, bool to_l2)
{
    if (to_l2)
        __builtin_prefetch(line, 0, 2);
    else
        __builtin_prefetch(line, 0, 3);
}

VEC_INLINE vec vec_load_as(enum dtype type, const void *p, ptrdiff_t at)
{
    const vec x = vec_load_unit(type, p, at);
    return type == DTYPE_FP8 ? vec_mul(x, vec_set(fp8_unit(type))) : x;
}

VEC_INLINE vec vec_load_part_as(enum dtype type, const void *p, ptrdiff_t at, int n)
{
    const vec x = vec_load_part_unit(type, p, at, n);
    return type == DTYPE_FP8 ? vec_mul(x, vec_set(fp8_unit(type))) : x;
}
