// Vector types with CUDA's names, sizes and alignments.
#pragma once
#include <cstddef>
#include <cstdint>

#define EMULATED_VECTORS(type, name, align2, align4)                                                                           \
    struct name##1                                                                                                             \
    {                                                                                                                          \
        type x;                                                                                                                \
    };                                                                                                                         \
    struct alignas(align2) name##2                                                                                             \
    {                                                                                                                          \
        type x, y;                                                                                                             \
    };                                                                                                                         \
    struct name##3                                                                                                             \
    {                                                                                                                          \
        type x, y, z;                                                                                                          \
    };                                                                                                                         \
    struct alignas(align4) name##4                                                                                             \
    {                                                                                                                          \
        type x, y, z, w;                                                                                                       \
    };                                                                                                                         \
    inline name##1 make_##name##1(type x)                                                                                      \
    {                                                                                                                          \
        return {x};                                                                                                            \
    }                                                                                                                          \
    inline name##2 make_##name##2(type x, type y)                                                                              \
    {                                                                                                                          \
        return {x, y};                                                                                                         \
    }                                                                                                                          \
    inline name##3 make_##name##3(type x, type y, type z)                                                                      \
    {                                                                                                                          \
        return {x, y, z};                                                                                                      \
    }                                                                                                                          \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                                              \
    {                                                                                                                          \
        return {x, y, z, w};                                                                                                   \
    }

EMULATED_VECTORS(signed char, char, 2, 4)
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned, uint, 8, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
    constexpr dim3(uint3 sizes) : x(sizes.x), y(sizes.y), z(sizes.z) {}
};
