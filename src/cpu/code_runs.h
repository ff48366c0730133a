// NoMAD's codes (Zhang et al., arXiv 2403.01273) where keys are kept beside them, for the hybrid: a score reads those of some sub-quantisers only, the ones whose
// products with the queries differ most from centroid to centroid. That is SparQ's first step (Ribar et al., arXiv 2312.04985) on codes: of a key's components,
// those count that the query is large in.
//
//     span_s = max_c q_s · centroid[s, c] − min_c …,  read: the sub-quantisers in which Σ_group span² is largest
//     score = Σ_read q_s · centroid[s, code_s] + Σ_others mean_c q_s · centroid[s, c]
//
// What is left out of a score has the same mean for all keys. Should it be spread alike, and independently of what is read, it has the same share of all
// exponentials, so that no temperature is wanted.
//
// So codes lie by sub-quantiser, in runs (kernels_nomad.h). A single key's would touch a cache line of each: as long as the tile of 32 slots that it belongs to is not
// full, its codes are in a block of their own, as NoMAD's are. A larger batch's go to the runs at once.
#pragma once
#include <stdatomic.h>

#include "cpu/policy.h"

struct code_runs {
    int n_sub;        // sub-quantisers of a key
    int n_read;       // of which a score reads so many,
    int n_listed;     // and so many with those that stand for none
    ptrdiff_t stride; // of the runs, in bytes

    // Kept.
    uint8_t *runs;         // (n_layers, n_kv_heads, n_sub, stride)
    uint8_t *open;         // (n_layers, n_kv_heads, rows, 16): a block, of the tile that single keys are appended to
    atomic_int *open_tile; // (n_layers, n_kv_heads): 1 + which one; 0: none. Of its slots those up to the newest are in the block

    // Of one token's queries in one layer, beside struct nomad's.
    int *subs;        // (n_kv_heads, n_listed)
    uint8_t *entries; // (n_heads, n_listed, 16)
};

// For plan(), after nomad_open(). share: of each key's codes, how much a score reads; 0: half, if each is of one component, else all.
void code_runs_plan(struct cpu_state *s, float share);
void code_runs_carve_kept(struct cpu_state *s, struct carver *c);
void code_runs_carve_scratch(struct cpu_state *s, struct carver *c);
// Bytes of codes that a key's score reads.
double code_runs_key_bytes(const struct cpu_state *s);

// For a policy's append() and its selector.
void code_runs_append(struct cpu_state *s, const struct append *row);
void code_runs_prepare(struct cpu_state *s, int layer, int kv_head, const float *q);
void code_runs_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                     ptrdiff_t ld);

// The code of a slot's key. `newest`: the slot that was written last, by a single token.
int code_runs_code(const struct cpu_state *s, int layer, int kv_head, int newest, int slot, int sub);
