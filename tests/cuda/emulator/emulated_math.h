// Loads, bits and arithmetic by CUDA's names.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __SSE4_1__
#include <smmintrin.h>
#endif

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
// The selector's four digits name bytes of y:x; with 8 besides, eight times that byte's sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const unsigned pairs = (selector & 0xff) | (selector & 0xff00) << 8, digits = (pairs & 0xf000f) | (pairs & 0xf000f0) << 4;
    const uint64_t bytes = (uint64_t)y << 32 | x;
#ifdef __SSE4_1__
    const __m128i which = _mm_cvtsi32_si128((int)(digits & 0x07070707));
    const unsigned found = (unsigned)_mm_cvtsi128_si32(_mm_shuffle_epi8(_mm_cvtsi64_si128((long long)bytes), which));
#else
    auto byte = [=](int i) { return (unsigned)(bytes >> 8 * (digits >> 8 * i & 7) & 0xff) << 8 * i; };
    const unsigned found = byte(0) | byte(1) | byte(2) | byte(3);
#endif
    const unsigned signs = (digits >> 3 & 0x01010101) * 0xff; // the bytes that are asked for their sign
    return (found & ~signs) | ((found >> 7 & 0x01010101) * 0xff & signs);
}
// sum + the products of four signed bytes.
inline int __dp4a(int a, int b, int sum)
{
#ifdef __SSE4_1__
    const __m128i wide_a = _mm_cvtepi8_epi16(_mm_cvtsi32_si128(a)), wide_b = _mm_cvtepi8_epi16(_mm_cvtsi32_si128(b));
    const uint64_t two = (uint64_t)_mm_cvtsi128_si64(_mm_madd_epi16(wide_a, wide_b));
    return (int)((unsigned)sum + (unsigned)two + (unsigned)(two >> 32));
#else
    auto product = [=](int i) { return (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i); };
    return sum + product(0) + product(1) + product(2) + product(3);
#endif
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
