// Prompts of layers that keep latents (MLA): keys and values of each head are made of the latents once, for all of the batch's
// tokens, which attend to them as to any others. The cache keeps the latents.
#pragma once
#include "cpu/state.h"

// Fills s->expansion; nothing of a model without latents. After s->kinds.
void latents_plan(struct cpu_state *s, yalm_activations activations);

// Bytes of s->expand_scratch that each thread needs; 0: none.
size_t latents_scratch(const struct cpu_state *s);

// Whether the batch goes so. Else the steps around ATTEND bring its queries to the latents, and what they find to heads.
bool latents_expand(const struct cpu_state *s, const struct batch *batch);

// For such batches. One token's queries of all heads: from s->heads to rotated_q (n_heads, chunk, expansion.width), scaled, and
// rotated where there are angles.
void latents_query(struct cpu_state *s, int token, float scale, const float *cos, const float *sin);
// s->heads (n, n_heads, v_dim) = what heads see; steps of a run (team.h), behind attention_append().
void latents_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me);
