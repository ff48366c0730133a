// Attention for many queries (prefill), for either vector width; included by attend_*.c.
//
// Bound by arithmetic: 4 head_dim operations for each query and key that it sees. A block of keys becomes panels of VEC keys,
// its values panels of VEC components, both in float32, once for MANY_ROWS queries. Then scores = q Kᵀ and acc += e^(scores -
// max) V are register-tiled products (vec/math.h) whose operands are in L1 and L2. Tiles that no query of a row of tiles sees
// are not computed.
#pragma once
#include "cpu/kernels/attend_blocks.h"
#include "cpu/kernels/vec/attend_dense.h"

enum {
    MANY_ROWS = 128, // queries
    MANY_KEYS = ATTEND_BLOCK_KEYS,
    MANY_DIMS = 256,             // components at a time
    KEY_GROUP = TILE_VECS * VEC, // keys in a tile
    MANY_FLOATS = MANY_ROWS * (MANY_DIMS + MANY_KEYS) + 2 * MANY_KEYS * MANY_DIMS + VEC * MANY_DIMS,
    ATTEND_SCRATCH = (int)sizeof(float) * MANY_FLOATS,
};

_Static_assert(MANY_KEYS % KEY_GROUP == 0 && MANY_DIMS % VEC == 0 && MANY_ROWS % TILE_ROWS == 0, "whole tiles");
_Static_assert((int)FEW_SCRATCH <= (int)ATTEND_SCRATCH, "one scratch serves both forms");

// The parts of the scratch.
struct many_queries {
    float *q;      // (MANY_ROWS, MANY_DIMS)
    float *scores; // (MANY_ROWS, MANY_KEYS)
    float *keys;   // panels of VEC keys, each (dims, VEC)
    float *values; // panels of VEC components, each (MANY_KEYS, VEC)
    float *rows;   // (VEC, MANY_DIMS)
};

// Some queries and a block of keys.
struct many_block {
    int query, n_queries, key, n_keys;
    struct view views[MANY_ROWS];              // of the block's keys
    struct view groups[MANY_ROWS / TILE_ROWS]; // of TILE_ROWS queries together
};

VEC_INLINE void many_pack_queries(const struct many_queries *m, const struct attend_args *a, const struct many_block *b,
                                  int dim, int dims)
{
    for (int i = 0; i < b->n_queries; i++)
        memcpy(m->q + (ptrdiff_t)i * MANY_DIMS, a->q + (b->query + i) * (ptrdiff_t)a->head_dim + dim,
               sizeof(float) * (size_t)dims);
    for (int i = b->n_queries; i % TILE_ROWS; i++)
        memset(m->q + (ptrdiff_t)i * MANY_DIMS, 0, sizeof(float) * (size_t)dims);
}

// As kv_load(), times the row's scale. There are `left` components; of the last vector only those are read.
VEC_INLINE vec many_load(enum kv_type type, const void *p, ptrdiff_t at, int left, vec scale)
{
    const vec x = left >= VEC ? kv_load(type, p, at) : kv_load_part(type, p, at, left);
    return type == KV_INT8 ? vec_mul(scale, x) : x;
}

VEC_INLINE void many_pack_keys(enum kv_type type, const struct many_queries *m, const struct attend_args *a,
                               const struct many_block *b, int dim, int dims)
{
    for (int j = 0; j < b->n_keys; j += VEC) {
        const int n = b->n_keys - j < VEC ? b->n_keys - j : VEC;
        float *panel = m->keys + (ptrdiff_t)j * dims;
        for (int i = 0; i < n; i++) {
            const ptrdiff_t at = (b->key + j + i) * (ptrdiff_t)a->head_dim + dim;
            const vec scale = type == KV_INT8 ? vec_set(a->k_scales[b->key + j + i]) : vec_zero();
            float *row = m->rows + i * MANY_DIMS;
            for (int c = 0; c < dims; c += VEC)
                vec_store(row + c, many_load(type, a->k, at + c, dims - c, scale));
        }
        if (n < VEC)
            memset(panel, 0, sizeof(float) * VEC * (size_t)dims);
        transpose(panel, VEC, m->rows, MANY_DIMS, n, dims);
    }
}

VEC_INLINE void many_pack_values(enum kv_type type, const struct many_queries *m, const struct attend_args *a,
                                 const struct many_block *b, int dim, int dims)
{
    for (int j = 0; j < b->n_keys; j++) {
        const ptrdiff_t at = (b->key + j) * (ptrdiff_t)a->head_dim + dim;
        const vec scale = type == KV_INT8 ? vec_set(a->v_scales[b->key + j]) : vec_zero();
        float *to = m->values + j * VEC;
        for (int c = 0; c < dims; c += VEC)
            vec_store(to + (ptrdiff_t)c * MANY_KEYS, many_load(type, a->v, at + c, dims - c, scale));
    }
}

// scores = or += q Kᵀ over `dims` components, where a query of the tile sees a key of it.
VEC_INLINE void many_scores(const struct many_queries *m, const struct many_block *b, bool add, int dims)
{
    for (int j = 0; j < b->n_keys; j += KEY_GROUP) {
        const int left = (b->n_keys - j + VEC - 1) / VEC, n_vecs = left < TILE_VECS ? left : TILE_VECS;
        for (int i = 0; i < b->n_queries; i += TILE_ROWS) {
            const struct view seen = b->groups[i / TILE_ROWS];
            if (j < seen.last && j + KEY_GROUP > seen.first)
                tile(n_vecs, m->scores + (ptrdiff_t)i * MANY_KEYS + j, MANY_KEYS, TILE_ROWS, n_vecs * VEC, add,
                     m->q + (ptrdiff_t)i * MANY_DIMS, MANY_DIMS, m->keys + (ptrdiff_t)j * dims, (ptrdiff_t)dims * VEC, dims);
        }
    }
}

// acc += scores V for components [dim, dim + dims).
VEC_INLINE void many_outputs(const struct many_queries *m, const struct attend_args *a, const struct many_block *b, int dim,
                             int dims)
{
    for (int c = 0; c < dims; c += KEY_GROUP) {
        const int cols = dims - c < KEY_GROUP ? dims - c : KEY_GROUP;
        for (int i = 0; i < b->n_queries; i += TILE_ROWS) {
            const struct view seen = b->groups[i / TILE_ROWS];
            const int rows = b->n_queries - i < TILE_ROWS ? b->n_queries - i : TILE_ROWS;
            if (seen.last > 0)
                tile((cols + VEC - 1) / VEC, a->acc + (b->query + i) * (ptrdiff_t)a->head_dim + dim + c, a->head_dim, rows,
                     cols, true, m->scores + (ptrdiff_t)i * MANY_KEYS + seen.first, MANY_KEYS,
                     m->values + ((ptrdiff_t)c * MANY_KEYS + seen.first * VEC), (ptrdiff_t)MANY_KEYS * VEC,
                     seen.last - seen.first);
        }
    }
}

VEC_INLINE void many_softmax(const struct many_queries *m, const struct attend_args *a, const struct many_block *b)
{
    for (int i = 0; i < b->n_queries; i += TILE_ROWS) {
        const struct view seen = b->groups[i / TILE_ROWS];
        const int n = b->n_queries - i < TILE_ROWS ? b->n_queries - i : TILE_ROWS, from = seen.first - seen.first % VEC;
        float *scores = m->scores + (ptrdiff_t)i * MANY_KEYS;
        if (a->softcap > 0 && seen.last > 0)
            softcap_rows(scores + from, MANY_KEYS, n, seen.last - from, a->softcap);
        if (a->bias && seen.last > 0)
            bias_rows(scores + from, MANY_KEYS, n, a->bias + b->key + from, seen.last - from);
        if (seen.last > 0)
            softmax_rows(scores, MANY_KEYS, n, seen, b->views + i, a->acc + (b->query + i) * (ptrdiff_t)a->head_dim,
                         a->head_dim, a->max + b->query + i, a->sum + b->query + i, NULL);
    }
}

VEC_INLINE void many_attend_block(enum kv_type type, const struct many_queries *m, const struct attend_args *a,
                                  struct many_block *b, bool first_block)
{
    for (int i = 0; i < b->n_queries; i++)
        b->views[i] = view_of(a, b->query + i, b->key, b->n_keys);
    for (int i = 0; i < b->n_queries; i += TILE_ROWS)
        b->groups[i / TILE_ROWS] = view_union(b->views + i, b->n_queries - i < TILE_ROWS ? b->n_queries - i : TILE_ROWS);
    for (int dim = 0; dim < a->head_dim; dim += MANY_DIMS) {
        const int dims = a->head_dim - dim < MANY_DIMS ? a->head_dim - dim : MANY_DIMS;
        if (first_block || a->head_dim > MANY_DIMS) // queries that fit stay
            many_pack_queries(m, a, b, dim, dims);
        many_pack_keys(type, m, a, b, dim, dims);
        many_scores(m, b, dim > 0, dims);
    }
    many_softmax(m, a, b);
    for (int dim = 0; dim < a->head_dim; dim += MANY_DIMS) {
        const int dims = a->head_dim - dim < MANY_DIMS ? a->head_dim - dim : MANY_DIMS;
        many_pack_values(type, m, a, b, dim, dims);
        many_outputs(m, a, b, dim, dims);
    }
}

VEC_INLINE void attend_many(enum kv_type type, const struct attend_args *a)
{
    struct many_queries m = {.q = a->scratch};
    m.scores = m.q + MANY_ROWS * MANY_DIMS;
    m.keys = m.scores + MANY_ROWS * MANY_KEYS;
    m.values = m.keys + MANY_KEYS * MANY_DIMS;
    m.rows = m.values + MANY_KEYS * MANY_DIMS;
    struct many_block b;
    for (b.query = 0; b.query < a->n_queries; b.query += MANY_ROWS) {
        b.n_queries = a->n_queries - b.query < MANY_ROWS ? a->n_queries - b.query : MANY_ROWS;
        for (int i = 0; i < b.n_queries; i++)
            b.views[i] = view_of(a, b.query + i, 0, a->n_keys);
        const struct view seen = view_union(b.views, b.n_queries);
        for (b.key = seen.first; b.key < seen.last; b.key += MANY_KEYS) {
            b.n_keys = seen.last - b.key < MANY_KEYS ? seen.last - b.key : MANY_KEYS;
            many_attend_block(type, &m, a, &b, b.key == seen.first);
        }
    }
}

// attend_part(): attend() of a cache of this type.
#define ATTEND_PART(type)                                                                                                      \
    ATTEND_FEW_PART(type)                                                                                                      \
    static void attend_part(const struct attend_args *a)                                                                       \
    {                                                                                                                          \
        if (a->n_queries <= FEW_QUERIES && a->head_dim <= FEW_DIMS)                                                            \
            attend_few_part(a);                                                                                                \
        else                                                                                                                   \
            attend_many(type, a);                                                                                              \
    }
