// The feed-forward network's gated units, and the mixture of experts (Mixtral: Jiang et al., arXiv 2401.04088). Each function
// is steps of a run (team.h).
#pragma once
#include "cpu/matmul.h"

struct unit_products {
    struct product gate; // whose y is (n, rows): activation(gate · h) ∘ (up · h)
    const struct matrix *up;
    const float *up_bias;
    type_set types; // of both, or more
    enum activation activation;
};
// For n tokens h (n, hidden_dim).
void gated_units(struct cpu_state *state, const struct unit_products *units, const float *h, int n, struct member *me);

// OP_ROUTE: which of the n tokens h go to which expert.
void experts_route(struct cpu_state *state, const struct step *step, const float *h, int n, struct member *me);
// OP_EXPERTS. observed: sums of inputs, of which the step's is that of expert 0's gate and up; NULL: they are not observed.
void experts_run(struct cpu_state *state, const struct step *step, const float *h, int n, struct member *me,
                 struct input_sums *observed);
