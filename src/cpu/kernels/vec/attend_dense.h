// Attention of up to 8 queries for the usual types and lengths of a head (dense_has), over consecutive keys, which is what
// decode does.
//
// For query i over the keys j that it sees, s_ij = q_i · k_j:  acc_i = Σ_j e^(s_ij - max_i) v_j, sum_i = Σ_j e^(s_ij - max_i),
// online (struct attend_args). q: (n_queries, head_dim); k, v: (n_keys, head_dim). 2 · head_dim elements of a key are read once
// for all queries, against 2 · head_dim multiply-adds a query: with up to 4 queries of fp16 that is bound by reading. Blocks
// and softmax are those of vec/attend.h (Milakov and Gimelshein, 2018; Dao et al., 2022); what differs is that
// - the keys and values of the next block are fetched evenly over a block's loops: memory never rests, and the loops' own loads
//   find free line buffers. They come together, a line of each in turn, or one after the other (struct fetching's streams);
// - head_dim is a constant, so all rows of a tile have one address with constant offsets: eight pointers beside the others do
//   not fit into the registers.
#pragma once
#include "cpu/kernels/vec/attend.h"

enum {
    DENSE_PAIR = 128, // bytes of two lines
};

// The next block's keys and values, fetched by pairs of lines. In two streams, to L2: a line of keys and one of values, and so
// on up to `end` of the keys. In one, to L1 where that is the machine's habit: two lines of keys; at the keys' end [then,
// then_end), the values, takes their place.
struct dense_fetch {
    bool one, to_l2;                           // to_l2: of consecutive keys in one run
    const char *k, *v, *end, *then, *then_end; // v NULL: rows of k alone
    const int *rows;                           // still to come; NULL: the keys are consecutive
    int n, left, done; // rows, of each kind; of those to come; bytes of the first that have been fetched
};

VEC_INLINE struct dense_fetch dense_fetch_make(const void *k, const void *v, ptrdiff_t bytes, struct fetching fetching)
{
    const char *keys = k, *values = v;
    if (fetching.streams == 2)
        return (struct dense_fetch){
            .one = true, .to_l2 = fetching.to_l2, .k = keys, .end = keys + bytes, .then = values, .then_end = values + bytes};
    return (struct dense_fetch){.k = keys, .v = values, .end = keys + bytes};
}

// Fetches the next line of the rows' keys or, when these are done, of their values, into L1. The order is that in which the
// next block's loops want them, so all have about a block's time to come. (Keys and values row by row, the last keys had a
// third of it.) Four lines are fetched in the order 0 3 1 2. In ascending order a Zen 5 takes them for the beginning of a
// stream and reads five to six lines beyond them; in this order 0.3 (docs/kernels.md). So they must be in L1 before the loops
// go through them. And a block of rows is short: fetches that come faster than lines arrive are dropped.
VEC_INLINE void dense_fetch_line(struct dense_fetch *f, ptrdiff_t row_bytes)
{
    const int line = f->done, named = row_bytes != 256 || line == 0 ? line : line == 64 ? 192 : line - 64;
    __builtin_prefetch(f->k + *f->rows * row_bytes + named, 0, 3);
    f->done += 64;
    if (f->done < row_bytes)
        return;
    f->done = 0;
    f->rows++;
    if (--f->left == 0 && f->v) {
        f->rows -= f->n;
        f->left = f->n;
        f->k = f->v;
        f->v = NULL;
    }
}

VEC_INLINE void dense_fetch_rows(struct dense_fetch *f, ptrdiff_t row_bytes, int pairs)
{
    for (int i = 0; i < pairs && f->left > 0; i++) {
        if (f->one) {
            dense_fetch_line(f, row_bytes);
            if (f->left > 0)
                dense_fetch_line(f, row_bytes);
            continue;
        }
        const ptrdiff_t at = *f->rows * row_bytes + f->done;
        __builtin_prefetch(f->k + at, 0, 2);
        __builtin_prefetch(f->v ? f->v + at : f->k + at + 64, 0, 2);
        f->done += f->v ? 64 : DENSE_PAIR;
        if (f->done >= row_bytes) {
            f->done = 0;
            f->rows++;
            f->left--;
        }
    }
}

// At step `step` of a loop whose steps read `bytes` each: fetches as many, on average.
VEC_INLINE void dense_fetch_step(struct dense_fetch *f, ptrdiff_t row_bytes, int bytes, int step)
{
    const int every = bytes < DENSE_PAIR ? DENSE_PAIR / bytes : 1, pairs = bytes < DENSE_PAIR ? 1 : bytes / DENSE_PAIR;
    if (step % every != 0)
        return;
    if (f->rows) {
        dense_fetch_rows(f, row_bytes, pairs);
        return;
    }
    if (f->k >= f->end) {
        f->k = f->then;
        f->end = f->then_end;
        f->then = f->then_end;
    }
    if (f->k >= f->end)
        return;
    if (f->one) {
#pragma GCC unroll 8
        for (int i = 0; i < 2 * pairs; i++)
            fetch_line(f->k + 64 * i, f->to_l2);
        f->k += DENSE_PAIR * pairs;
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        __builtin_prefetch(f->k + 64 * i, 0, 2);
        __builtin_prefetch(f->v + 64 * i, 0, 2);
    }
    f->k += 64 * pairs;
    f->v += 64 * pairs;
}

// Scores of several queries lie in tiles, as vec_totals() leaves them: of few_score_keys() keys each, a vector of (n_queries,
// keys), of which the last lanes may be idle. So a tile is one store, where rows of queries would take one for each query, and
// the softmax needs sums across lanes but once a block. A single query's tile is part of its row.
VEC_INLINE bool dense_tiled(int n_queries)
{
    return n_queries > 1;
}

// Where query s's score of key j is.
VEC_INLINE ptrdiff_t dense_score_at(bool tiled, int n_queries, int s, int j)
{
    const int keys = few_score_keys(n_queries); // a power of two
    return tiled ? (ptrdiff_t)(j & -keys) * (VEC / keys) + s * keys + (j & (keys - 1)) : s * FEW_KEYS + j;
}

// scores = q Kᵀ, q as few_pack_queries() leaves it. Keys that the last tile lacks have −∞.
VEC_INLINE void dense_scores(enum kv_type type, int n_queries, float *scores, const float *q, const char *k, int n_keys,
                             int head_dim, struct dense_fetch *next)
{
    const int keys = few_score_keys(n_queries), size = (int)kv_sizes[type];
    const ptrdiff_t row_bytes = head_dim * (ptrdiff_t)size;
    int j = 0;
    for (; j + keys <= n_keys; j += keys) {
        const char *run = k + j * row_bytes;
        vec sum[SUMS]; // (n_queries, keys)
#pragma GCC unroll 16
        for (int i = 0; i < SUMS; i++)
            sum[i] = vec_zero();
#pragma GCC unroll 1
        for (int c = 0; c < head_dim; c += VEC) {
            dense_fetch_step(next, row_bytes, keys * VEC * size, c / VEC);
            vec key[SUMS];
#pragma GCC unroll 16
            for (int i = 0; i < keys; i++)
                key[i] = kv_load(type, run + i * row_bytes, c);
#pragma GCC unroll 16
            for (int s = 0; s < n_queries; s++) {
                const vec x = vec_loaded(vec_load(q + c * n_queries + s * VEC));
#pragma GCC unroll 16
                for (int i = 0; i < keys; i++)
                    sum[s * keys + i] = vec_fma(x, key[i], sum[s * keys + i]);
            }
        }
        vec_store(scores + dense_score_at(dense_tiled(n_queries), n_queries, 0, j), vec_totals(sum));
    }
    if (dense_tiled(n_queries) && j < n_keys)
        vec_store(scores + dense_score_at(true, n_queries, 0, j), vec_set(-INFINITY));
    for (; j < n_keys; j++) {
        float totals[VEC];
        vec_store(totals, few_totals(type, n_queries, 1, q, k, j, head_dim));
        for (int s = 0; s < n_queries; s++)
            scores[dense_score_at(dense_tiled(n_queries), n_queries, s, j)] = totals[s];
    }
}

// scales of n keys from key `at` on, and ones up to whole tiles.
VEC_INLINE void dense_scales(float to[FEW_KEYS + VEC], const float *scales, int at, int n)
{
    memcpy(to, scales + at, sizeof(float) * (size_t)n);
    for (int j = n; j % VEC; j++)
        to[j] = 1;
}

// Keys that a query does not see have −∞ in its tiles.
VEC_INLINE void dense_hide(int n_queries, float *scores, const struct view *views, int n)
{
    for (int s = 0; s < n_queries; s++) {
        for (int j = 0; j < views[s].first; j++)
            scores[dense_score_at(true, n_queries, s, j)] = -INFINITY;
        for (int j = views[s].last; j < n; j++)
            scores[dense_score_at(true, n_queries, s, j)] = -INFINITY;
    }
}

// softmax_rows() of scores in tiles. k_scales, v_scales: (n) and ones up to whole tiles, or NULL. Scores are multiplied by
// k_scales, weights by v_scales after they were added up. bias: likewise, and zeros; added to the scores.
VEC_INLINE void dense_softmax(int n_queries, float *scores, int n, bool hidden, const struct view *views, const float *k_scales,
                              const float *v_scales, const float *bias, float *acc, int head_dim, float *max, float *sum)
{
    const int keys = few_score_keys(n_queries), tiles = (n + keys - 1) / keys;
    float lanes[VEC], bases[VEC] = {0}, largest[FEW_QUERIES];
    for (int t = 0; k_scales && t < tiles; t++)
        vec_store(scores + t * VEC, vec_mul(vec_load(scores + t * VEC), vec_repeat(k_scales + t * keys, keys)));
    for (int t = 0; bias && t < tiles; t++)
        vec_store(scores + t * VEC, vec_add(vec_load(scores + t * VEC), vec_repeat(bias + t * keys, keys)));
    if (hidden)
        dense_hide(n_queries, scores, views, n);
    vec most = vec_set(-INFINITY);
    for (int t = 0; t < tiles; t++)
        most = vec_max(most, vec_load(scores + t * VEC));
    vec_store(lanes, most);
    for (int s = 0; s < n_queries; s++) {
        largest[s] = max[s];
        for (int i = 0; i < keys; i++)
            largest[s] = lanes[s * keys + i] > largest[s] ? lanes[s * keys + i] : largest[s];
        for (int i = 0; i < keys; i++)
            bases[s * keys + i] = largest[s] > -INFINITY ? largest[s] : 0; // that sees none so far: e^−∞ is 0 all the same
    }
    softmax_shrink(n_queries, largest, acc, head_dim, max, sum);
    const vec base = vec_load(bases);
    vec total = vec_zero();
    for (int t = 0; t < tiles; t++) {
        const vec e = vec_exp(vec_sub(vec_load(scores + t * VEC), base));
        total = vec_add(total, e);
        vec_store(scores + t * VEC, v_scales ? vec_mul(e, vec_repeat(v_scales + t * keys, keys)) : e);
    }
    vec_store(lanes, total);
    for (int s = 0; s < n_queries; s++)
        for (int i = 0; i < keys; i++)
            sum[s] += lanes[s * keys + i];
}

// acc[s][0 … n_vecs * VEC) += Σ_j scores[s, j] v[j]; acc and v point at the first component. tiled: a constant where this is
// inlined.
VEC_INLINE void dense_values(enum kv_type type, bool tiled, int n_queries, int n_vecs, float *acc, const float *scores,
                             const char *v, int n_keys, int head_dim, struct dense_fetch *next)
{
    const ptrdiff_t row_bytes = head_dim * (ptrdiff_t)kv_sizes[type];
    vec sum[SUMS]; // (n_queries, n_vecs)
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++)
        sum[i] = vec_load(acc + i / n_vecs * (ptrdiff_t)head_dim + i % n_vecs * VEC);
#pragma GCC unroll 1
    for (int j = 0; j < n_keys; j++, v += row_bytes) {
        dense_fetch_step(next, row_bytes, n_vecs * VEC * (int)kv_sizes[type], j);
        vec value[SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < n_vecs; i++)
            value[i] = kv_load(type, v, i * VEC);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++) {
            const vec p = vec_set(scores[dense_score_at(tiled, n_queries, s, j)]);
#pragma GCC unroll 16
            for (int i = 0; i < n_vecs; i++)
                sum[s * n_vecs + i] = vec_fma(p, value[i], sum[s * n_vecs + i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++)
        vec_store(acc + i / n_vecs * (ptrdiff_t)head_dim + i % n_vecs * VEC, sum[i]);
}

// Scores of queries [i, i + n_queries) become weights.
VEC_INLINE void dense_weights(enum kv_type type, int n_queries, const struct attend_args *a, int i, int at, int n, int head_dim)
{
    float *scores = a->scratch, *acc = a->acc + i * head_dim;
    struct view views[FEW_QUERIES];
    bool hidden = false;
    for (int s = 0; s < n_queries; s++) {
        views[s] = view_of(a, i + s, at, n);
        hidden = hidden || views[s].first > 0 || views[s].last < n;
    }
    if (dense_tiled(n_queries)) {
        float k_scales[FEW_KEYS + VEC], v_scales[FEW_KEYS + VEC], bias[FEW_KEYS + VEC];
        if (type == KV_INT8) {
            dense_scales(k_scales, a->k_scales, at, n);
            dense_scales(v_scales, a->v_scales, at, n);
        }
        if (a->bias) {
            memcpy(bias, a->bias + at, sizeof(float) * (size_t)n);
            memset(bias + n, 0, sizeof(float) * VEC);
        }
        const bool scaled = type == KV_INT8;
        dense_softmax(n_queries, scores, n, hidden, views, scaled ? k_scales : NULL, scaled ? v_scales : NULL,
                      a->bias ? bias : NULL, acc, head_dim, a->max + i, a->sum + i);
        return;
    }
    if (type == KV_INT8)
        few_scale(n_queries, scores, a->k_scales + at, n);
    if (a->bias)
        bias_rows(scores, FEW_KEYS, n_queries, a->bias + at, n);
    softmax_rows(scores, FEW_KEYS, n_queries, (struct view){0, n}, views, acc, head_dim, a->max + i, a->sum + i, NULL);
    if (type == KV_INT8)
        few_scale(n_queries, scores, a->v_scales + at, n);
}

// Queries [i, i + n_queries) of the n keys from key `at` on.
VEC_INLINE void dense_queries(enum kv_type type, int n_queries, const struct attend_args *a, int i, int at, int n, int head_dim,
                              struct dense_fetch *next)
{
    const ptrdiff_t size = (ptrdiff_t)kv_sizes[type], offset = at * head_dim * size;
    float *scores = a->scratch, *acc = a->acc + i * head_dim;
    dense_scores(type, n_queries, scores, scores + FEW_QUERIES * FEW_KEYS + i * head_dim, (const char *)a->k + offset, n,
                 head_dim, next);
    dense_weights(type, n_queries, a, i, at, n, head_dim);
    const int n_vecs = n_queries == 1 ? 8 : n_queries == 2 ? SUMS / 2 : n_queries <= 4 ? SUMS / 4 : SUMS / 8;
    const int taken = n_vecs * VEC < head_dim ? n_vecs : head_dim / VEC;
    for (int c = 0; c < head_dim; c += taken * VEC)
        dense_values(type, dense_tiled(n_queries), n_queries, taken, acc + c, scores, (const char *)a->v + offset + c * size, n,
                     head_dim, next);
}

// The n keys from key `at` on. head_dim is a constant where this is inlined.
VEC_INLINE void dense_block(enum kv_type type, const struct attend_args *a, int at, int n, int head_dim,
                            struct dense_fetch *next)
{
    for (int i = 0, tile; i < a->n_queries; i += tile) {
        tile = few_tile(a->n_queries - i);
        if (tile == 8)
            dense_queries(type, 8, a, i, at, n, head_dim, next);
        else if (tile == 4)
            dense_queries(type, 4, a, i, at, n, head_dim, next);
        else if (tile == 3)
            dense_queries(type, 3, a, i, at, n, head_dim, next);
        else if (tile == 2)
            dense_queries(type, 2, a, i, at, n, head_dim, next);
        else
            dense_queries(type, 1, a, i, at, n, head_dim, next);
    }
}

// Not for every type and length, for each is compiled on its own.
VEC_INLINE bool dense_has(enum kv_type type, int head_dim)
{
    return type != KV_FP32 && (head_dim == 64 || head_dim == 128);
}

// What a block is followed by: n_after keys from key `after` on, or, where there are none, what the thread goes on with.
VEC_INLINE struct dense_fetch dense_next(const struct attend_args *a, ptrdiff_t row_bytes, int block, int after, int n_after)
{
    if (n_after > 0 || !a->next_k)
        return dense_fetch_make((const char *)a->k + after * row_bytes, (const char *)a->v + after * row_bytes,
                                n_after * row_bytes, a->fetching);
    if (!a->next_rows)
        return dense_fetch_make(a->next_k, a->next_v, block * row_bytes, a->fetching);
    return (struct dense_fetch){.one = rows_to_l1(a->fetching),
                                .k = a->next_k,
                                .v = a->next_v,
                                .rows = a->next_rows,
                                .n = a->n_next,
                                .left = a->n_next};
}

// Keys in a block.
VEC_INLINE int dense_keys(ptrdiff_t row_bytes)
{
    const ptrdiff_t keys = FEW_BYTES / row_bytes;
    return keys < FEW_KEYS ? (int)keys : FEW_KEYS;
}

// head_dim is a constant where this is inlined.
VEC_INLINE void attend_dense(enum kv_type type, int head_dim, const struct attend_args *a)
{
    const ptrdiff_t d = head_dim, row_bytes = d * (ptrdiff_t)kv_sizes[type];
    struct view views[FEW_QUERIES];
    for (int i = 0; i < a->n_queries; i++)
        views[i] = view_of(a, i, 0, a->n_keys);
    const struct view seen = view_union(views, a->n_queries);
    float *q = (float *)a->scratch + FEW_QUERIES * FEW_KEYS;
    for (int i = 0, n; i < a->n_queries; i += n) {
        n = few_tile(a->n_queries - i);
        few_pack_queries(n, q + i * d, a->q + i * d, head_dim);
    }
    const int block = dense_keys(row_bytes);
    for (int at = seen.first, n; at < seen.last; at += n) {
        n = few_block_keys(seen.last - at, block);
        const int after = at + n, n_after = few_block_keys(seen.last - after, block);
        struct dense_fetch next = dense_next(a, row_bytes, block, after, n_after);
        dense_block(type, a, at, n, head_dim, &next);
    }
}

// attend_few_part(): at most FEW_QUERIES queries and FEW_DIMS components, of a cache of this type. Each length of a head has a
// function of its own: all of them in one would take a compiler twice as long. Where scores are capped few_of_any() is for all.
#define ATTEND_FEW_PART(type)                                                                                                  \
    static __attribute__((noinline)) void dense_64(const struct attend_args *a)                                                \
    {                                                                                                                          \
        attend_dense(type, 64, a);                                                                                             \
    }                                                                                                                          \
    static __attribute__((noinline)) void dense_128(const struct attend_args *a)                                               \
    {                                                                                                                          \
        attend_dense(type, 128, a);                                                                                            \
    }                                                                                                                          \
    static __attribute__((noinline)) void few_of_any(const struct attend_args *a)                                              \
    {                                                                                                                          \
        attend_few(type, a);                                                                                                   \
    }                                                                                                                          \
    static void attend_few_part(const struct attend_args *a)                                                                   \
    {                                                                                                                          \
        (!dense_has(type, a->head_dim) || a->softcap > 0 ? few_of_any : a->head_dim == 64 ? dense_64 : dense_128)(a);          \
    }
