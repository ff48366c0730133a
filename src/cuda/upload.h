// A model's weights on the device.
#pragma once
#include "cuda/state.h"

size_t weights_bytes(const struct model_config *config, const struct model_weights *weights); // that they take there

// Copies all weights of the plan's model, and tells options->progress.
yalm_status weights_upload(struct cuda_weights **weights, const struct backend_plan *plan, yalm_error *error);
// What becomes of matrices when they are on the device (as_fp16.cu). *most is device memory, for its own use.
yalm_status matrices_convert(struct model_weights *weights, const struct model_config *config, unsigned *most,
                             cudaStream_t stream, yalm_error *error);
void weights_release(void *weights); // a struct cuda_weights; NULL is welcome
