// Hybrid attention on the device: what a session keeps for it. The method is in engine/hybrid.h, its steps are in selective.h.
#pragma once
#include "cuda/codes.h"

struct cuda_method;

struct cuda_hybrid {
    struct hybrid options;
    struct codebook book;   // the file, until its centroids are on the device
    struct key_codes codes; // of all layers
    float *
        rotated_k; // (chunk, n_kv_heads, head_dim): a batch's keys, before the cache rounds them; NULL: the session's method is another
};

extern const struct cuda_method method_hybrid;
