// NoMAD attention (Zhang et al., arXiv 2403.01273): keys are kept as 4-bit codes instead of the key cache (nomad.h has formulas
// and layout). One token alone attends from the codes, by look-ups in registers; larger batches attend to decoded keys with the
// fused kernel.
//
// Codebooks and the codes of a key serve another method too, which keeps keys beside the codes, and these elsewhere
// (code_runs.h).
#pragma once
#include "cpu/kernels/nomad.h"
#include "cpu/policy.h"
#include "model/codebook.h"

enum { NOMAD_DIMS = 512 }; // components at most

struct nomad {
    struct codebook book;
    const struct nomad_kernels *kernels;
    int n_sub;
    size_t head_bytes; // codes of one layer's one KV head
    uint8_t *codes;    // (n_layers, n_kv_heads, n_blocks, rows, 16), by slots; kept

    // Of one token's queries in one layer.
    uint8_t *entries;   // (n_heads, rows, 16)
    float *base, *step; // (n_heads)
    float *tables;      // (n_heads, n_sub, 16), on their way to entries

    // The policy's own.
    float skip;                 // of a token's attention, what rows that are not read may have in all; 0: all rows are read
    ptrdiff_t ld;               // room for every key
    int parts;                  // most parts of the scores
    float *scores;              // (n_heads, ld)
    float *part_max, *part_sum; // (n_heads, parts)
    float *sink_scores;         // (n_heads, n_sinks)
};

// For plan() and close(): the codebooks that the options name, or the model's.
yalm_status nomad_open(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error);
void nomad_close(struct cpu_state *s);

void nomad_carve_codes(struct cpu_state *s, struct carver *c);  // kept
void nomad_carve_tables(struct cpu_state *s, struct carver *c); // scratch

// codes (n_sub) = those of a key that is appended.
void nomad_encode_key(const struct cpu_state *s, const struct append *row, uint8_t *codes);
// Stores a key's codes. Tokens of one batch may be stored at the same time.
void nomad_append_key(struct cpu_state *s, const struct append *row);

// Builds the tables of one KV head's queries: q (group, head_dim), rotated and scaled.
void nomad_prepare(struct cpu_state *s, int layer, int kv_head, const float *q);
// scores[i * ld + j] = query i's score of slot + j, j < n, by the tables.
void nomad_score(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld);
// to (n, head_dim) = the keys of slots slot … slot + n - 1, decoded.
void nomad_decode(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *to);
