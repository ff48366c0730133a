// Attention to selected keys, for one token: what the methods have in common that score all keys cheaply, select some, and
// attend to these exactly (SparQ: Ribar et al., arXiv 2312.04985). A method says how it scores and how many it wants; the steps
// are
//
//     prepare   (kv_head)        what score() wants to know of the queries
//     score     (kv_head, part)  ŝ = softmax of approximate scores, capped where the layer caps scores, over all keys: the
//                                scores, and of each part max and sum. A
//                                group of several queries has e^(score − base) in their place, base a block's largest or more
//     weigh     (kv_head, part)  several queries in a group: w_j = Σ_group ŝ_j of these exponentials, which selects keys
//     select    (kv_head)        the rows: the best, or drawn (priority.h); where a tail is wanted, each query's α, the rows'
//                                share of ŝ
//     gather    (kv_head, part)  softmax(q · K[rows]ᵀ / √d + bias) · V[rows], exactly, in parts; bias: what a drawn row counts
//     merge     (head)           y = α y + (1 − α) v̄ where the tail is wanted, v̄ the mean of all values; else y
//
// Keys are numbered by age: 0 is the oldest that the token sees. Attention sinks that stand apart (kv_cache.h) have no number:
// they are always attended to, and their exact scores belong to ŝ. So does a head's logit without a key, whose value is 0.
//
// The first four go KV head by KV head where these can be shared out evenly: a member's scores are then still in its cache when
// they are weighed. Else each step is shared out among all members. Results are the same to the bit.
#pragma once
#include "cpu/kernels/sparse.h"
#include "cpu/long/mean.h"
#include "cpu/policy.h"

enum {
    SELECTIVE_DIMS = SPARSE_DIMS, // components at most
    SELECTIVE_BLOCK = 1024,       // keys of a block, whose exponentials have a base of their own
};

// How many keys of n to attend to.
struct choice {
    int k;            // at most; those of `first` and `local` among them
    int first, local; // the oldest and the most recent that always belong
    bool drawn;       // the others by priority (priority.h); else the best
    bool tail;
};

struct selector {
    // One KV head's queries, q (group, head_dim), rotated, and scaled by 1 / √d. Into the method's own scratch, of this KV
    // head.
    void (*prepare)(struct cpu_state *s, int layer, int kv_head, const float *q);
    // scores[i * ld + j] = query i's approximate score of slot + j, j < n, as it goes into the softmax. The token is at
    // `position`.
    void (*score)(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                  ptrdiff_t ld);
    struct choice (*choice)(const struct cpu_state *s, int layer, int n);
};

// Scratch, and the running sums of the values. The last dimension of (…, ld) has room for every key. A member that takes whole
// KV heads, from prepare to select, keeps scores, bases, maxima, sums, weights and values of one at a time, in the place of its
// first KV head.
struct selective {
    bool keep_all; // for tests: every KV head's stay in its own place, and can be looked at afterwards
    ptrdiff_t ld;
    int parts;                  // most parts of the scores
    int blocks;                 // most blocks of them
    float *scores;              // (n_heads, ld); e^(score - base of its block) where query heads share keys
    float *bases;               // (n_heads, blocks); NULL where each query head has its own keys
    float *part_max, *part_sum; // (n_heads, parts)
    float *sink_scores;         // (n_heads, n_sinks + 1)
    float *weights;             // (n_kv_heads, ld); NULL where each query head has its own keys
    float *lifts, *bias; // (ld + PRIORITY_PHASES), (n_kv_heads, ld) of the selected rows: priority.h; NULL where none are drawn
    int *rows;           // (n_kv_heads, ld): the selected, ascending; first by number, then slots
    float *values;       // (n_kv_heads, ld)
    int *n_rows;         // (n_kv_heads)
    float *alpha;        // (n_heads)
    float *mean;         // (n_kv_heads, head_dim)
    struct value_sums sums; // kept
};

void selective_carve_kept(struct cpu_state *s, struct carver *c); // the running sums
void selective_carve_scratch(struct cpu_state *s, struct carver *c, bool drawn);
void selective_open(struct cpu_state *s); // of a method that draws keys

// A policy's `attend`.
void selective_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me);

// From how many keys on a method is faster than dense attention: it reads less, but its further steps cost each KV head as much
// as reading step_bytes. bytes(s, n): what it reads of n keys of one KV head. Beyond the span where it never pays.
int selective_break_even(const struct cpu_state *s, double (*bytes)(const struct cpu_state *s, int n), double step_bytes);

// Keys that the token at `position` sees and that are selected from; the sinks apart are not among them.
int selective_n_keys(const struct cpu_state *s, int64_t position);
