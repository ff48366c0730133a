// One token's step as one kernel (step.cuh), where device, model and session are of the kind that it is made for.
#pragma once
#include "cuda/kernels/cuda.h"

struct cuda_blocks;
struct cuda_state;

void step_take(struct cuda_state *s, struct cuda_blocks *b); // its memory on the device
// After the session's memory is taken: s->step_plan, NULL where the kernel does not run this session.
yalm_status step_open(struct cuda_state *s, yalm_error *error);
void step_close(struct cuda_state *s);

// Whether it computes the token at a position.
bool step_runs(const struct cuda_state *s, int64_t position);
// From a token to s->logits, queued.
yalm_status step_run(struct cuda_state *s, int64_t position, int32_t token, yalm_error *error);
