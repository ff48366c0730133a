// Tokens of several sessions on one model, evaluated together: the weights are read once, each session's keys and values by itself.
#pragma once
#include "cpu/state.h"

// What the sessions on a model share.
struct cpu_shared {
    void *teams;                // teams.h
    pthread_mutex_t evaluating; // held by whoever uses
    struct cpu_state *together; // the state of their common activations; NULL: not wanted yet
};
// The model's; NULL where memory cannot be had.
struct cpu_shared *cpu_shared(struct shared *of_cpu);

// See struct backend.
yalm_status cpu_evaluate_together(void *const *states, const struct batch *batches, int n, const struct backend_plan *plan,
                                  yalm_error *error);

// backend.c's
void *cpu_open(const struct backend_plan *plan, yalm_error *error);
void cpu_close(void *state);
