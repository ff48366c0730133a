// Elements of the KV cache.
#pragma once
#include <stdint.h>

enum kv_type { KV_FP16, KV_FP32, KV_INT8, KV_TYPES }; // in the order of yalm_kv

static const uint64_t kv_sizes[KV_TYPES] = {2, 4, 1}; // bytes of an element; each row of int8 has a float, its scale, besides
