// A session's state on the CPU, from its opening to its end, and what the sessions on a model share.
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

void *cpu_open(const struct backend_plan *plan, yalm_error *error);
void cpu_close(void *state);
// Frees what cpu_sizes() has taken.
void cpu_release(struct cpu_state *state);
