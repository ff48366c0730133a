// Floats as AVX2 and AVX-512 write them alike. Included by vec/vec_avx2.h and vec/vec_avx512.h, which define the names of their
// intrinsics.
#pragma once

VEC_INLINE vec vec_zero(void)
{
    return X86(setzero_ps)();
}
VEC_INLINE vec vec_set(float x)
{
    return X86(set1_ps)(x);
}
VEC_INLINE vec vec_add(vec a, vec b)
{
    return X86(add_ps)(a, b);
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return X86(sub_ps)(a, b);
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return X86(mul_ps)(a, b);
}
VEC_INLINE vec vec_div(vec a, vec b)
{
    return X86(div_ps)(a, b);
}
VEC_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return X86(fmadd_ps)(a, b, c);
} // a b + c
VEC_INLINE vec vec_min(vec a, vec b)
{
    return X86(min_ps)(a, b);
} // b where either is NaN
VEC_INLINE vec vec_max(vec a, vec b)
{
    return X86(max_ps)(a, b);
} // likewise
VEC_INLINE vec vec_load(const float *p)
{
    return X86(loadu_ps)(p);
}
VEC_INLINE void vec_store(float *p, vec x)
{
    X86(storeu_ps)(p, x);
}

// x, which is not to be loaded again at each use: that would take as many loads as there are multiply-adds.
VEC_INLINE vec vec_loaded(vec x)
{
    __asm__("" : "+v"(x));
    return x;
}
