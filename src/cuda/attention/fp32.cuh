// The kernel for a cache of fp32, and for long heads, for both of attention's launchers.
#pragma once
#include "cuda/attention/attention.cuh"

static inline bool attend_fp32_does(const struct kv_cache *cache)
{
    return cache->type == YALM_KV_FP32 || cache->head_dim > ATTENTION_MAX_DIM;
}

// Queries that a block has: what partial results are allocated by.
int attend_fp32_rows(int head_dim);

// n tokens. Where a->n_splits > 1, a->part_acc, part_state and tickets are set.
yalm_status attend_fp32_launch(const struct attend *a, yalm_kv type, int n, int n_kv_heads, cudaStream_t stream,
                               yalm_error *error);
