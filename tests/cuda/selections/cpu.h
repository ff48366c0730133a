// What the CPU selected for a token, layer by layer, and how far from its scores another device's may be: for compare.cc, which cannot include the
// CPU backend's own headers beside the CUDA half's.
#pragma once
#include <stdbool.h>

#include "yalm.h"

// One layer's attention to selected keys, of one token. Keys are numbered by age, 0 the oldest that is selected from.
struct cpu_selection {
    int64_t position;
    int n_keys, n_sinks;  // sinks apart
    int k, first, local;  // wanted, clamped to n_keys; those that always belong
    int r;                // SparQ's components; else 0
    int *slots;           // (n_keys)
    float *scores;        // (n_heads, n_keys)
    float *sink_scores;   // (n_heads, n_sinks)
    double *rounding;     // (n_heads, n_keys): how much both devices together may round a score
    double *sums;         // (n_kv_heads, head_dim): Σ_group |q|, by which components are chosen
    int *components;      // (n_kv_heads, r)
    unsigned char *taken; // (n_kv_heads, n_keys): 1 where the key was selected
    bool drawn;           // by priority,
    double *lifts;        // (n_kv_heads, n_keys): by these times weights; 1 where the best are taken
    float *bias;          // (n_kv_heads, n_keys): what is added to a selected key's score
};

#ifdef __cplusplus
extern "C" {
#endif
// From now on every layer's selection is kept, until the next one's in the same layer. The session is on the CPU, with one thread, and attends by a
// method that selects.
void cpu_watch(yalm_session *session);
// NULL where the layer has not selected itself since the watch began, or attends to an earlier one's rows.
const struct cpu_selection *cpu_selection(int layer);
void cpu_watch_end(void);
#ifdef __cplusplus
}
#endif
