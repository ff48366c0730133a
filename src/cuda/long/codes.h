// Codes of keys on the device. A key of d components is cut into d / d_sub sub-vectors; each becomes the number of the nearest
// of 16 centroids (NoMAD: Zhang et al., arXiv 2403.01273; the codebooks are those of model/codebook.h). The codes are the
// CPU's; how they lie and how they are scored is this device's own: see codes.cuh and codes_score.cu.
#pragma once
#include "cuda/kernels/kernels.h"

enum {
    CODES_CENTROIDS = 16,
    CODES_TILE = 256,      // slots whose codes lie together
    CODES_SCORE_WARPS = 4, // of a block that scores: a tile each, a part (selective.h) together
};

// One KV head's codebook, and what scores are computed with. dims: components, with those that pad.
struct code_book {
    const float *centroids; // (n_sub, d_sub, 16)
    const uint4 *tables;    // (dims): byte c is centroid c's component, rounded to scale * byte + middle
    const float2 *ranges;   // (dims): scale, middle; 0 for components that pad
};

// A session's codes. Layers are counted from the first that has codes.
struct key_codes {
    int n_layers, n_kv_heads, head_dim;
    int d_sub, n_sub;
    int rows;         // n_sub rounded up, so that every warp's step is whole
    int n_tiles;      // of a KV head
    uint4 *codes;     // (n_layers, n_kv_heads, n_tiles, rows / 4, 32); all 0 in the beginning
    float *centroids; // (n_layers, n_kv_heads, n_sub, d_sub, 16)
    uint4 *tables;    // (n_layers, n_kv_heads, dims)
    float2 *ranges;   // (n_layers, n_kv_heads, dims)
};

// All but the pointers. d_sub: 1, 2 or 4, and a divisor of head_dim.
void codes_shape(struct key_codes *c, int n_layers, const struct kv_cache *cache, int d_sub);

static inline int codes_dims(const struct key_codes *c)
{
    return c->rows * c->d_sub;
}
// 16-byte words of one layer's one KV head.
static inline size_t codes_head_words(const struct key_codes *c)
{
    return (size_t)c->n_tiles * (c->rows / 4) * 32;
}
// Of one key in one KV head, in bytes.
static inline double codes_key_bytes(const struct key_codes *c)
{
    return c->rows / 2.0;
}

// Fills tables and ranges from the centroids, which are there.
yalm_status codes_tables(const struct key_codes *c, cudaStream_t stream, yalm_error *error);

// Codes of positions [step->position, step->position + n) in codes' layer `layer`. They are made from keys (n, n_kv_heads,
// head_dim), rotated and not yet rounded; where keys is NULL, from the rows of the cache's layer `cache_layer`.
yalm_status codes_append(const struct key_codes *c, int layer, const struct evaluation *step, const float *keys,
                         const struct kv_cache *cache, int cache_layer, int n, cudaStream_t stream, yalm_error *error);

// Scores of one token's queries with all the keys that it sees, by their codes; selective.h says where they go.
struct codes_score {
    const struct evaluation *step;
    const float *q;      // (n_heads, head_dim), scaled by 1 / sqrt(head_dim)
    const float *sink_q; // likewise; NULL where policy.n_sinks == 0
    const float *key;    // (n_kv_heads, head_dim): the token's own, rotated, whose codes are made first; NULL: they are there
    const struct kv_cache *cache; // host memory; its sinks are scored exactly
    int layer, cache_layer, n_heads;
    float *scores;      // (n_heads, ld)
    float2 *part_stats; // (n_heads, n_parts)
    float *sink_scores; // (n_heads, n_sinks)
    int ld, n_parts;
};
yalm_status codes_score(const struct key_codes *c, const struct codes_score *s, int n_sms, cudaStream_t stream,
                        yalm_error *error);
