// What other files of this room need to know of a session.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"

struct session_parts {
    const yalm_model *model;
    const struct backend *backend;
    void *state; // the backend's
    atomic_bool *cancel;
    const yalm_session_options *options; // resolved
    const struct kv_policy *kv;          // (n_kinds)
    int n_kinds;
    // The timeline itself, for whoever puts another in its place.
    int64_t *position, *high_water;
    int32_t *history; // (context): the token at position p is at p % context
    int *n_logits;
};

struct session_parts session_parts(yalm_session *session);
