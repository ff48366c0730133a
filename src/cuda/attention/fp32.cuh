// The kernel for a cache of fp32, for long heads and for latents, for both of attention's launchers.
#pragma once
#include "cuda/attention/attention.cuh"

static inline bool attend_fp32_does(const struct kv_cache *cache)
{
    return cache->type == YALM_KV_FP32 || cache->head_dim > ATTENTION_MAX_DIM || cache->latent;
}

// Queries that a block has: what partial results are allocated by.
int attend_fp32_rows(const struct kv_cache *cache);

// n tokens. Where a->n_splits > 1, a->part_acc, part_state and tickets are set.
yalm_status attend_fp32_launch(const struct attend *a, const struct kv_cache *cache, int n, cudaStream_t stream,
                               yalm_error *error);
