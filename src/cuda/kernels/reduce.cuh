// Sums and maxima over a warp and over a block. Always in the same order: results do not depend on timing.
#pragma once
#include "cuda/kernels/cuda.h"

struct add_two {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct larger_of_two {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// By pairs of lanes that are FIRST, FIRST / 2 … LAST apart. Lanes whose numbers differ in these bits alone come to the same.
template <int FIRST, int LAST, class F> __device__ __forceinline__ float fold_by_shuffles(float x, F fold)
{
#pragma unroll
    for (int step = FIRST; step >= LAST; step /= 2)
        x = fold(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

#ifdef __CUDACC__
#define FOLD_WARP fold_by_shuffles
#else
#define FOLD_WARP emulated_fold // the same by one operation of the warp, a fifth of the work
#endif

template <int FIRST = 16, int LAST = 1> __device__ __forceinline__ float warp_sum(float x)
{
    return FOLD_WARP<FIRST, LAST>(x, add_two());
}

template <int FIRST = 16, int LAST = 1> __device__ __forceinline__ float warp_max(float x)
{
    return FOLD_WARP<FIRST, LAST>(x, larger_of_two());
}

// Of a block of whole warps, all of whose threads call it. sums: (32) in shared memory, free again after the next barrier.
__device__ __forceinline__ float block_sum(float x, float *sums)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    x = warp_sum(x);
    if (lane == 0)
        sums[warp] = x;
    __syncthreads();
    return warp_sum(lane < n_warps ? sums[lane] : 0.0f);
}
