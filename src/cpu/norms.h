// Norms of a batch's tokens, and of the heads of q, k and v. Each function is a step of a run (team.h).
#pragma once
#include "cpu/state.h"

// y[t] = rmsnorm(x[t]), or LayerNorm where the model has that, for n tokens of hidden_dim components; y may be x. bias NULL:
// none.
void norm_tokens(struct cpu_state *state, struct member *me, float *y, const float *x, const float *weight, const float *bias,
                 int n);

// x += rmsnorm(y + sum), of n tokens; y becomes its own norm by `own` first, where that is not NULL, and sum (n, hidden_dim)
// counts where there is any.
void norm_and_add(struct cpu_state *state, struct member *me, float *y, const float *own, const float *sum, const float *weight,
                  int n);

// OP_HEAD_NORM of state->q, ->k and ->v; of v alone where ranks normalise the others together (shares.h).
void norm_heads(struct cpu_state *state, const struct step *step, struct member *me, int n);
