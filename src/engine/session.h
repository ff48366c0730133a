// A session, as the files of this room know it.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"
#include "text/sampler.h"

struct yalm_session {
    const yalm_model *model;
    yalm_session_options options;          // resolved
    struct kv_policy kv[CONFIG_MAX_KINDS]; // of each kind of layer
    yalm_memory memory;
    atomic_bool cancel;

    const struct backend *backend;
    void *state;
    char machine[768]; // what it runs on, and why not on another device

    int64_t position;   // tokens so far
    int64_t high_water; // positions below it have been written at some time
    int64_t
        floor; // but for 0, positions below it cannot be gone back to: rings were given what the one there sees, and no more
    int32_t *history; // (context): the token at position p is at p % context
    int32_t *recent;  // (context): scratch for the sampler's penalties, oldest first

    float *last_logits; // (vocab_size)
    float *all_logits;  // (all_capacity, vocab_size), taken when first wanted
    size_t all_capacity;
    int n_logits;        // valid after the last evaluation
    const float *logits; // one of the two
    struct sampler sampler;
};
