// Pseudo-random keys and values, for timing at depth without a prefill.
#include "cuda/kernels.h"

// Uniform in [-1, 1), a function of the element's place alone (splitmix64: Steele, Lea and Flood, 2014), as on the CPU.
static __device__ float noise(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

static __device__ void store(__half *to, float x)
{
    *to = __float2half_rn(x);
}
static __device__ void store(float *to, float x)
{
    *to = x;
}

// Block (i, head): position + i of one layer's one KV head. Writes 2 head_dim elements.
template <typename T>
static __global__ void noise_kernel(T *keys, T *values, struct kv_policy policy, int head_dim, int64_t position, uint64_t seed)
{
    const int n_heads = gridDim.y, head = blockIdx.y;
    const int64_t at = position + blockIdx.x;
    const uint64_t row = ((uint64_t)at * n_heads + head) * 2; // of the key; the value's comes next
    const size_t slot = ((size_t)head * policy.capacity + policy_slot(policy, at)) * head_dim;
    grid_dependency_wait();
    for (int i = threadIdx.x; i < head_dim; i += blockDim.x) {
        store(keys + slot + i, noise(seed, row * head_dim + i));
        store(values + slot + i, noise(seed, (row + 1) * head_dim + i));
    }
}

yalm_status fill_noise(const struct kv_cache *c, int64_t position, int n, uint64_t seed, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(n, c->n_layers * c->n_kv_heads);
    if (c->type == YALM_KV_FP32)
        return LAUNCH(error, (noise_kernel<float>), grid, 64, 0, stream, static_cast<float *>(c->keys),
                      static_cast<float *>(c->values), c->policy, c->head_dim, position, seed);
    return LAUNCH(error, (noise_kernel<__half>), grid, 64, 0, stream, static_cast<__half *>(c->keys),
                  static_cast<__half *>(c->values), c->policy, c->head_dim, position, seed);
}
