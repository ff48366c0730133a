// fp16 by CUDA's names: what the toolkit's header of this name has, as far as yalm uses it.
#pragma once
#include "cuda_runtime.h"
#include "emulated_convert.h"

struct __half {
    uint16_t bits;
    __half() = default;
    __half(float value) : bits(emulated_float_to_half(value)) {}
    operator float() const { return emulated_half_to_float(bits); }
};
struct alignas(4) __half2 {
    __half x, y;
};
using half = __half;
// n: a multiple of eight.
inline void emulated_to_floats(float *to, const __half *from, int n)
{
#ifdef __F16C__
    for (int i = 0; i < n; i += 8) {
        emulated_halves eight;
        memcpy(&eight, from + i, sizeof(eight));
        auto floats = __builtin_ia32_vcvtph2ps256(eight);
        memcpy(to + i, &floats, sizeof(floats));
    }
#else
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
#endif
}
using half2 = __half2;

inline float __half2float(__half x)
{
    return x;
}
inline __half __float2half(float x)
{
    return __half(x);
}
inline __half __float2half_rn(float x)
{
    return __half(x);
}
inline float2 __half22float2(__half2 x)
{
    return {x.x, x.y};
}
inline __half2 __float22half2_rn(float2 x)
{
    return {__half(x.x), __half(x.y)};
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}
inline __half2 __float2half2_rn(float x)
{
    return {__half(x), __half(x)};
}
inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}
inline __half2 make_half2(__half x, __half y)
{
    return {x, y};
}
inline __half2 __half2half2(__half x)
{
    return {x, x};
}
inline __half __ushort_as_half(unsigned short bits)
{
    __half x;
    x.bits = bits;
    return x;
}
inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

// Arithmetic rounds once, as the device does: fp32 holds sums and products of two nearly or wholly exactly.
inline float __low2float(__half2 x)
{
    return x.x;
}
inline float __high2float(__half2 x)
{
    return x.y;
}
inline __half __low2half(__half2 x)
{
    return x.x;
}
inline __half __high2half(__half2 x)
{
    return x.y;
}
inline __half __hadd(__half a, __half b)
{
    return __half((float)a + (float)b);
}
inline __half __hsub(__half a, __half b)
{
    return __half((float)a - (float)b);
}
inline __half __hmul(__half a, __half b)
{
    return __half((float)a * (float)b);
}
inline __half2 __hadd2(__half2 a, __half2 b)
{
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline __half2 __hsub2(__half2 a, __half2 b)
{
    return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}
inline __half2 __hmul2(__half2 a, __half2 b)
{
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
inline __half __hfma(__half a, __half b, __half c)
{
    return __half((float)((double)(float)a * (float)b + (float)c));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
