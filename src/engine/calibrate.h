// What calibration asks of a backend: keys recorded as the forward pass makes them, and codebooks learned from them.
#pragma once
#include "model/codebook.h"
#include "util/atomic.h"

// Keys before their rotation. While a session records, the key of position p becomes sample first + p.
struct key_record {
    uint16_t *keys; // (far layers, n_kv_heads, room, head_dim), fp16: of config_far()
    int room, first;
};

struct learning {
    const struct key_record *record;
    const int32_t *positions; // (n): where each sample is rotated to
    int n;                    // samples
    int d_sub, iterations;    // of k-means
    uint64_t seed;
    void (*progress)(void *context, const char *what, double part);
    void *context;
};
