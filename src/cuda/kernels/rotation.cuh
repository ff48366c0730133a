// Rotary embedding of pairs of components (Su et al., "RoFormer", 2021), in the halves that Llama has.
#pragma once
#include "cuda/kernels/cuda.h"

// cos and sin of position * frequency radians, times scale. The product is a double's, as the CPU's is. In half turns its
// reduction is exact, without the tables in local memory that sincos() has for large arguments.
__device__ static inline float2 rotation_of(int64_t position, double frequency, double scale)
{
    double sine, cosine;
    if (frequency == 0) { // a component that does not rotate
        return {1.0f, 0.0f};
    }
    sincospi((double)position * frequency * 0.31830988618379067154, &sine, &cosine);
    return {(float)(cosine * scale), (float)(sine * scale)};
}

// Components i and i + half of one head.
__device__ static inline float2 rotate(const float *x, int i, int half_dim, float2 turn, float scale)
{
    const float re = scale * x[i], im = scale * x[i + half_dim];
    return {re * turn.x - im * turn.y, re * turn.y + im * turn.x};
}
