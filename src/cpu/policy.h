// Attention methods for decoding over long contexts. A method is one file that fills in a struct policy: what it keeps of each
// position, and how one token attends. The forward pass knows none of them; attention.c asks the policy at three places
// (append, keys for dense attention, attend).
//
// A method that scores all keys cheaply and then attends to some of them exactly writes struct selector's two functions, and
// has selective_attend() (selective.h) as its `attend`, which does the rest: parts, selection, gathering, merging, mean value.
//
// It serves the layers that see the farthest (config_far_kind()), and those that see their keys; in all others attention is
// dense, and nothing of theirs is kept.
//
// Whatever runs in a team's step obeys team.h: outside a claim only arguments and what never changes. So whether a method
// applies, and in how many steps, may depend on batch and layer, not on anything that a step has written.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "yalm.h"

struct cpu_state;
struct member;
struct batch;
struct step;
struct backend_plan;
struct selector;

// Hands out aligned pieces of a block; with no block, counts what they need.
struct carver {
    uint8_t *base;
    size_t used;
};
void *carve(struct carver *carver, size_t count, size_t size);

// One position's key and value of one KV head, on its way into the cache.
struct append {
    int layer, kv_head, slot;
    int64_t position;
    int token, n; // it is token `token` of a batch of n; the tokens of a batch are appended in any order, at the same time
    const float *k, *v; // (head_dim), the key rotated; v NULL: it is the key
};

struct policy {
    const char *name;
    size_t method_size; // bytes of state->method, all 0 before plan()

    // Reads the options into the state (which has kernels, config, kv, kv_type, chunk), or refuses them in one line. It may
    // read the head of a file, and is also called where only sizes are wanted.
    yalm_status (*plan)(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error);
    // What it keeps for the session beside the caches of keys and values (yalm_memory.attention), and scratch.
    void (*carve_kept)(struct cpu_state *s, struct carver *c);
    void (*carve_scratch)(struct cpu_state *s, struct carver *c, int n_threads); // NULL: none
    // Once the memory is there, all of it 0. NULL: nothing to do.
    yalm_status (*open)(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error);
    void (*close)(struct cpu_state *s); // what open() and plan() took besides; NULL: nothing

    // Stores one position; calls cpu_store_key() and cpu_store_value() for what the caches hold. On its thread alone, each KV
    // head of a token once.
    void (*append)(struct cpu_state *s, const struct append *row);

    // Further steps once all of a batch's positions are stored in a layer: how many may depend on the arguments alone. NULL:
    // none.
    void (*appended)(struct cpu_state *s, int64_t position, int n, int layer, struct member *me);

    // Methods without a key cache (state->keys is NULL): the keys of n slots from `slot` on, as the cache's type would hold
    // them: to (n, head_dim), scales (n) of int8, else NULL. At most KEY_TILE slots at a time. NULL: the cache has them.
    void (*decode_keys)(const struct cpu_state *s, int layer, int kv_head, int slot, int n, void *to, float *scales);

    // True where this batch attends by the method in this layer; else it is dense.
    bool (*applies)(const struct cpu_state *s, int n, int64_t position, int layer);
    const struct selector *selector; // for selective_attend(); else NULL
    // One or more steps: state->attended of the batch's tokens. The same for any number of threads.
    void (*attend)(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me);
    // Bytes of the cache and of what the method keeps that `attend` must read for one token at `position`, in one layer.
    double (*bytes)(const struct cpu_state *s, int64_t position);
};

enum { KEY_TILE = 256 };

extern const struct policy policy_dense; // state.c

// What stands above knows the methods (long/policies.c): all of them, NULL-terminated; and the one of that name, or NULL.
extern const struct policy *const policies[];
const struct policy *policy_find(const char *name);
