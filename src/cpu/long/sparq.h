// SparQ attention (Ribar et al., arXiv 2312.04985) as a policy; the steps are in selective.h.
//
// Keys are kept twice: rows, which the selected are read from, and component-major (sparse.h), which scores are computed from.
// The copy is made from the rows, a tile of slots at a time when its last slot is written: a single key would touch a cache
// line of each component. Until then the tile's keys are scored from their rows, which are among the most recent and are read
// anyway.
#pragma once
#include "cpu/kernels/sparse.h"
#include "yalm.h"

struct sparq {
    // As chosen.
    int r;
    int k, min_k; // k = 0: share * length, at least min_k
    int local;    // 0: k / 4
    double share;
    int from; // keys, below which attention is dense
    bool tail;
    enum copy_type copy;
    void (*score)(const struct score_args *args);

    int copy_slots;        // capacity, in whole groups
    ptrdiff_t copy_stride; // of a component's run of slots, in bytes
    uint8_t *copied;       // (n_layers, n_kv_heads, head_dim, copy_stride)
    float *copy_scales;    // (n_layers, n_kv_heads, copy_slots) of int8 and q4
    int *components;       // (n_kv_heads, r): the largest of the queries, ascending
    float *q;              // (n_heads, r): these, divided by the temperature
};
