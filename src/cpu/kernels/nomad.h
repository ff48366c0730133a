// NoMAD-Attention's kernels (Zhang et al., arXiv 2403.01273): keys are product-quantised, and scores are sums of table entries
// that lie in registers instead of multiply-adds over keys that lie in memory.
//
// A key of head_dim components is cut into n_sub = head_dim / d_sub sub-vectors (d_sub 1, 2 or 4). Each becomes the number of
// the nearest of 16 centroids: 4 bits. For a query, table[s, c] = q_s · centroid[s, c]; then q · k ≈ Σ_s table[s, code_s].
//
// The paper scales each sub-quantiser's table to 8 bits by its own range, and such integers cannot be summed. Here one query
// has one scale: with span_s = max_c - min_c of table row s,
//
//     a = min(255 / max_s span_s, (65535 - n_sub) / Σ_s span_s)
//     entry[s, c] = round((table[s, c] - min_s) a)  in 0 … 255
//     score = Σ_s min_s + (Σ_s entry[s, code_s]) / a,  off by at most n_sub / (2 a)
//
// The second bound keeps the sum of all rows' largest entries within 16 bits, whatever head_dim is. The sums are exact
// integers, so that scores are the same to the bit on every instruction set.
//
// Codes lie in blocks of 32 keys: (n_blocks, rows, 16) bytes, row s of a block for sub-quantiser s, whose byte j has key j in
// its low and key j + 16 in its high four bits. `rows` is n_sub rounded up to whole groups of four, the others zero.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels/codes.h"
#include "cpu/kernels/fetching.h"
#include "cpu/kernels/kv_type.h"

enum { NOMAD_CENTROIDS = 16, NOMAD_BLOCK = 32, NOMAD_ROW = 16 }; // centroids; keys in a block; bytes of a row

static inline int nomad_rows(int n_sub)
{
    return (n_sub + 3) / 4 * 4;
}
static inline size_t nomad_block_bytes(int n_sub)
{
    return (size_t)nomad_rows(n_sub) * NOMAD_ROW;
}

// One KV head's codebook.
struct nomad_book {
    const float *centroids; // (n_sub, d_sub, 16)
    int n_sub, d_sub;
};

// Codes of a run of keys that begins with a block, and the codebook that they are of.
struct nomad_codes {
    const uint8_t *blocks; // (n_blocks, rows, 16)
    struct nomad_book book;
};

// The tables of a query, as described above.
struct nomad_table {
    uint8_t *entries;   // (rows, 16), 64-byte aligned
    float *base, *step; // Σ_s min_s, 1 / a
};

// scores[i, j] = base[i] + step[i] Σ_s entries[i, s, code_s of key j]. Reads each code once for all queries: rows * 16 bytes
// for 32 keys.
struct nomad_score_args {
    float *scores; // (n_queries, ld), of which n_blocks * 32 are written
    ptrdiff_t ld;
    const uint8_t *codes;     // (n_blocks, rows, 16)
    const uint8_t *entries;   // (n_queries, rows, 16), 64-byte aligned
    const float *base, *step; // (n_queries)
    int n_queries, rows, n_blocks;
};

// For query i and w_j = e^(scores[i, j] - max[i]):  acc[i] += Σ_j w_j v_j,  sum[i] += Σ_j w_j, over the keys for which some of
// the queries has inverse_least w_j >= 1. Rows of other keys count nothing, and where they are many they are not read.
struct nomad_value_args {
    float *acc;          // (n_queries, head_dim)
    float *sum;          // (n_queries)
    const float *scores; // (n_queries, ld)
    ptrdiff_t ld;
    const float *max, *inverse_least; // (n_queries); inverse_least NULL: all keys
    const void *v;                    // (n_keys, head_dim), of the type that the function is for
    const float *v_scales;            // (n_keys) of int8
    int n_queries, n_keys, head_dim;
    struct fetching fetching; // as of struct attend_args
    void *scratch;            // (attend_scratch) bytes, this thread's own, 64-byte aligned
};

typedef void nomad_values_function(const struct nomad_value_args *args);

struct nomad_kernels {
    const char *name;

    // codes[s] = the nearest centroid to key's sub-vector s by L2, the lower one of equals; 0 where all distances are NaN or
    // infinite. codes: (n_sub), a byte each; key: (head_dim).
    void (*encode)(uint8_t *codes, const float *key, const struct nomad_book *book);

    // q: (head_dim), already scaled by 1 / sqrt(head_dim). scratch: (n_sub, 16) floats.
    void (*table)(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch);

    void (*scores)(const struct nomad_score_args *args);
    void (*code_scores)(const struct code_score_args *args); // of codes in runs

    // y: (32, head_dim), the keys of a block.
    void (*decode)(float *y, const uint8_t *block, const struct nomad_book *book);

    nomad_values_function *values[KV_TYPES];
};

extern const struct nomad_kernels nomad_kernels_scalar, nomad_kernels_avx2, nomad_kernels_avx512, nomad_kernels_avx512vbmi,
    nomad_kernels_neon;

// Puts a key's codes (n_sub) into four bits, from `shift` on, of a byte in each of n_sub rows. Where keys whose codes share
// bytes are placed by several threads at the same time, `shared`: a byte is changed at once.
static inline void codes_place(uint8_t *p, ptrdiff_t stride, int shift, const uint8_t *codes, int n_sub, bool shared)
{
    for (int s = 0; s < n_sub; s++, p += stride) {
        const uint8_t byte = __atomic_load_n(p, __ATOMIC_RELAXED);
        const uint8_t change = (uint8_t)(((byte >> shift & 15) ^ codes[s]) << shift);
        if (shared)
            __atomic_fetch_xor(p, change, __ATOMIC_RELAXED);
        else
            *p = byte ^ change;
    }
}

// Puts a key's codes into place `at` (0 … 31) of its block.
static inline void nomad_place(uint8_t *block, int at, const uint8_t *codes, int n_sub, bool shared)
{
    codes_place(block + at % NOMAD_ROW, NOMAD_ROW, at < NOMAD_ROW ? 0 : 4, codes, n_sub, shared);
}

static inline int nomad_code(const uint8_t *block, int at, int s)
{
    return block[s * NOMAD_ROW + at % NOMAD_ROW] >> (at < NOMAD_ROW ? 0 : 4) & 15;
}

// The factor `a` of a query's tables, and their base and step, from rows whose least and largest entries are known. The same
// code for all instruction sets. A query whose spans are not numbers, or all (nearly) zero, gets a = 0: its scores are all the
// base.
struct nomad_range {
    double least, spans; // sums over the rows
    float most;          // the largest span
};

static inline void nomad_range_add(struct nomad_range *range, float least, float largest)
{
    const float span = largest - least;
    range->least += (double)least;
    range->spans += (double)span;
    range->most = span > range->most ? span : range->most;
}

static inline float nomad_factor(const struct nomad_range *range, int n_sub, float *base, float *step)
{
    *base = (float)range->least;
    *step = 0;
    if (!(range->most >= 1e-30f && range->spans <= 1e30))
        return 0;
    const double by_row = 255 / (double)range->most, by_sum = (65535 - n_sub) / range->spans;
    const float a = (float)(by_row < by_sum ? by_row : by_sum);
    *step = (float)(1 / (double)a);
    return a;
}
