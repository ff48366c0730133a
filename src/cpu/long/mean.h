// The mean v̄ of the values that a token sees, as running sums that every append moves on. Rows that come into sight are added.
// Rows that leave it (a sliding window), or were rolled back and are about to be overwritten, are taken away. The sums are
// exact (sparse_kernels.add_exactly), so that they depend on which rows they cover alone, not on the way there.
//
// Tokens of a larger batch are appended at the same time, when no row can be read: the next single token adds what they
// brought. Where they may have overwritten a row that is in the sums, these begin anew.
#pragma once
#include "cpu/policy.h"

struct value_sums {
    double *sums;     // (n_layers, n_kv_heads, head_dim): of positions [from, to)
    int64_t *covered; // (n_layers, n_kv_heads, 2): from, to
};

// For the policy's append(): stores the value too. With sums->sums = NULL that is all.
void value_sums_append(struct cpu_state *s, struct value_sums *sums, const struct append *row);

// mean (head_dim) of what the token at `position` sees, which has been appended.
void value_mean(const struct cpu_state *s, const struct value_sums *sums, int layer, int kv_head, int64_t position,
                float *mean);
