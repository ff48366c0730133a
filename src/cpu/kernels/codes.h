// Codes of keys in runs, and scores from those of some sub-quantisers: what the hybrid reads (code_runs.h). Codes are NoMAD's
// (nomad.h).
//
// Layout: each sub-quantiser's codes of all slots are one run of memory: (n_sub, stride) bytes, in which each 128 slots are 64
// bytes, a cache line. code_byte() says which of them a slot has half of. Vectors interleave lines of four sub-quantisers byte
// by byte within each 16 bytes; then 16 slots' bytes come out together, in their order.
//
// Scores, of components c whose codes are read, by integers that all queries of a KV head share:
//
//     centroid[c, code] ≈ middle_c + scale_c value[c, code],  value in −127 … 127
//     q_c scale_c ≈ step weight_c,  weight in −127 … 127
//     q · k ≈ base + step Σ_c weight_c value[c, code of k]
//
// The sum is an exact integer, so scores are the same to the bit on every instruction set. A score is off by at most Σ_c |q_c|
// scale_c / 2 + step / 2 Σ_c |value_c|.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CODE_GROUP = 128,      // slots whose codes are …
    CODE_GROUP_BYTES = 64, // … so many bytes of a run
    CODE_VALUES = 16,      // that a code can stand for
    CODE_LIST = 8,         // components are listed in multiples of so many, and …
    CODE_MOST = 512,       // … so many at most
};

// Of a run, the bytes before the group of a slot.
static inline ptrdiff_t code_offset(int slot)
{
    return (ptrdiff_t)(slot / CODE_GROUP) * CODE_GROUP_BYTES;
}
// Which byte of its group a slot shares, and how many of its bits are below the slot's own.
static inline int code_byte(int slot)
{
    return slot / 4 % 4 * 16 + slot % 64 / 16 * 4 + slot % 4;
}
static inline int code_shift(int slot)
{
    return slot % CODE_GROUP < CODE_GROUP / 2 ? 0 : 4;
}
// Bytes from one run to the next, with room for so many slots. It is an odd number of cache lines, so the same slots of
// different sub-quantisers lie in different sets of the caches.
static inline ptrdiff_t code_stride(int slots)
{
    const ptrdiff_t groups = (slots + CODE_GROUP - 1) / CODE_GROUP;
    return (groups | 1) * CODE_GROUP_BYTES;
}

// scores[i, j] = base[i] + step[i] (offset[i] + Σ_c weights[i, c] values[c, code of slot j in run run_of[c]]). Reads n 64 bytes
// for each 128 slots.
struct code_score_args {
    float *scores; // (n_queries, ld), of which n_groups * 128 are written
    ptrdiff_t ld;
    const uint8_t *runs; // (n_sub, stride), from the first slot on, where a group begins
    ptrdiff_t stride;
    const int *run_of;        // (n), ascending; n is a positive multiple of CODE_LIST, and what is too many has weights of 0
    const uint8_t *values;    // (n, 16), each increased by 128; 64-byte aligned
    const int8_t *weights;    // (n_queries, n)
    const int *offset;        // (n_queries): −128 Σ_c weights
    const float *base, *step; // (n_queries)
    int n_queries, n, n_groups;
    bool to_l2; // machine_fetching()'s runs_to_l2; results do not depend on it
};
