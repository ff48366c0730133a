// Loads, bits and arithmetic by CUDA's names.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

template <class T> T __ldg(const T *address)
{
    return *address;
}
template <class T> T __ldcs(const T *address)
{
    return *address;
}
template <class T> T __ldcg(const T *address)
{
    return *address;
}
template <class T> void __stcs(T *address, T value)
{
    *address = value;
}
template <class T> void __stcg(T *address, T value)
{
    *address = value;
}

template <class To, class From> To emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
inline unsigned __float_as_uint(float x)
{
    return emulated_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return emulated_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return emulated_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return emulated_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return emulated_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return emulated_bits<double>(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned which = selector >> 4 * i & 0xf;
        unsigned byte = (unsigned)(bytes >> 8 * (which & 7)) & 0xff;
        result |= (which & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
    }
    return result;
}
// sum += the products of four signed bytes.
inline int __dp4a(int a, int b, int sum)
{
    for (int i = 0; i < 4; i++) {
        sum += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    }
    return sum;
}

#define EMULATED_MIN_MAX(type)                                                                                                 \
    inline type min(type a, type b)                                                                                            \
    {                                                                                                                          \
        return b < a ? b : a;                                                                                                  \
    }                                                                                                                          \
    inline type max(type a, type b)                                                                                            \
    {                                                                                                                          \
        return a < b ? b : a;                                                                                                  \
    }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
#undef EMULATED_MIN_MAX
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}

using std::isfinite;
using std::isinf;
using std::isnan;

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline float __frsqrt_rn(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __saturatef(float x)
{
    return x > 0 ? fminf(x, 1) : 0; // NaN becomes 0
}
inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __double2float_rn(double x)
{
    return (float)x;
}
inline void sincospi(double x, double *sine, double *cosine)
{
    double turns = x - 2 * rint(x / 2); // exact
    *sine = sin(M_PI * turns);
    *cosine = cos(M_PI * turns);
}
