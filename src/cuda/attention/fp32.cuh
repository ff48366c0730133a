// The kernel for a cache of fp32, for both of attention's launchers.
#pragma once
#include "cuda/attention/attention.cuh"

// Queries that a block has: what partial results are allocated by.
int attend_fp32_rows(int head_dim);

// n tokens. Where a->n_splits > 1, a->part_acc, part_state and tickets are set.
yalm_status attend_fp32_launch(const struct attend *a, int n, int n_kv_heads, cudaStream_t stream, yalm_error *error);
