// Recurrent layers as the recipe's step, and the states of a session.
#pragma once
#include "cuda/ops.h"

// Floats of what tokens apart bring to a layer: q, k and v, mixed and as given; decays; betas. A convolution alone has only its
// inputs.
static inline size_t replay_floats(const struct delta_config *c)
{
    const size_t channels = delta_channels(c);
    return SEVERAL * (c->conv_dim ? channels : 2 * channels + delta_decays(c) + (size_t)c->n_value_heads);
}

// OP_RECUR.
yalm_status recur(const struct pass *r, const struct step *step, yalm_error *error);
// OP_CONVOLVE.
yalm_status convolve(const struct pass *r, const struct step *step, yalm_error *error);
// Where only what the last tokens apart brought leads to `position`, queues the rule for those before it: a place has that
// position then.
yalm_status delta_replay(struct cuda_state *s, int64_t position, yalm_error *error);
