// Element types of tensors.
#pragma once
#include <stdint.h>

enum dtype { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPE_U8, DTYPE_U32, DTYPE_COUNT };

// The types that a weight matrix can have come first.
enum { DTYPE_WEIGHTS = DTYPE_BF16 + 1 };

static const char *const dtype_names[DTYPE_COUNT] = {"fp32", "fp16", "bf16", "u8", "u32"};
static const uint64_t dtype_sizes[DTYPE_COUNT] = {4, 2, 2, 1, 4};
