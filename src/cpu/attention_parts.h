// Parts of the keys that a token sees, and how the outputs of parts become one: what attention.c shares out to threads.
#pragma once
#include "cpu/state.h"

// Query i's output: scale * acc, into its token's and head's place, which is returned.
float *attention_write(struct cpu_state *s, const struct cpu_kind *kind, int kv_head, int first_token, int i, const float *acc,
                       float scale);

// Query q's output: alpha Σ_parts e^(max_part - max) acc_part / Σ_parts e^(max_part - max) sum_part, the parts in order.
// `begin`: where the parts of its block of tokens lie, (n_kv_heads, n_parts, n_queries).
float *attention_merge_query(struct cpu_state *s, const struct cpu_kind *kind, size_t begin, int n_parts, int n_queries,
                             int kv_head, int first_token, int q, float alpha);

// Where part `part` of `n_parts` of the positions [from, to) begins: at whole vectors of keys (few_block_keys).
int64_t attention_part_start(int64_t from, int64_t to, int part, int n_parts);

// Parts of consecutive keys: of 1,024, where given rows have 256, but as many as make 64 with all KV heads, so that there is
// work for many threads. Parts of 256 keys of 64 components are slower by a tenth (llama-3.2-1b, 16,384 tokens).
int attention_run_parts(const struct cpu_kind *kind, int n_visible);
