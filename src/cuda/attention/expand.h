// Prompts of layers that keep latents (MLA): keys and values of some heads at a time are made of the latents.
#pragma once
#include "cuda/kernels/kernels.h"

// Slots [0, n) of `to`, of fp16, (heads, capacity, width) twice with from's slots: k_b (heads, kv_rank, nope_dim) of the layer's
// latents and what of their keys rotates; and v_b (heads, v_dim, kv_rank) of them, with zeros up to width.
yalm_status expand_latents(const struct kv_cache *to, const struct kv_cache *from, int layer, const struct latent_config *d,
                           const half *k_b, const half *v_b, int n, cudaStream_t stream, yalm_error *error);

// y (n, dim) = the first dim of each of x (n, width), both of `type`.
yalm_status narrow_heads(void *y, const void *x, enum dtype type, int dim, int width, size_t n, cudaStream_t stream,
                         yalm_error *error);
