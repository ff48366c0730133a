// Rows of the KV cache, of any of its types: fp16, fp32, or int8 with a scale for each row.
//
// A row is one key or one value of one KV head, head_dim elements of T (half, float, int8_t); head_dim is even. An int8 row
// stands for scale * x[c], with x in [-127, 127] and scale = its largest magnitude / 127, as the CPU's does (to_int8 in
// cpu/kernels/kernels.h). So what is linear in a row (a score, a weighted value) takes the integers as they are and is
// multiplied by the scale once.
//
// To read, a kernel is a template of T:
//
//     const struct kv_rows<T> keys = kv_rows_of<T>(a.keys, a.key_scales, kv_head, capacity, head_dim);
//     x = kv_element(keys, slot, c);                              // one by one, where that is fast enough
//     score = kv_scale(keys, slot) * Σ q[c] * keys.data[…];       // else in whole packs of 16 bytes, and the scale once
//
// For tensor cores int8_to_halves() makes fragments of bytes (attention/decode_int8.cu) or tiles (attention/int8.cuh).
//
// To write, a warp calls kv_store_row(). The host finds a layer's rows by kv_layer_of(), and launches the instance for a
// cache's type by LAUNCH_KV.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

// ------------------------------------------------------------------------------------------ reading

__device__ static inline float to_float(int8_t x)
{
    return (float)x;
}

// One KV head's keys, or values, of one layer.
template <class T> struct kv_rows {
    const T *data;       // (capacity, head_dim)
    const float *scales; // (capacity) of int8, else NULL
    int head_dim;
};

// data, scales: the layer's.
template <class T>
__device__ static inline struct kv_rows<T> kv_rows_of(const void *data, const float *scales, int kv_head, int capacity,
                                                      int head_dim) {
    struct kv_rows<T> rows;
    rows.data = static_cast<const T *>(data) + (int64_t)kv_head * capacity * head_dim;
    rows.scales = sizeof(T) == 1 ? scales + (int64_t)kv_head * capacity : NULL;
    rows.head_dim = head_dim;
    return rows;
}

// What a row's elements are to be multiplied by.
template <class T>
__device__ static inline float kv_scale(const struct kv_rows<T> &rows, int slot)
{
    return sizeof(T) == 1 ? rows.scales[slot] : 1.0f;
}

// Four signed bytes as halves, exactly: pairs[0] has the lower two. 0x6400 + b is the half 1024 + b, and 1152 is 1024 + 128.
__device__ static inline void int8_to_halves(unsigned (&pairs)[2], unsigned bytes)
{
    const unsigned biased = bytes ^ 0x80808080u; // x + 128
    const half2 base = __float2half2_rn(1152.0f);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned raised = __byte_perm(biased, 0x64646464u, i == 0 ? 0x4140 : 0x4342);
        half2 both;
        memcpy(&both, &raised, sizeof both);
        both = __hsub2(both, base);
        memcpy(&pairs[i], &both, sizeof both);
    }
}

// Element c of a row, times its scale: for where reading one by one is fast enough.
template <class T> __device__ static inline float kv_element(const struct kv_rows<T> &rows, int slot, int c)
{
    return kv_scale(rows, slot) * to_float(rows.data[(int64_t)slot * rows.head_dim + c]);
}

// ------------------------------------------------------------------------------------------ writing

// Smaller scales count as 0: their inverses would overflow.
#define KV_LEAST_SCALE 0x1p-126f

// A warp makes the row `to` of element(i), i < head_dim, which is called twice where T is int8_t; *scale is written there only.
// Rounded to nearest even; fp16 stays finite. A row of int8 with a NaN or an infinity has the scale NaN.
template <class T, class Element> __device__ static inline void kv_store_row(T *to, float *scale, int head_dim, Element element)
{
    const int lane = (int)threadIdx.x % 32;
    if constexpr (sizeof(T) == 1) {
        float largest = 0.0f, nothing = 0.0f; // nothing: NaN where something is not finite
        for (int i = lane; i < head_dim; i += 32) {
            const float x = element(i);
            largest = fmaxf(largest, fabsf(x));
            nothing = fmaf(x, 0.0f, nothing);
        }
        const float found = warp_max(largest) / 127.0f + warp_sum(nothing);
        const bool usable = found >= KV_LEAST_SCALE;
        const float inverse = usable ? 1.0f / found : 0.0f;
        for (int i = lane; i < head_dim; i += 32) {
            to[i] = usable ? (int8_t)__float2int_rn(element(i) * inverse) : (int8_t)0;
        }
        if (lane == 0) {
            *scale = found < KV_LEAST_SCALE ? 0.0f : found;
        }
    } else {
        for (int i = lane; i < head_dim; i += 32) {
            to[i] = from_float<T>(element(i));
        }
    }
}

// ------------------------------------------------------------------------------------------ host

// One layer of the cache.
struct kv_layer {
    void *keys, *values;              // (n_kv_heads, capacity, head_dim)
    float *key_scales, *value_scales; // (n_kv_heads, capacity) of int8, else NULL
};

static inline size_t kv_element_bytes(yalm_kv type)
{
    return type == YALM_KV_FP32 ? sizeof(float) : type == YALM_KV_INT8 ? sizeof(int8_t) : sizeof(half);
}

static inline struct kv_layer kv_layer_of(const struct kv_cache *cache, int layer)
{
    const size_t rows = (size_t)layer * cache->n_kv_heads * cache->policy.capacity;
    const size_t bytes = rows * cache->head_dim * kv_element_bytes(cache->type);
    struct kv_layer l = {static_cast<char *>(cache->keys) + bytes, static_cast<char *>(cache->values) + bytes, NULL, NULL};
    if (cache->type == YALM_KV_INT8) {
        l.key_scales = cache->key_scales + rows;
        l.value_scales = cache->value_scales + rows;
    }
    return l;
}

// LAUNCH of the instance for a cache of `type`: kernel is a template of the element's type.
#define LAUNCH_KV(type, error, kernel, ...)                                                                                    \
    ((type) == YALM_KV_FP32   ? LAUNCH(error, kernel<float>, __VA_ARGS__)                                                      \
     : (type) == YALM_KV_INT8 ? LAUNCH(error, kernel<int8_t>, __VA_ARGS__)                                                     \
                              : LAUNCH(error, kernel<half>, __VA_ARGS__))
