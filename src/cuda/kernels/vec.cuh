// Weights in packs of 16 bytes: the largest load that a lane has. A warp's packs of one row are consecutive, so that each of
// its loads is 512 bytes of whole sectors.
#pragma once
#include "cuda/kernels/cuda.h"

template <class T> constexpr int PACK = 16 / (int)sizeof(T); // elements of a pack

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

__device__ __forceinline__ float silu(float x)
{
    return x / (1.0f + expf(-x));
}

// activation(gate) up, as model/activation.h says. All threads of a launch have the same.
__device__ __forceinline__ float gated_unit(enum activation activation, float gate, float up)
{
    if (activation == ACTIVATION_GELU) {
        return gate / (1.0f + expf(-1.5957691216f * gate * fmaf(0.044715f * gate, gate, 1.0f))) * up;
    }
    if (activation == ACTIVATION_CLAMPED) {
        gate = fminf(gate, CLAMPED_LIMIT);
        return gate / (1.0f + expf(-CLAMPED_SLOPE * gate)) * (fminf(fmaxf(up, -CLAMPED_LIMIT), CLAMPED_LIMIT) + 1.0f);
    }
    if (activation == ACTIVATION_GELU_ERF)
        return 0.5f * gate * (1.0f + erff(0.70710678f * gate)) * up;
    if (activation == ACTIVATION_RELU2)
        return fmaxf(gate, 0.0f) * fmaxf(gate, 0.0f) * up;
    return silu(gate) * up;
}

template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
// To nearest even; beyond ±65504: ±65504, NaN stays (as cpu_kernels.to_fp16 does).
template <> __device__ __forceinline__ half from_float<half>(float x)
{
    return __float2half_rn(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

__device__ static inline void store_as(void *to, enum dtype type, int64_t at, float x)
{
    if (type == DTYPE_FP16) {
        static_cast<half *>(to)[at] = __float2half_rn(x);
    } else if (type == DTYPE_BF16) {
        static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(x);
    } else {
        static_cast<float *>(to)[at] = x;
    }
}

// Elements 2i and 2i + 1 of a pack of 16-bit ones, from the word that has both.
template <class T> __device__ __forceinline__ float2 word_to_floats(unsigned word);
template <> __device__ __forceinline__ float2 word_to_floats<half>(unsigned word)
{
    __half2 both;
    memcpy(&both, &word, sizeof both);
    return __half22float2(both);
}
template <>
__device__ __forceinline__ float2 word_to_floats<__nv_bfloat16>(unsigned word) // the upper half of a float is a bfloat16
{
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

template <class T> __device__ __forceinline__ void unpack(float (&x)[PACK<T>], uint4 pack)
{
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 both = word_to_floats<T>(words[i]);
        x[2 * i] = both.x;
        x[2 * i + 1] = both.y;
    }
}
template <> __device__ __forceinline__ void unpack<float>(float (&x)[4], uint4 pack)
{
    x[0] = __uint_as_float(pack.x);
    x[1] = __uint_as_float(pack.y);
    x[2] = __uint_as_float(pack.z);
    x[3] = __uint_as_float(pack.w);
}

// The pack at `at`, of which `left` elements are there: zeros beyond. Where ALIGNED, `at` is a multiple of 16 bytes and a pack
// is there wholly or not at all. Else elements come one by one, mostly from the L1 cache.
template <class T, bool ALIGNED> __device__ __forceinline__ uint4 load_pack(const T *at, int left)
{
    uint4 pack = {0, 0, 0, 0};
    if (ALIGNED) {
        if (left > 0)
            pack = load_stream(reinterpret_cast<const uint4 *>(at));
        return pack;
    }
    T elements[PACK<T>];
    memcpy(elements, &pack, sizeof pack);
#pragma unroll
    for (int i = 0; i < PACK<T>; i++)
        if (i < left)
            elements[i] = at[i];
    memcpy(&pack, elements, sizeof pack);
    return pack;
}

static inline yalm_status no_kernel(enum dtype type, yalm_error *error)
{
    return error_set(error, YALM_FAILED, "CUDA: found %s elements, which this kernel is not made for", dtype_names[type]);
}

// LAUNCH of the instance for elements of `type`: kernel is a template of the element's type.
#define LAUNCH_TYPE(type, error, kernel, ...)                                                                                  \
    ((type) == DTYPE_FP32   ? LAUNCH(error, kernel<float>, __VA_ARGS__)                                                        \
     : (type) == DTYPE_FP16 ? LAUNCH(error, kernel<half>, __VA_ARGS__)                                                         \
     : (type) == DTYPE_BF16 ? LAUNCH(error, kernel<__nv_bfloat16>, __VA_ARGS__)                                                \
                            : no_kernel(type, error))
