// A model's weights on the device.
#pragma once
#include "cuda/state.h"

size_t weights_bytes(const struct model_config *config, const struct model_weights *weights); // that they take there

// Copies all weights of the plan's model, and tells options->progress.
yalm_status weights_upload(struct cuda_weights **weights, const struct backend_plan *plan, yalm_error *error);
// Converts a bfloat16 matrix in place where float16 can hold it (as_fp16.cu). *most is device memory, for its own use.
yalm_status matrix_as_fp16(struct matrix *matrix, unsigned *most, cudaStream_t stream, yalm_error *error);
void weights_release(void *weights); // a struct cuda_weights; NULL is welcome
