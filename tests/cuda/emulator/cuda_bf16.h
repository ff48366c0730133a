// bfloat16 by CUDA's names: what the toolkit's header of this name has, as far as yalm uses it.
#pragma once
#include "cuda_runtime.h"
#include "emulated_convert.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits(emulated_float_to_bfloat16(value)) {}
    operator float() const { return emulated_bfloat16_to_float(bits); }
};
inline void emulated_to_floats(float *to, const __nv_bfloat16 *from, int n)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
}
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 x)
{
    return x;
}
inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}
inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return {x.x, x.y};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x)
{
    return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float2bfloat162_rn(float x)
{
    return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x)
{
    return {x, x};
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

// Arithmetic rounds once, as the device does: fp32 holds sums and products of two nearly or wholly exactly.
inline float __low2float(__nv_bfloat162 x)
{
    return x.x;
}
inline float __high2float(__nv_bfloat162 x)
{
    return x.y;
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x)
{
    return x.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x)
{
    return x.y;
}
inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16((float)a + (float)b);
}
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16((float)a - (float)b);
}
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16((float)a * (float)b);
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
