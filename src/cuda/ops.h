// A recipe's steps on a GPU.
#pragma once
#include "cuda/state.h"

// What is the same for all of a run's steps.
struct pass {
    struct cuda_state *s;
    int n;          // tokens
    bool selective; // attention goes by the session's method
    const float *x; // (n, hidden_dim), the residual stream
    float *logits;  // (n, vocab)
};

// Queues one step's op on the session's stream.
yalm_status queue_step(const struct pass *run, const struct step *step, yalm_error *error);
