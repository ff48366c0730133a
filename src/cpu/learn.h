// Learns the codebooks of product-quantised keys: k-means with 16 centroids in each sub-vector of each KV head's keys.
#pragma once
#include "cpu/state.h"
#include "engine/calibrate.h"

// centroids: (n_layers, n_kv_heads, head_dim / d_sub, d_sub, 16). The same for any number of threads.
yalm_status learn_codebooks(struct cpu_state *state, const struct learning *how, float *centroids, yalm_error *error);
