// What memory and arithmetic of the device can give.
#pragma once
#include "cuda/state.h"

yalm_status limits_measure(const struct cuda_device *device, struct matmul *matmul, cudaStream_t stream, double seconds,
                           yalm_limits *limits, yalm_error *error);
