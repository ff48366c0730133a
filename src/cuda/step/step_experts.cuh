// A token's choice of experts (step.cuh), by the rule of choose_kernel (experts.cu). In each block a computing warp chooses for
// all, and the reader for itself, which must know whose weights to copy: so nobody waits for another block's choice.
#pragma once
#include "cuda/step/step.cuh"

// An expert of the best rating so far; none: -1.
struct step_best {
    int expert;
    float rating;
};

// Of equals, and where NaN compares with nothing, the first: so all lanes agree.
__device__ __forceinline__ bool step_better(const struct step_best &a, const struct step_best &b)
{
    return a.expert >= 0 && (b.expert < 0 || a.rating > b.rating || (!(b.rating > a.rating) && a.expert < b.expert));
}

__device__ __forceinline__ float step_logit(const struct step_router &r, int expert, unsigned launch)
{
    return told_wait(r.logits + expert, step_parity(r.words, launch));
}

// What an expert counts: its sigmoid, or its part of a softmax, undivided.
__device__ __forceinline__ float step_expert_weight(const struct step_router &r, float logit, float max)
{
    return r.choice_bias && !r.softmax ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max);
}

// The experts with the n_active best ratings: lane i's is the i-th of them. Each lane looks after every 32nd expert.
__device__ __forceinline__ int step_choose_best(const float *ratings, int n_experts, int n_active)
{
    const int lane = (int)threadIdx.x % 32;
    unsigned taken = 0;
    int mine = n_experts;
    for (int i = 0; i < n_active; i++) {
        struct step_best best = {-1, 0};
        for (int e = lane, n = 0; e < n_experts; e += 32, n++) {
            const struct step_best one = {e, ratings[e]};
            if (!(taken >> n & 1) && step_better(one, best))
                best = one;
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            const struct step_best other = {__shfl_xor_sync(0xffffffffu, best.expert, step),
                                            __shfl_xor_sync(0xffffffffu, best.rating, step)};
            if (step_better(other, best))
                best = other;
        }
        if (best.expert % 32 == lane)
            taken |= 1u << best.expert / 32;
        if (i == lane)
            mine = best.expert;
    }
    return mine;
}

// One warp. to: (n_active), experts ascending; ratings: (n_experts) of shared memory.
__device__ __forceinline__ void step_choose(struct step_choice *to, float *ratings, const struct step_router &r,
                                            unsigned launch)
{
    const int lane = (int)threadIdx.x % 32;
    float max = -INFINITY, all = 0;
    for (int e = lane; e < r.n_experts; e += 32) {
        ratings[e] = step_logit(r, e, launch);
        max = fmaxf(max, ratings[e]);
    }
    max = warp_max(max);
    for (int e = lane; e < r.n_experts && (r.raw || r.softmax); e += 32)
        all += step_expert_weight(r, ratings[e], max);
    all = warp_sum(all);
    const float divisor = r.softmax ? all : 1.0f;
    for (int e = lane; e < r.n_experts && r.choice_bias; e += 32)
        ratings[e] = step_expert_weight(r, ratings[e], max) / divisor + __ldg(r.choice_bias + e);
    __syncwarp();
    const int mine = step_choose_best(ratings, r.n_experts, r.n_active);
    float weight = lane < r.n_active ? step_expert_weight(r, step_logit(r, mine, launch), max) / divisor : 0.0f;
    const float sum = warp_sum(weight);
    weight = weight / (r.raw ? r.choice_bias ? 1.0f : all : r.softmax ? fmaxf(sum, r.eps) : sum + r.eps) * r.scale;
    int place = 0; // how many come before
    for (int i = 0; i < r.n_active; i++)
        place += __shfl_sync(0xffffffffu, mine, i) < mine;
    __syncwarp(); // the last choice may still be read
    if (lane < r.n_active)
        to[place] = {mine, r.weight_scale ? weight * __ldg(r.weight_scale + mine) : weight};
    __syncwarp();
}
