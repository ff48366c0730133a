// Where ranks meet that compute one model (engine/group.h). Each function is some steps of a run (team.h), none without a
// group.
#pragma once
#include "cpu/state.h"

// x += the sum over ranks of what the block adds that `step` ends, normalised where the step says so. Pass `run` ends with its
// layer where a rank wants it to.
void shares_join(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, int n);

// q and k of n tokens become their rmsnorm over the heads of all ranks.
void shares_normalise(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, int n);

// Rank 0's `logits` (n, the model's vocabulary) from all ranks' s->logits.
void shares_gather(struct cpu_state *s, struct member *me, float *logits, int n);
