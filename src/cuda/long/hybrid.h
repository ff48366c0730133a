// Hybrid attention on the device: what a session keeps for it. The method is in engine/hybrid.h, its steps are in selective.h.
#pragma once
#include "cuda/long/codes.h"

struct cuda_hybrid {
    struct hybrid options;
    struct codebook book;   // the file, until its centroids are on the device
    struct key_codes codes; // of all layers
};
