// Attention methods as the forward pass sees them: a token attends by the session's method, or densely. What a method keeps,
// and how it scores and selects, is in cuda/long alone.
//
// All of these run on the host; what they launch goes to the session's stream. Where the session has no method (s->method is
// NULL) only method_applies() and method_close() may be called.
#pragma once
#include "cuda/kernels/kernels.h"

struct backend_plan;
struct cuda_blocks;
struct cuda_state;

// What this backend refuses of a method's options, in one line, before anything is planned. Dense attention is never refused.
yalm_status method_check(const struct model_config *config, const struct model_weights *weights,
                         const yalm_session_options *options, yalm_error *error);
// By the options' name: s->method, NULL for dense attention. The state has config, caches and device. Also called where only
// sizes are wanted.
yalm_status method_plan(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error);
void method_take_kept(struct cuda_state *s, struct cuda_blocks *b); // beside the caches: yalm_memory.attention
void method_take_scratch(struct cuda_state *s, struct cuda_blocks *b);
// Once the memory is there.
yalm_status method_open(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error);
void method_close(struct cuda_state *s);

// True where a batch attends by the session's method.
bool method_applies(const struct cuda_state *s, int n, int64_t position);
// How many keys the token at `position` selects: put into struct evaluation by the host, so the same function as the CPU's.
struct choice method_choice(const struct cuda_state *s, int64_t position);
// Before a batch writes to the cache, once for all layers.
yalm_status method_begin(struct cuda_state *s, bool applies, yalm_error *error);
// n tokens whose rows rope_append() (or fill_noise(), then a->q is NULL) has put into the cache, positions step->position …:
// what the method keeps of them. For tokens that attend densely; method_attend() does it for its own.
yalm_status method_append(struct cuda_state *s, const struct attention *a, int n, yalm_error *error);
// One token's attention in a layer, after rope_append(): attended (n_heads, head_dim).
yalm_status method_attend(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error);
// Bytes of the cache and of what the method keeps that one token at `position` must read in one layer.
double method_bytes(const struct cuda_state *s, int64_t position);
