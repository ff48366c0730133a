// Recurrent layers: the gated delta rule, a scan or a short convolution in attention's place (docs/format.md, "Recurrent
// layers"), and what they carry from token to token.
#pragma once
#include "cuda/kernels/kernels.h"

enum {
    CARRIED_PLACES = 3, // an evaluation reads one and writes another; a third stands before the last prompt
    MAX_KEY_DIM = 512,  // of a head, whose state's column lies in the registers of at most one warp
};

// Which positions the places stand before. As on the CPU (cpu/delta.c).
struct carried {
    int64_t at[CARRIED_PLACES]; // the position that each stands before; -1: it holds nothing
    int64_t kept;               // before the last batch of several tokens
    int from, to;               // of the evaluation that is being queued
    int64_t first;              // of the last evaluation,
    int n_replays;              // whose tokens, where they were apart, can be repeated one after the other (recur.cu)
};
void carried_open(struct carried *c);
bool carried_holds(const struct carried *c, int64_t position);
// Whether no place has `position`, but repeating some of the last tokens apart leads there (delta_replay()).
bool carried_replays(const struct carried *c, int64_t position);
// Before tokens are repeated up to `position`.
void carried_begin_replay(struct carried *c, int64_t position);
// Before an evaluation of n tokens at `position`, which a place must have. apart: the session may go back to any of them.
void carried_begin(struct carried *c, int64_t position, int n, bool apart);
// After an evaluation or a repetition was queued. done: that did not fail.
void carried_end(struct carried *c, int64_t position, int n, bool done);
// What stands before `position` stands for n tokens later. The place that has it.
int carried_skip(struct carried *c, int64_t position, int n);
// The place that has what stands before `position`; where none does, one that is to be filled with it.
int carried_place(struct carried *c, int64_t position);

// A layer's part in an evaluation of n tokens. All but the configuration is device memory.
struct delta {
    const struct evaluation *step;     // whose position and places count
    const struct delta_config *config; // host memory
    const struct layer_weights *w;     // host memory, with device pointers
    int layer, n_layers;               // among those of its kind, which the places have one behind the other
    float *states;                     // (places, n_layers, n_value_heads, value_dim, key_dim)
    float *inputs;          // (places, n_layers, conv_width - 1, delta_channels()): the convolution's last, oldest first
    const float *q, *k, *v; // (n, delta_keys()) twice, (n, delta_values()); of a convolution alone (n, conv_dim) each
    float *decays, *betas; // (n, delta_decays()), (n, n_value_heads): logits, a scan's betas unset; after delta_mix() what they
                           // stand for
    float *mixed;          // (n, delta_channels()): q, k and v after the convolution
    // Tokens that may be repeated: what the convolution goes over, (n, delta_channels()); decays and betas. These outlast the
    // evaluation, as `mixed` does then, and stand in for the arrays above. NULL: no token may be repeated.
    float *kept_decays = NULL, *kept_betas = NULL, *given = NULL;
    int n_given = 0; // tokens in `given` that stand before the n of this call
    int pitch = 0;   // of a convolution alone: floats of q, k and v from token to token; 0: conv_dim
};

// q, k and v of tokens and of those before them, mixed; decays and betas; and the inputs that the tokens to come will see,
// alone where n is 0.
yalm_status delta_mix(const struct delta *d, int n, cudaStream_t stream, yalm_error *error);
// y (n, delta_values()) = Sᵀq of each value head after each token's update of its S.
yalm_status delta_rule(const struct delta *d, float *y, int n, cudaStream_t stream, yalm_error *error);
// to (n, delta_values()) of `type` = rmsnorm(y) of each head, times silu(gates), or of KDA sigmoid(gates). A scan's is
// rmsnorm(silu(gates) (y + skip x)) of each group, or where the norm comes first silu(gates) rmsnorm(y + skip x); x: d->mixed.
yalm_status delta_gate(const struct delta *d, void *to, enum dtype type, const float *y, const float *gates, float eps, int n,
                       cudaStream_t stream, yalm_error *error);

// A convolution alone: y (n, conv_dim) of `type`, and the inputs that later tokens see; with n = 0 only these (convolve.cu).
yalm_status delta_convolve(const struct delta *d, void *y, enum dtype type, int n, cudaStream_t stream, yalm_error *error);
