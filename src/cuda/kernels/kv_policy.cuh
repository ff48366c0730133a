// engine/kv_cache.h's index arithmetic for the device: which positions the cache holds, where, and who sees them.
#pragma once
#include "cuda/kernels/cuda.h"

__host__ __device__ static inline bool policy_sinks_apart(const struct kv_policy &policy, int64_t position)
{
    return policy.n_sinks > 0 && position >= policy.span;
}

// Positions below the capacity, the sinks among them, have slots of their own number.
__host__ __device__ static inline int policy_slot(const struct kv_policy &policy, int64_t position)
{
    if (position < policy.capacity) {
        return (int)position;
    }
    return policy.n_sinks + (int)((position - policy.n_sinks) % (policy.capacity - policy.n_sinks));
}

__host__ __device__ static inline int64_t policy_first_visible(const struct kv_policy &policy, int64_t position)
{
    const int64_t first = position + 1 - (policy_sinks_apart(policy, position) ? policy.span - policy.n_sinks : policy.span);
    return first > 0 ? first : 0;
}

__host__ __device__ static inline int policy_n_visible(const struct kv_policy &policy, int64_t position)
{
    return position + 1 < policy.span ? (int)(position + 1) : policy.span;
}
