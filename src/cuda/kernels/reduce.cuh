// Sums and maxima over a warp and over a block. Always in the same order: results do not depend on timing.
#pragma once
#include "cuda/kernels/cuda.h"

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
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
