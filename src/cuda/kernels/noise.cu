// Pseudo-random keys and values, for timing at depth without a prefill.
#include "cuda/kernels/kv_rows.cuh"

// Uniform in [-1, 1), a function of the element's place alone (splitmix64: Steele, Lea and Flood, 2014), as on the CPU.
static __device__ float noise(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

// Block (i, head), two warps: position + i of one layer's one KV head, the first warp its key and the second its value. Writes
// a row each; of a latent, which is both, there is the first warp alone.
template <class T>
static __global__ void noise_kernel(struct kv_layer all, struct kv_policy policy, int head_dim, int64_t position, uint64_t seed)
{
    const int n_heads = gridDim.y, head = blockIdx.y, which = threadIdx.x / 32;
    const int64_t at = position + blockIdx.x;
    const uint64_t row = ((uint64_t)at * n_heads + head) * 2 + which; // of the key; the value's comes next
    const size_t slot = (size_t)head * policy.capacity + policy_slot(policy, at);
    T *to = static_cast<T *>(which == 0 ? all.keys : all.values) + slot * head_dim;
    float *scales = which == 0 ? all.key_scales : all.value_scales;
    grid_dependency_wait();
    kv_store_row(to, sizeof(T) == 1 ? scales + slot : NULL, head_dim, [=](int i) { return noise(seed, row * head_dim + i); });
}

yalm_status fill_noise(const struct kv_cache *c, int64_t position, int n, uint64_t seed, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(n, c->n_layers * c->n_kv_heads);
    return LAUNCH_KV(c->type, error, noise_kernel, grid, c->latent ? 32 : 64, 0, stream, kv_layer_of(c, 0), c->policy,
                     c->head_dim, position, seed);
}
