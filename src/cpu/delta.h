// Recurrent layers: the gated delta rule, a scan or a short convolution in attention's place, and what they carry from token to
// token.
#pragma once
#include "cpu/state.h"

// OP_RECUR of n tokens: steps of a run (team.h). They follow each other in s's own session; or, with n_turns = n, each is one
// turn's, in that one's session. y: (n, delta_values()).
void delta_recur(struct cpu_state *s, const struct turn *turns, int n_turns, int n, int layer, float *y, struct member *me);

// OP_CONVOLVE, likewise.
void delta_convolve(struct cpu_state *s, const struct turn *turns, int n_turns, int n, int layer, struct member *me);

// Before and after an evaluation of n tokens at `position`, which must be one that delta_holds(). apart: the session may turn
// out to stand behind any of them. done: it was not interrupted.
void delta_begin(struct cpu_state *s, int64_t position, int n, bool apart);
void delta_end(struct cpu_state *s, int64_t position, int n, bool done);

// The states before `position` stand for those n tokens later: what is in them costs no time.
void delta_skip(struct cpu_state *s, int64_t position, int n);

// Whether the states that tokens at `position` find are there.
bool delta_holds(const struct cpu_state *s, int64_t position);

// The place that holds what stands before `position`; where none does, one that is to be filled with it.
int delta_place(struct cpu_state *s, int64_t position);

// A head's state (key_dim, value_dim), and the convolution's last inputs (conv_width - 1, delta_channels()), oldest first, in a
// place.
float *delta_state(const struct cpu_state *s, int place, int layer, int head);
float *delta_inputs(const struct cpu_state *s, int place, int layer);

// Of tokens apart: floats of what each brings to a layer: q, k and v as they are mixed and as they were given, decays, betas;
// to a convolution alone, what it goes over.
static inline size_t replay_floats(const struct delta_config *d)
{
    const size_t channels = (size_t)delta_channels(d);
    return MOST_APART * (d->conv_dim ? channels : 2 * channels + (size_t)delta_decays(d) + (size_t)d->n_value_heads);
}
