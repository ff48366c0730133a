// NoMAD's codes (Zhang et al., arXiv 2403.01273) beside the keys, for the hybrid. A score reads the codes of some
// sub-quantisers only, those that can move it most. That is SparQ's first step (Ribar et al., arXiv 2312.04985) on codes: of a
// key's components those that the queries are large in.
//
//     read: the sub-quantisers with the largest Σ_group Σ_c (q_c span_c)², c their components, span_c = max − min of centroids
//     score = Σ_read q_c centroid[c, code] + Σ_others q_c (mean of centroid[c])
//
// the first sum in integers (codes.h). What is left out has the same mean for all keys. If its spread is the same too, and
// independent of what is read, it has the same share of all exponentials: no temperature is wanted.
//
// Codes lie by sub-quantiser, in runs. A single key's would touch a cache line of each. So until its tile of 32 slots is
// full, its codes are in a block of their own, 16 bytes for each sub-quantiser. A larger batch's go to the runs at once.
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels/codes.h"
#include "cpu/policy.h"

// The values of codes by component, of one KV head or of all.
struct code_tables {
    uint8_t *values;              // (head_dim, 16), each increased by 128
    float *scale, *middle, *mean; // (head_dim); mean: of the 16
};

struct code_runs {
    int n_sub;        // sub-quantisers of a key,
    int n_read;       // of which a score reads so many,
    int n_listed;     // and components in the list of what is read, with those that stand for none
    ptrdiff_t stride; // of the runs, in bytes

    // Kept.
    struct code_tables tables; // (n_layers, n_kv_heads, …)
    uint8_t *runs;             // (n_layers, n_kv_heads, n_sub, stride)
    uint8_t *open;             // (n_layers, n_kv_heads, open_bytes): of the tile that single keys are appended to
    size_t open_bytes;
    atomic_int
        *open_tile; // (n_layers, n_kv_heads): 1 + which tile; 0: none. Of its slots those up to the newest are in the block

    // Of one token's queries in one layer.
    int *run_of;        // (n_kv_heads, n_listed)
    uint8_t *values;    // (n_kv_heads, n_listed, 16)
    int8_t *weights;    // (n_heads, n_listed)
    int *offset;        // (n_heads)
    float *base, *step; // (n_heads)
};

// For plan(), after nomad_open(). share: the part of each key's codes that a score reads; 0: half if each is of one component,
// else all.
void code_runs_plan(struct cpu_state *s, float share);
void code_runs_carve_kept(struct cpu_state *s, struct carver *c);
void code_runs_carve_scratch(struct cpu_state *s, struct carver *c);
// For a policy's open().
void code_runs_open(struct cpu_state *s);
// Bytes of codes that a key's score reads.
double code_runs_key_bytes(const struct cpu_state *s);

// For a policy's append() and its selector.
void code_runs_append(struct cpu_state *s, const struct append *row);
void code_runs_prepare(struct cpu_state *s, int layer, int kv_head, const float *q);
void code_runs_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                     ptrdiff_t ld);

// For tests: the code of a slot's key, the newest key being in slot `newest`.
int code_runs_code(const struct cpu_state *s, int layer, int kv_head, int newest, int slot, int sub);
