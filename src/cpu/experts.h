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
// For n tokens h (n, hidden_dim). Without a gate: up->y = activation(up · h); types: those that the tokens are packed for.
void plain_units(struct cpu_state *state, const struct product *up, type_set types, enum activation activation,
                 const float *xielu, const float *h, int n, struct member *me);
void gated_units(struct cpu_state *state, const struct unit_products *units, const float *h, int n, struct member *me);

// OP_ROUTE: which of the n tokens h go to which expert.
void experts_route(struct cpu_state *state, const struct step *step, const float *h, int n, struct member *me);

// OP_EXPERTS: rounds, one for each expert that has tokens, in three parts. run.c goes through them.
struct expert_round {
    const struct expert_weights *w;
    int number, n; // the expert's; of its tokens, whose rows stand in expert_in. 0: all of it is steps without items
    int last;      // which token of the batch is the last of these
    // Of all the layer's experts: which one a round is for is not known for good, so each has the steps of all.
    type_set unit_types, down_types;
};
struct expert_round experts_begin(struct cpu_state *state, const struct step *step, int n, struct member *me); // none yet
// Round i, which gathers its tokens' rows of h (n, hidden_dim).
void experts_gather(struct cpu_state *state, const struct step *step, struct expert_round *round, int i, const float *h,
                    struct member *me);
void experts_units(struct cpu_state *state, const struct step *step, const struct expert_round *round, struct member *me);
void experts_add(struct cpu_state *state, const struct step *step, const struct expert_round *round, struct member *me);
