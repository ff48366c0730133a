// One token's x as 16-bit integers, for products with types that have groups. x = scale * (256 high + low), both signed bytes,
// with one scale for each X_BLOCK columns: the rule of cpu/kernels/ref/quant.c. How they lie in shared memory, and what a lane
// multiplies.
#pragma once
#include "cuda/kernels/vec_quant.cuh"

enum {
    X_BLOCK = 128,       // columns of x with a scale in common
    MOST_INTEGER = 32512 // 127 * 256: both bytes of it and of its negative are signed ones
};

// Bytes of x for `padded` columns. For q8 all high bytes come first, then all low ones. For q4 the high bytes of even columns,
// then of odd ones; then the low ones likewise. For six bits the high bytes of groups' first 16 columns, then of their second
// 16; then the low ones likewise. Last come (padded / X_BLOCK) scales.
template <class T> __host__ __device__ __forceinline__ size_t x_bytes(int padded)
{
    return GROUPED<T> ? 2 * (size_t)padded + sizeof(float) * (padded / X_BLOCK) : sizeof(float) * padded;
}

__device__ __forceinline__ unsigned two_bytes(int a, int b)
{
    return (a & 0xff) | (b & 0xff) << 8;
}

// This lane's four columns of a block, as integers.
template <class T> __device__ __forceinline__ void store_integers(uint8_t *xs, int padded, int col, const int (&q)[4])
{
    int low[4], high[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        low[i] = (int8_t)q[i];
        high[i] = (q[i] - low[i]) >> 8;
    }
    if (PACK_COLS<T> == 16) {
        *reinterpret_cast<unsigned *>(xs + col) = two_bytes(high[0], high[1]) | two_bytes(high[2], high[3]) << 16;
        *reinterpret_cast<unsigned *>(xs + padded + col) = two_bytes(low[0], low[1]) | two_bytes(low[2], low[3]) << 16;
        return;
    }
    if (SIX_BITS<T>) {
        uint8_t *to = xs + col % QUANT_GROUP / 16 * (padded / 2) + col / QUANT_GROUP * 16 + col % 16;
        *reinterpret_cast<unsigned *>(to) = two_bytes(high[0], high[1]) | two_bytes(high[2], high[3]) << 16;
        *reinterpret_cast<unsigned *>(to + padded) = two_bytes(low[0], low[1]) | two_bytes(low[2], low[3]) << 16;
        return;
    }
    uint16_t *to = reinterpret_cast<uint16_t *>(xs + col / 2);
    const int plane = padded / 4; // in pairs of bytes
    to[0] = (uint16_t)two_bytes(high[0], high[2]);
    to[plane] = (uint16_t)two_bytes(high[1], high[3]);
    to[2 * plane] = (uint16_t)two_bytes(low[0], low[2]);
    to[3 * plane] = (uint16_t)two_bytes(low[1], low[3]);
}

// A warp rounds a block: by the rule of cpu/kernels/ref/quant.c. A NaN's magnitude, as bits, is above all numbers': its block's
// scale is NaN.
template <class T> __device__ __forceinline__ void quantise_block(uint8_t *xs, int padded, int block, float4 x)
{
    const int lane = (int)threadIdx.x % 32;
    const float values[4] = {x.x, x.y, x.z, x.w};
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits = max(bits, __float_as_uint(values[i]) & 0x7fffffffu);
    const float most = __uint_as_float(__reduce_max_sync(0xffffffffu, bits));
    const float inverse = most > 1e-30f ? (float)MOST_INTEGER / most : 0.0f;
    int q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float whole = rintf(values[i] * inverse);
        q[i] = fabsf(whole) <= (float)MOST_INTEGER ? (int)whole : 0;
    }
    store_integers<T>(xs, padded, block * X_BLOCK + 4 * lane, q);
    if (lane == 0) // q4's weights come out 16 times too large
        reinterpret_cast<float *>(xs + 2 * padded)[block] =
            most / (float)MOST_INTEGER * (std::is_same_v<T, q4> ? 0.0625f : 1.0f);
}

// What a lane needs of x for a pack of step `step`.
struct bytes_x {
    uint4 high, low;
    float scale;
    __device__ __forceinline__ void load(const uint8_t *xs, int padded, int step)
    {
        const int lane = (int)threadIdx.x % 32;
        high = reinterpret_cast<const uint4 *>(xs)[32 * step + lane];
        low = reinterpret_cast<const uint4 *>(xs + padded)[32 * step + lane];
        scale = reinterpret_cast<const float *>(xs + 2 * padded)[4 * step + lane / 8];
    }
};
struct two_planes_x {
    uint4 high[2], low[2]; // of q4's even columns, of odd ones; of the first 16 columns and the second
    float scale;
    __device__ __forceinline__ void load(const uint8_t *xs, int padded, int step)
    {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            high[i] = reinterpret_cast<const uint4 *>(xs + i * padded / 2)[32 * step + lane];
            low[i] = reinterpret_cast<const uint4 *>(xs + padded + i * padded / 2)[32 * step + lane];
        }
        scale = reinterpret_cast<const float *>(xs + 2 * padded)[8 * step + lane / 4];
    }
};
template <class T> struct quant_x : two_planes_x {
};
template <> struct quant_x<q8> : bytes_x {
};

__device__ __forceinline__ int dot4(uint4 a, uint4 b, int sum)
{
    sum = __dp4a((int)a.x, (int)b.x, sum);
    sum = __dp4a((int)a.y, (int)b.y, sum);
    sum = __dp4a((int)a.z, (int)b.z, sum);
    return __dp4a((int)a.w, (int)b.w, sum);
}

// sum + pack · x, the pack's group scaled by `scale`; `more` has what the group has in the second plane. Sums of a group's
// products are integers below 2^31.
__device__ __forceinline__ float add_pack(float sum, uint4 pack, uint2, const struct quant_x<q8> &x, float scale)
{
    const int total = 256 * dot4(pack, x.high, 0) + dot4(pack, x.low, 0);
    return fmaf((float)total, scale * x.scale, sum);
}

__device__ __forceinline__ float add_pack(float sum, uint4 pack, uint2, const struct quant_x<q4> &x, float scale)
{
    constexpr unsigned upper = 0xf0f0f0f0u;
    const uint4 even = {pack.x << 4 & upper, pack.y << 4 & upper, pack.z << 4 & upper, pack.w << 4 & upper};
    const uint4 odd = {pack.x & upper, pack.y & upper, pack.z & upper, pack.w & upper};
    const int high = dot4(odd, x.high[1], dot4(even, x.high[0], 0)), low = dot4(odd, x.low[1], dot4(even, x.low[0], 0));
    return fmaf((float)(256 * high + low), scale * x.scale, sum);
}

template <class T>
__device__ __forceinline__ float add_pack(float sum, uint4 pack, uint2 more, const struct quant_x<T> &x, float scale)
{
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    int high = 0, low = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const struct eight_bytes a = signed_bytes<T>(words[2 * i], high_bits<T>(more, 2 * i)),
                                 b = signed_bytes<T>(words[2 * i + 1], high_bits<T>(more, 2 * i + 1));
        const uint4 sixteen = {a.first, a.second, b.first, b.second};
        high = dot4(sixteen, x.high[i], high);
        low = dot4(sixteen, x.low[i], low);
    }
    return fmaf((float)(256 * high + low), scale * x.scale, sum);
}
