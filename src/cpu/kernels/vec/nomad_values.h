// NoMAD's other half: values weighted by scores that are known already, for either vector width; see struct nomad_value_args.
// The products are those of attention over few queries (vec/attend_dense.h, vec/attend.h).
//
// By chunks of keys, and these by pieces. A chunk's weights, and so the rows worth reading, are known before the chunk before
// it is summed. So while a piece is summed the next one is fetched, of the next chunk too.
#pragma once
#include "cpu/kernels/nomad.h"
#include "cpu/kernels/vec/attend_dense.h"
#include "cpu/kernels/vec/gather.h"
#include "cpu/kernels/vec/nomad.h"

enum {
    NOMAD_GATHER =
        3, // rows are left out where at most so many of 8 are kept: of more, memory delivers the whole run in less time
    NOMAD_BYTES_L1 = 4096, // of a piece of rows that are fetched into L1: what is named faster than lines arrive is dropped
};

// Keys [at, at + n) of the weights (n_queries, FEW_KEYS), or n rows.
struct nomad_piece {
    const float *weights;
    const int *rows; // or NULL
    int at, n;
};

// weights (n_queries, FEW_KEYS) = e^(score - max) of n keys from key `at` on, zeros up to whole vectors.
VEC_INLINE void nomad_weights(int n_queries, float *weights, const struct nomad_value_args *a, int query, int at, int n)
{
    for (int i = 0; i < n_queries; i++) {
        const float *scores = a->scores + (query + i) * a->ld + at;
        const vec base = vec_set(a->max[query + i]);
        for (int j = 0; j < n; j += VEC) {
            const int live = n - j < VEC ? n - j : VEC;
            const vec e = vec_exp(vec_sub(live == VEC ? vec_load(scores + j) : vec_load_part(scores + j, live), base));
            vec_store(weights + i * FEW_KEYS + j, live == VEC ? e : vec_between(e, vec_zero(), 0, live));
        }
    }
}

// Finds the keys that some query gives its least weight or more. Where they are few, their weights are moved together, and
// their rows written; where they are many, the others' weights become 0. Returns how many have been written, or n.
VEC_INLINE int nomad_keep(int n_queries, float *weights, int *rows, const struct nomad_value_args *a, int query, int at, int n)
{
    int kept[FEW_KEYS + VEC], m = 0;
    float ignored[FEW_KEYS + VEC], ones[FEW_KEYS]; // ones: 1 for a key that is kept, 0 for others
    for (int j = 0; j < n; j += VEC) {
        vec most = vec_zero();
        for (int i = 0; i < n_queries; i++)
            most = vec_max(vec_mul(vec_load(weights + i * FEW_KEYS + j), vec_set(a->inverse_least[query + i])), most);
        m += vec_collect(kept + m, ignored + m, most, j, 1.0f);
        vec_store(ones + j, vec_min(vec_set(1.0f), vec_keep_from(most, 1.0f)));
    }
    if (m * 8 > n * NOMAD_GATHER) {
        for (int i = 0; i < n_queries && m < n; i++)
            for (int j = 0; j < n; j += VEC)
                vec_store(weights + i * FEW_KEYS + j, vec_mul(vec_load(ones + j), vec_load(weights + i * FEW_KEYS + j)));
        return n;
    }
    for (int j = 0; j < m; j++) {
        rows[j] = at + kept[j];
        for (int i = 0; i < n_queries; i++)
            weights[i * FEW_KEYS + j] = weights[i * FEW_KEYS + kept[j]];
    }
    for (int i = 0; i < n_queries; i++)
        memset(weights + i * FEW_KEYS + m, 0, sizeof(float) * (size_t)((m + VEC - 1) / VEC * VEC - m));
    return m;
}

// n keys from key `at` on, or those of them that are kept, with their weights, which count from here on.
VEC_INLINE struct nomad_piece nomad_chunk(enum kv_type type, int n_queries, float *weights, int *rows,
                                          const struct nomad_value_args *a, int query, int at, int n)
{
    struct nomad_piece chunk = {.weights = weights, .at = at, .n = n};
    nomad_weights(n_queries, weights, a, query, at, n);
    if (a->inverse_least) {
        chunk.n = nomad_keep(n_queries, weights, rows, a, query, at, n);
        chunk.rows = chunk.n < n ? rows : NULL;
    }
    for (int i = 0; i < n_queries; i++) {
        vec total = vec_zero();
        for (int j = 0; j < chunk.n; j += VEC)
            total = vec_add(total, vec_load(weights + i * FEW_KEYS + j));
        a->sum[query + i] += vec_total(total);
    }
    if (type == KV_INT8 && chunk.rows) {
        float scales[FEW_KEYS];
        for (int j = 0; j < chunk.n; j++)
            scales[j] = a->v_scales[rows[j]];
        few_scale(n_queries, weights, scales, chunk.n);
    } else if (type == KV_INT8) {
        few_scale(n_queries, weights, a->v_scales + at, n);
    }
    return chunk;
}

// What a piece will read.
VEC_INLINE struct dense_fetch nomad_fetch(const struct nomad_value_args *a, const struct nomad_piece *piece,
                                          ptrdiff_t row_bytes)
{
    if (piece->rows)
        return (struct dense_fetch){.one = rows_to_l1(a->fetching), .k = a->v, .rows = piece->rows, .left = piece->n};
    const char *from = (const char *)a->v + piece->at * row_bytes;
    return (struct dense_fetch){
        .one = true, .to_l2 = a->fetching.streams != 2 || a->fetching.to_l2, .k = from, .end = from + piece->n * row_bytes};
}

// acc of queries [query, query + n_queries) += their weights times the n values v. n_queries: a constant, as head_dim is, or 0
// for what vec/attend_dense.h does not have.
VEC_INLINE void nomad_tile(enum kv_type type, int n_queries, int head_dim, const struct nomad_value_args *a, int query,
                           const float *weights, const char *v, int n, struct dense_fetch *next, struct fetch *next_any)
{
    float *acc = a->acc + query * (ptrdiff_t)a->head_dim;
    if (head_dim == 0) {
        few_outputs(type, n_queries, acc, weights, v, n, a->head_dim, next_any);
        return;
    }
    const int n_vecs = n_queries == 1 ? 8 : n_queries == 2 ? SUMS / 2 : n_queries <= 4 ? SUMS / 4 : SUMS / 8;
    const int taken = n_vecs * VEC < head_dim ? n_vecs : head_dim / VEC;
    for (int c = 0; c < head_dim; c += taken * VEC)
        dense_values(type, false, n_queries, taken, acc + c, weights, v + c * (ptrdiff_t)kv_sizes[type], n, head_dim, next);
}

VEC_INLINE void nomad_tiles(enum kv_type type, int n_queries, int head_dim, const struct nomad_value_args *a, int query,
                            const struct nomad_piece *piece, const char *v, const struct nomad_piece *after)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    struct dense_fetch next = nomad_fetch(a, after, row_bytes);
    struct fetch any = fetch_make(a->v, after->rows, after->rows ? 0 : after->at, after->n, row_bytes);
    for (int i = 0, tile; i < n_queries; i += tile) {
        const float *weights = piece->weights + i * FEW_KEYS;
        tile = few_tile(n_queries - i);
        if (tile == 8)
            nomad_tile(type, 8, head_dim, a, query + i, weights, v, piece->n, &next, &any);
        else if (tile == 4)
            nomad_tile(type, 4, head_dim, a, query + i, weights, v, piece->n, &next, &any);
        else if (tile == 3)
            nomad_tile(type, 3, head_dim, a, query + i, weights, v, piece->n, &next, &any);
        else if (tile == 2)
            nomad_tile(type, 2, head_dim, a, query + i, weights, v, piece->n, &next, &any);
        else
            nomad_tile(type, 1, head_dim, a, query + i, weights, v, piece->n, &next, &any);
    }
}

// `after` is fetched meanwhile.
VEC_INLINE void nomad_piece(enum kv_type type, int n_queries, const struct nomad_value_args *a, int query,
                            const struct nomad_piece *piece, const struct nomad_piece *after)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    // FEW_BYTES, or the least number of rows.
    char tile[FEW_KEYS_LEAST * FEW_DIMS * sizeof(float)] __attribute__((aligned(64)));
    const char *v = (const char *)a->v + piece->at * row_bytes;
    if (piece->rows) {
        gather_rows(tile, a->v, (size_t)row_bytes, piece->rows, piece->n);
        v = tile;
    }
    if (!dense_has(type, a->head_dim))
        nomad_tiles(type, n_queries, 0, a, query, piece, v, after);
    else if (a->head_dim == 128)
        nomad_tiles(type, n_queries, 128, a, query, piece, v, after);
    else
        nomad_tiles(type, n_queries, 64, a, query, piece, v, after);
}

// A chunk's pieces are of about equal length, since each is fetched while as many rows are summed.
VEC_INLINE int nomad_piece_length(const struct nomad_piece *chunk, int run, int gathered)
{
    const int most = chunk->rows ? gathered : run, n_pieces = (chunk->n + most - 1) / most;
    return n_pieces > 1 ? (chunk->n + n_pieces - 1) / n_pieces : most;
}

// At most so many of a chunk from its `from`th on.
VEC_INLINE struct nomad_piece nomad_part(const struct nomad_piece *chunk, int from, int most)
{
    const int n = chunk->n - from < most ? chunk->n - from : most;
    return (struct nomad_piece){chunk->weights + from, chunk->rows ? chunk->rows + from : NULL, chunk->at + from, n};
}

VEC_INLINE void nomad_values_queries(enum kv_type type, int n_queries, const struct nomad_value_args *a, int query)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    const int wanted = (int)(FEW_BYTES / row_bytes) & -4;
    const int run = wanted > FEW_KEYS ? FEW_KEYS : wanted < FEW_KEYS_LEAST ? FEW_KEYS_LEAST : wanted;
    const int gathered = rows_to_l1(a->fetching) && dense_has(type, a->head_dim) ? (int)(NOMAD_BYTES_L1 / row_bytes) : run;
    const int keys = a->inverse_least ? FEW_KEYS : run;
    int rows[2][FEW_KEYS];
    struct nomad_piece chunks[2] = {{0}};
    bool fetched = false;
    for (int at = 0, i = 0; at < a->n_keys + keys; at += keys, i ^= 1) { // chunk i is made, the one before it is summed
        const int left = a->n_keys - at;
        struct nomad_piece *made = &chunks[i];
        const struct nomad_piece *chunk = &chunks[i ^ 1];
        *made = (struct nomad_piece){0};
        if (left > 0)
            *made = nomad_chunk(type, n_queries, (float *)a->scratch + i * FEW_QUERIES * FEW_KEYS, rows[i], a, query, at,
                                left < keys ? left : keys);
        const int most = nomad_piece_length(chunk, run, gathered);
        for (int from = 0; from < chunk->n; from += most) {
            const struct nomad_piece piece = nomad_part(chunk, from, most);
            const bool last = from + most >= chunk->n;
            const struct nomad_piece after =
                last ? nomad_part(made, 0, nomad_piece_length(made, run, gathered)) : nomad_part(chunk, from + most, most);
            if (piece.rows && !fetched) {
                struct fetch these = fetch_make(a->v, piece.rows, 0, piece.n, row_bytes);
                fetch_rows(&these, piece.n);
            }
            nomad_piece(type, n_queries, a, query, &piece, &after);
            fetched = piece.rows && after.rows;
        }
    }
}

VEC_INLINE void nomad_values(enum kv_type type, const struct nomad_value_args *a)
{
    for (int i = 0; i < a->n_queries; i += FEW_QUERIES)
        nomad_values_queries(type, a->n_queries - i < FEW_QUERIES ? a->n_queries - i : FEW_QUERIES, a, i);
}
