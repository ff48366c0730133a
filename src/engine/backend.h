// What a device must do for a session. One table of functions for each backend; the session chooses one when it opens.
#pragma once
#include "engine/kv_cache.h"
#include "model/weights.h"
#include "util/atomic.h"

// All that a backend needs to know to build its state. Borrowed, and constant for the session's life.
struct backend_plan {
    const struct model_config *config;
    const struct model_weights *weights;
    const yalm_session_options *options; // resolved: no zeros, no "auto"
    struct kv_policy kv;
    const atomic_bool *cancel; // set from outside: evaluation ends soon with YALM_INTERRUPTED
};

// Tokens at positions position … position + n - 1, after which the cache holds their keys and values.
struct batch {
    const int32_t *tokens; // (n), each below vocab_size
    int n;                 // 1 … options->chunk
    int64_t position;      // of tokens[0]
    float *logits;         // (n, vocab_size) where all_logits, else (vocab_size) of the last token; NULL: none wanted
    bool all_logits;
};

struct backend {
    const char *name;
    // Fills in what the options leave open (isa, n_threads, chunk), or refuses what this machine has not.
    yalm_status (*resolve)(yalm_session_options *options, yalm_error *error);
    // Bytes that open() will take; sets memory->kv_cache, memory->scratch and, where there is such, memory->attention.
    yalm_status (*memory)(const struct backend_plan *plan, yalm_memory *memory, yalm_error *error);
    void *(*open)(const struct backend_plan *plan, yalm_error *error);
    void (*close)(void *state);
    yalm_status (*evaluate)(void *state, const struct batch *batch, yalm_error *error);
    yalm_status (*fill_random)(void *state, int64_t position, int n, uint64_t seed, yalm_error *error);
    // Bytes of the cache, and of what the attention method keeps beside it, that a batch must read; NULL: every visible row once.
    double (*step_bytes)(const void *state, int n, int64_t position);
    yalm_status (*measure_limits)(void *state, double seconds, yalm_limits *limits, yalm_error *error);
};

extern const struct backend backend_cpu;
