// RMSNorm of a batch's tokens, and of the heads of q, k and v. Each function is a step of a run (team.h).
#pragma once
#include "cpu/state.h"

// y[t] = rmsnorm(x[t]) for n tokens of hidden_dim components; y may be x.
void norm_tokens(struct cpu_state *state, struct member *me, float *y, const float *x, const float *weight, int n);

// Each head of state->q and ->k, or all of them together, becomes its own rmsnorm, before rotation (Henry et al., arXiv 2010.04245), and each of ->v where
// the model has that.
void norm_heads(struct cpu_state *state, int layer, struct member *me, int n);
