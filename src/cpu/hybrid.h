// Hybrid attention for decoding: every key is scored from its 4-bit codes (NoMAD: Zhang et al., arXiv 2403.01273), some keys are selected,
// these are attended to exactly, and the rest counts as its mean value (SparQ's third step: Ribar et al., arXiv 2312.04985):
//
//     y = α y₂ + (1 − α) v̄,   y₂ exact over the selected keys, α the share of the codes' softmax that they have
//
// For each key and KV head the codes are d / (2 d_sub) bytes; of the selected ones, key and value are read besides. At d = 128, d_sub = 1, an
// fp16 cache and 1/32 of the keys selected that is 64 + 16 bytes where dense attention reads 512.
#pragma once
#include <stdbool.h>

struct hybrid {
    float share;     // of the keys, selected …
    int min_k;       // … but at least so many
    int local;       // the most recent, which always belong; 0: a quarter of the selected
    int first;       // the oldest, likewise
    float mass;      // fewer once they have this share of the codes' softmax; 0: always all
    bool tail;       // the rest counts as its mean value
    int from;        // visible keys: with fewer, attention is dense
    int first_layer; // layers before it are dense
};
