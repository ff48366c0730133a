// What a session keeps for its attention method, and what a method is: how it scores keys, and how many it wants. The rest is
// the same for all (selective.h).
#pragma once
#include "cuda/long/hybrid.h"
#include "cuda/long/selective.h"
#include "cuda/long/sparq.h"
#include "cuda/state.h"

struct cuda_method_table {
    const char *name;

    // method_check() of its options.
    yalm_status (*check)(const struct model_config *config, const yalm_session_options *options, yalm_error *error);
    // Options into the state (which has config, caches, device): sets selective.tail, drawn and from, and its own sizes.
    yalm_status (*plan)(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error);
    void (*take_kept)(struct cuda_state *s, struct cuda_blocks *b);
    void (*take_scratch)(struct cuda_state *s, struct cuda_blocks *b); // its own; struct cuda_selective's is taken besides
    yalm_status (*open)(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error); // NULL: nothing to do
    void (*close)(struct cuda_state *s); // what plan() and open() took on the host; NULL: nothing

    yalm_status (*append)(struct cuda_state *s, const struct attention *a, int n, yalm_error *error); // method_append()
    // One token that attends by the method: what append() does for it, and what score() wants of its queries.
    yalm_status (*prepare)(struct cuda_state *s, const struct attention *a, yalm_error *error);
    // selective.scores, part_stats and sink_scores. grid: (n_parts, n_kv_heads).
    yalm_status (*score)(struct cuda_state *s, const struct attention *a, yalm_error *error);

    struct choice (*choice)(const struct cuda_state *s, int n_keys); // of a token with n_keys to select from
    double (*bytes)(const struct cuda_state *s, int64_t position);   // method_bytes()
};

extern const struct cuda_method_table method_sparq, method_hybrid;

// Of the layers that methods serve.
static inline const struct kv_cache *far_cache(const struct cuda_state *s)
{
    return &s->caches[s->far];
}

struct cuda_method {
    const struct cuda_method_table *table;
    struct cuda_selective selective;
    struct cuda_sparq sparq; // where it is that one
    struct cuda_hybrid hybrid;
};

// By name: dense has none. *table NULL, and YALM_USAGE, where the GPU has no such method.
yalm_status method_find(const struct cuda_method_table **table, const char *name, yalm_error *error);

// Keys that the token at `position` selects from: the sinks apart are not among them.
int selective_n_keys(const struct kv_policy *policy, int64_t position);
// The least number of keys, to 64, at which the method costs less than dense attention: bytes() of one KV head and its further
// steps. Where there is none, more than a token ever sees. As on the CPU.
int selective_break_even(const struct cuda_state *s, double (*bytes)(const struct cuda_state *s, int n), double step_bytes);
void selective_plan(struct cuda_state *s);
void selective_take_kept(struct cuda_state *s, struct cuda_blocks *b); // the running sums, where selective.tail
void selective_take_scratch(struct cuda_state *s, struct cuda_blocks *b);
yalm_status selective_open(struct cuda_state *s, yalm_error *error); // what must be 0 before the first call
// Weigh and collect: selective.rows and n_rows from the scores.
yalm_status selective_select(struct cuda_state *s, const struct attention *a, yalm_error *error);
// attended (n_heads, head_dim) from the rows.
yalm_status selective_gather(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error);
