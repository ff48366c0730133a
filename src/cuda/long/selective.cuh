// What a method's kernels share with those of selective.h: which keys a token sees, by slot, and what a part of the scores
// leaves behind.
#pragma once
#include "cuda/attention/attention.cuh"
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/kernels/reduce.cuh"
#include "cuda/long/selective.h"

// The keys of one token, the sinks apart not among them.
struct visible {
    int slot, n;  // of the oldest; how many
    int sinks;    // apart; else 0
    int ring;     // slots that are used again and again
    int capacity; // slots
};

__device__ static inline struct visible visible_at(const struct kv_policy &policy, int64_t position)
{
    struct visible v;
    const int64_t first = policy_first_visible(policy, position);
    v.slot = policy_slot(policy, first);
    v.n = (int)(position + 1 - first);
    v.sinks = policy_sinks_apart(policy, position) ? policy.n_sinks : 0;
    v.ring = policy.capacity - policy.n_sinks;
    v.capacity = policy.capacity;
    return v;
}

// 0: the oldest key of the run, n - 1: the token's own; -1: none that is seen.
__device__ static inline int key_number(const struct visible &v, int slot)
{
    if (slot < v.sinks || slot >= v.capacity)
        return -1;
    const int number = slot - v.slot + (slot < v.slot ? v.ring : 0);
    return number < v.n ? number : -1;
}

// False where a part has no visible key.
__device__ static inline bool part_has_keys(const struct visible &v, int part)
{
    const int first = part * PART_KEYS, last = first + PART_KEYS;
    const int through = v.slot + v.n - v.ring; // where the run begins again: slots below it
    return (first < v.slot + v.n && last > v.slot) || (v.slot + v.n > v.capacity && first < through);
}

// part_stats of one head from what each thread of the block has seen: its largest score, and Σ e^(score - max). All threads
// call it; shared: (64) floats, free again after the next barrier.
__device__ static inline void leave_part_stats(float2 *to, float max, float sum, float *shared)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    const float of_warp = warp_max(max);
    sum = warp_sum(softmax_weight(max, of_warp) * sum);
    if (lane == 0) {
        shared[warp] = of_warp;
        shared[32 + warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        max = lane < n_warps ? shared[lane] : -INFINITY;
        const float of_block = warp_max(max);
        sum = warp_sum(lane < n_warps ? softmax_weight(max, of_block) * shared[32 + lane] : 0.0f);
        if (lane == 0)
            *to = make_float2(of_block, sum);
    }
}

// Exact scores of the sinks that stand apart, for the queries of one KV head: a warp for each (query, sink). Called by all
// threads of part 0's block. keys: the KV head's.
template <class T>
__device__ static inline void score_sinks(float *sink_scores, const float *sink_q, const struct kv_rows<T> &keys, int kv_head,
                                          int group, int n_sinks, int sinks_apart, int head_dim)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    for (int i = warp; i < group * sinks_apart; i += n_warps) {
        const int head = kv_head * group + i / sinks_apart, sink = i % sinks_apart;
        float sum = 0.0f;
        for (int c = lane; c < head_dim; c += 32)
            sum = fmaf(sink_q[(size_t)head * head_dim + c], to_float(keys.data[(size_t)sink * head_dim + c]), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            sink_scores[(size_t)head * n_sinks + sink] = sum * kv_scale(keys, sink);
    }
}
