// SparQ attention on the GPU (Ribar et al., arXiv 2312.04985): how it scores; the steps are in selective.h.
//
// Keys are kept twice: as rows, from which selected ones are read, and by component, for scores. Each component of all slots of
// a KV head is one run of memory, so r components are r long streams. A key joins that copy when it is appended.
#pragma once
#include "cuda/kernels/kernels.h"

struct cuda_sparq {
    // As chosen.
    int r;
    int k, min_k; // k = 0: share * length, at least min_k
    int local;    // 0: k / 4
    double share;
    enum sparq_copy copy;

    size_t stride;   // bytes of a component's run: selective.ld elements
    char *copied;    // (n_layers, n_kv_heads, head_dim, stride)
    float *scales;   // (n_layers, n_kv_heads, selective.ld) of int8 and 4 bits; else NULL
    int *components; // (n_kv_heads, r): those in which the queries are largest, ascending
    float *q;        // (n_heads, r): these, divided by the temperature
};
