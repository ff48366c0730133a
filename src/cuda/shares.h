// Where ranks on GPUs meet that compute one model (engine/group.h): through NCCL, on the session's stream, and so in its
// graphs. Each rank has its share of the weights, as on the CPU; all have the same bits after a sum.
#pragma once
#include "cuda/kernels/kernels.h"

struct cuda_blocks;
struct cuda_device;
struct cuda_state;
struct yalm_group;

// A model's, of all its sessions.
struct shares;

// The GPU of this rank among this machine's `n_gpus`: a rank has one of its own, by its place among the ranks of its host.
// YALM_FAILED: there are too few.
yalm_status shares_choose_gpu(const struct yalm_group *group, int n_gpus, int *gpu, yalm_error *error);

yalm_status shares_open(struct shares **shares, struct yalm_group *group, yalm_error *error); // YALM_FAILED: no NCCL
void shares_close(struct shares *shares);                                                     // NULL is welcome
yalm_status shares_invite(void *invitation, yalm_error *error);
// All ranks at the same time: waits for them.
yalm_status shares_join(struct cuda_state *s, const void *invitation, yalm_error *error);
void shares_take(struct cuda_state *s, struct cuda_blocks *b); // their memory on the device; without a group none

// x (n, hidden_dim) += the sum over ranks of s->branch, normalised by `norm` where that is not NULL. The next block finds
// s->branch zero.
yalm_status shares_end_block(struct cuda_state *s, const float *norm, int n, yalm_error *error);
// q and k of n tokens become their rmsnorm over the heads of all ranks; pitches: floats from token to token.
yalm_status shares_normalise(struct cuda_state *s, const struct layer_weights *w, float *k, int q_pitch, int k_pitch, int n,
                             yalm_error *error);
// Rank 0's `logits` (n, the model's vocabulary) from all ranks' s->part_logits.
yalm_status shares_gather(struct cuda_state *s, float *logits, int n, yalm_error *error);

// Between layers. Some hundred kernels can be queued behind a sum that waits for a rank; then a launch waits, too, and for
// ever. So outside of a graph those of some layers are done before the next are queued.
yalm_status shares_keep_up(struct cuda_state *s, int layer, yalm_error *error);
// Until all that was queued is done. Where that takes long, because a rank does not come to a sum, it says which, and nothing
// is left on the stream.
yalm_status shares_wait(struct cuda_state *s, yalm_error *error);
// After a failure: no rank is waited for any more.
void shares_give_up(struct cuda_state *s);
