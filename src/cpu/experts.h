// The feed-forward network's gated units, and the mixture of experts (Mixtral: Jiang et al., arXiv 2401.04088).
#pragma once
#include "cpu/state.h"

// state->gate = activation(gate · h) ∘ (up · h) for n tokens h (n, hidden_dim): steps.
// `types`: those of gate and up, or more.
void gated_units(struct cpu_state *state, const struct expert_weights *w, type_set types, const float *h, int n,
                 struct member *me);

// x += Σ over each token's experts of weight · expert(h), for the n tokens state->h: steps. Of experts that have norms of their own state->expert_sum becomes
// the norm of the sum, and h is made of state->x here.
// observed, first_input: for observe(), the input of expert 0's gate and up.
void experts_block(struct cpu_state *state, const struct layer_weights *w, int n, struct member *me,
                   struct input_sums *observed, int first_input);
