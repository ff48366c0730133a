// Attention over a run of keys, for either vector width; included by attend_*.c. Online softmax by blocks of keys
// (Milakov and Gimelshein, 2018; Dao et al., 2022), see struct attend_args. Here is what is common to both forms, and
// the form for a few queries, the heads that share a KV head at decode; vec/attend_many.h has the one for prefill.
//
// Few queries: bound by reading K and V, once for all queries. A block of both stays in L1. Its scores are dot products along
// K's rows, up to 8 queries and 8 keys at a time. Then each p v is added to sums that live in registers for the whole block.
// While the scores of a block are computed its values are fetched from memory, and from the exponentials on the next block's
// keys.
#pragma once
#include <math.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec/math.h"

enum {
    FEW_QUERIES = 8,
    FEW_BYTES = 16384, // of K, and of V, in a block, about
    FEW_KEYS = 256,    // in a block, at most
    FEW_KEYS_LEAST = 16,
    FEW_DIMS = 512,                    // components at most
    LINES_PER_EXP = VEC == 16 ? 2 : 1, // of memory, that can be read in about the time that a vector of exponentials takes
    FEW_SCRATCH = (int)sizeof(float) * FEW_QUERIES * (FEW_KEYS + FEW_DIMS),
};

// Elements at + 0 … at + VEC - 1 of the cache, as floats; of int8 without the row's scale.
VEC_INLINE vec kv_load(enum kv_type type, const void *p, ptrdiff_t at)
{
    if (type == KV_INT8)
        return vec_load_int8((const int8_t *)p + at);
    return vec_load_as(type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, p, at);
}
VEC_INLINE vec kv_load_part(enum kv_type type, const void *p, ptrdiff_t at, int n)
{
    if (type == KV_INT8)
        return vec_load_int8_part((const int8_t *)p + at, n);
    return vec_load_part_as(type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, p, at, n);
}

// Of n keys from key `at` on, those that a query sees: [first, last). {0, 0} where it sees none.
struct view {
    int first, last;
};

VEC_INLINE struct view view_of(const struct attend_args *a, int query, int at, int n)
{
    const int first = a->first ? a->first[query] - at : 0, last = a->last ? a->last[query] - at : n;
    const struct view view = {first > 0 ? first : 0, last < n ? last : n};
    return view.first < view.last ? view : (struct view){0, 0};
}

// The keys that any of these views has.
VEC_INLINE struct view view_union(const struct view *views, int n)
{
    struct view all = {0, 0};
    for (int i = 0; i < n; i++)
        if (views[i].last > 0) {
            all.first = all.last == 0 || views[i].first < all.first ? views[i].first : all.first;
            all.last = views[i].last > all.last ? views[i].last : all.last;
        }
    return all;
}

// VEC scores from j on, with `other` for those that the query does not see. Nearly always it sees all of them.
VEC_INLINE vec seen_scores(vec scores, vec other, struct view view, int j)
{
    return view.first <= j && j + VEC <= view.last ? scores : vec_between(scores, other, view.first - j, view.last - j);
}

// x (n) *= factor
VEC_INLINE void scale_by(float *x, int n, vec factor)
{
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, vec_mul(factor, vec_load(x + i)));
    if (i < n)
        vec_store_part(x + i, vec_mul(factor, vec_load_part(x + i, n - i)), n - i);
}

// Memory that will be read soon: a run, line by line, or rows, row by row.
struct fetch {
    const char *at, *end; // of the run
    const char *base;     // rows still to come: *rows and after, `left` of them, of row_bytes each
    const int *rows;
    ptrdiff_t row_bytes;
    int left;
};

VEC_INLINE struct fetch fetch_make(const char *base, const int *rows, int from, int n, ptrdiff_t row_bytes)
{
    if (!rows)
        return (struct fetch){.at = base + from * row_bytes, .end = base + (from + n) * row_bytes};
    return (struct fetch){.base = base, .rows = rows + from, .row_bytes = row_bytes, .left = n};
}

// n rows, which need not begin with a cache line: their last byte may lie in one more. Into the L2 cache: of random reads more
// can be under way there than to the L1 cache. Measured: 21 GB/s instead of 12; another day 17 to 20 instead of 15 to 17.
VEC_INLINE void fetch_rows(struct fetch *f, int n)
{
    n = n < f->left ? n : f->left;
    for (int i = 0; i < n; i++) {
        const char *row = f->base + f->rows[i] * f->row_bytes, *end = row + f->row_bytes;
        for (row -= (uintptr_t)row % 64; row < end; row += 64)
            __builtin_prefetch(row, 0, 2);
    }
    f->rows += n;
    f->left -= n;
}

// The next n lines, or rows.
VEC_INLINE void fetch_lines(struct fetch *f, int n)
{
    if (f->rows) {
        fetch_rows(f, n);
        return;
    }
    const char *stop = f->end - f->at > n * (ptrdiff_t)64 ? f->at + n * (ptrdiff_t)64 : f->end;
    for (; f->at < stop; f->at += 64)
        __builtin_prefetch(f->at, 0, 2);
}

// Where the largest of a query's scores is more than any before, its sum and output shrink.
VEC_INLINE void softmax_shrink(int n_rows, const float largest[8], float *acc, int head_dim, float *max, float *sum)
{
    for (int s = 0; s < n_rows; s++)
        if (largest[s] > max[s]) {
            const vec shrink = vec_exp(vec_set(max[s] - largest[s]));
            scale_by(acc + s * (ptrdiff_t)head_dim, head_dim, shrink);
            sum[s] *= vec_first(shrink);
            max[s] = largest[s];
        }
}

// Of each of n_rows <= 8 rows of scores, those that the query sees become e^(score - max), the others of `all` 0; there is room
// for whole vectors. A larger maximum shrinks the query's sum and output. Step by step for all rows together, since one row
// alone is a chain of latencies. `next`, where not NULL, is fetched meanwhile.
VEC_INLINE void softmax_rows(float *scores, ptrdiff_t ld, int n_rows, struct view all, const struct view *views, float *acc,
                             int head_dim, float *max, float *sum, struct fetch *next)
{
    const int from = all.first - all.first % VEC;
    float largest[8];
    for (int s = 0; s < n_rows; s++) {
        vec most = vec_set(max[s]);
        for (int j = from; j < all.last; j += VEC)
            most = vec_max(most, seen_scores(vec_load(scores + s * ld + j), vec_set(-INFINITY), views[s], j));
        largest[s] = vec_largest(most);
    }
    softmax_shrink(n_rows, largest, acc, head_dim, max, sum);
    for (int s = 0; s < n_rows; s++) {
        const vec base = vec_set(largest[s]);
        vec total = vec_zero();
        for (int j = from; j < all.last; j += VEC) {
            float *p = scores + s * ld + j;
            const vec e = seen_scores(vec_exp(vec_sub(vec_load(p), base)), vec_zero(), views[s], j);
            vec_store(p, e);
            total = vec_add(total, e);
            if (next)
                fetch_lines(next, LINES_PER_EXP);
        }
        sum[s] += vec_total(total);
    }
}

// Scores [0, n) of n_rows rows, of models that cap them; there is room for whole vectors. One function for all who call it: it
// is not worth inlining.
static __attribute__((noinline)) void softcap_rows(float *scores, ptrdiff_t ld, int n_rows, int n, float cap)
{
    for (int s = 0; s < n_rows; s++)
        softcap_vecs(scores + s * ld, cap, n);
}

// Scores [0, n) of n_rows rows += bias (n) of the keys; there is room for whole vectors.
VEC_INLINE void bias_rows(float *scores, ptrdiff_t ld, int n_rows, const float *bias, int n)
{
    for (int j = 0; j < n; j += VEC) {
        const vec x = n - j < VEC ? vec_load_part(bias + j, n - j) : vec_load(bias + j);
        for (int s = 0; s < n_rows; s++)
            vec_store(scores + s * ld + j, vec_add(x, vec_load(scores + s * ld + j)));
    }
}

// Lines, or rows, to fetch at each of `steps` steps.
VEC_INLINE int fetch_rate(const struct fetch *f, int steps)
{
    steps = steps > 0 ? steps : 1;
    if (f->rows)
        return (f->left + steps - 1) / steps;
    return (int)((f->end - f->at + 63) / 64 + steps - 1) / steps;
}

// to: for each vector of components, those of n_queries queries one after another, so that one address reaches them all.
VEC_INLINE void few_pack_queries(int n_queries, float *to, const float *q, int head_dim)
{
    for (int c = 0; c < head_dim; c += VEC)
        for (int s = 0; s < n_queries; s++, to += VEC)
            vec_store(to, vec_load_part(q + s * (ptrdiff_t)head_dim + c, head_dim - c < VEC ? head_dim - c : VEC));
}

// q Kᵀ (n_queries, keys) for `keys` keys from key j on, q as packed; n_queries and keys are constants where this is inlined,
// their product is at most SUMS.
VEC_INLINE vec few_totals(enum kv_type type, int n_queries, int keys, const float *q, const char *base, int j, int head_dim)
{
    const ptrdiff_t d = head_dim, row_bytes = d * (ptrdiff_t)kv_sizes[type];
    vec sum[SUMS]; // (n_queries, keys)
    const char *k[SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < keys; i++)
        k[i] = base + (j + i) * row_bytes;
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++)
        sum[i] = vec_zero();
    ptrdiff_t c = 0;
    for (; c + VEC <= d; c += VEC) {
        vec key[SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < keys; i++)
            key[i] = kv_load(type, k[i], c);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++) {
            const vec x = vec_load(q + c * n_queries + s * VEC);
#pragma GCC unroll 16
            for (int i = 0; i < keys; i++)
                sum[s * keys + i] = vec_fma(x, key[i], sum[s * keys + i]);
        }
    }
    if (c < d) {
        const int part = (int)(d - c);
#pragma GCC unroll 16
        for (int i = 0; i < keys; i++) {
            const vec key = kv_load_part(type, k[i], c, part);
#pragma GCC unroll 16
            for (int s = 0; s < n_queries; s++)
                sum[s * keys + i] = vec_fma(vec_load(q + c * n_queries + s * VEC), key, sum[s * keys + i]);
        }
    }
    return vec_totals(sum);
}

// The same into scores (n_queries, FEW_KEYS).
VEC_INLINE void few_scores_keys(enum kv_type type, int n_queries, int keys, float *scores, const float *q, const char *base,
                                int j, int head_dim)
{
    float totals[VEC];
    vec_store(totals, few_totals(type, n_queries, keys, q, base, j, head_dim));
#pragma GCC unroll 16
    for (int s = 0; s < n_queries; s++)
        memcpy(scores + s * FEW_KEYS + j, totals + s * keys, sizeof(float) * (size_t)keys);
}

// As many keys at a time as there are sums for, but at most 8: more rows would need more addresses than there are registers.
VEC_INLINE int few_score_keys(int n_queries)
{
    const int most = SUMS / n_queries & -2;
    return n_queries == 1 ? 8 : most > 0 ? most : 1;
}

VEC_INLINE void few_scores(enum kv_type type, int n_queries, float *scores, const float *q, const char *k, int n_keys,
                           int head_dim, struct fetch *next)
{
    const int keys = few_score_keys(n_queries), rate = fetch_rate(next, (n_keys + keys - 1) / keys);
    int j = 0;
    for (; j + keys <= n_keys; j += keys) {
        fetch_lines(next, rate);
        few_scores_keys(type, n_queries, keys, scores, q, k, j, head_dim);
    }
    fetch_lines(next, rate);
    for (; j < n_keys; j++)
        few_scores_keys(type, n_queries, 1, scores, q, k, j, head_dim);
}

// acc[s][0 … n_vecs * VEC) += Σ_j scores[s, j] v[j]; acc and v point at the first component, of which `part` of the last vector
// are live.
VEC_INLINE void few_values(enum kv_type type, int n_queries, int n_vecs, float *acc, const float *scores, const char *v,
                           int n_keys, int head_dim, int part, struct fetch *next, int rate)
{
    vec sum[SUMS]; // (n_queries, n_vecs)
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++) {
        const float *p = acc + i / n_vecs * (ptrdiff_t)head_dim + i % n_vecs * VEC;
        sum[i] = (i + 1) % n_vecs || part == VEC ? vec_load(p) : vec_load_part(p, part);
    }
    const ptrdiff_t row_bytes = head_dim * (ptrdiff_t)kv_sizes[type];
    for (int j = 0; j < n_keys; j++) {
        if (j % 4 == 0)
            fetch_lines(next, rate);
        const char *row = v + j * row_bytes;
        vec value[SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < n_vecs; i++)
            value[i] = i + 1 < n_vecs || part == VEC ? kv_load(type, row, i * VEC) : kv_load_part(type, row, i * VEC, part);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++) {
            const vec p = vec_set(scores[s * FEW_KEYS + j]);
#pragma GCC unroll 16
            for (int i = 0; i < n_vecs; i++)
                sum[s * n_vecs + i] = vec_fma(p, value[i], sum[s * n_vecs + i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++) {
        float *p = acc + i / n_vecs * (ptrdiff_t)head_dim + i % n_vecs * VEC;
        if ((i + 1) % n_vecs || part == VEC)
            vec_store(p, sum[i]);
        else
            vec_store_part(p, sum[i], part);
    }
}

// The components from c on, n_vecs vectors at a time as long as there are so many; returns where that ends.
VEC_INLINE int few_outputs_by(enum kv_type type, int n_queries, int n_vecs, int c, float *acc, const float *scores,
                              const char *v, int n_keys, int head_dim, struct fetch *next, int rate)
{
    for (; n_queries * n_vecs <= SUMS && c + n_vecs * VEC <= head_dim; c += n_vecs * VEC)
        few_values(type, n_queries, n_vecs, acc + c, scores, v + c * (ptrdiff_t)kv_sizes[type], n_keys, head_dim, VEC, next,
                   rate);
    return c;
}

// All components: as many vectors at a time as there are sums for.
VEC_INLINE void few_outputs(enum kv_type type, int n_queries, float *acc, const float *scores, const char *v, int n_keys,
                            int head_dim, struct fetch *next)
{
    const int most = n_queries == 1 ? 8 : n_queries == 2 ? SUMS / 2 : n_queries <= 4 ? SUMS / 4 : SUMS / 8;
    const int passes = (head_dim + most * VEC - 1) / (most * VEC), rate = fetch_rate(next, passes * ((n_keys + 3) / 4));
    int c = few_outputs_by(type, n_queries, 8, 0, acc, scores, v, n_keys, head_dim, next, rate);
    c = few_outputs_by(type, n_queries, 4, c, acc, scores, v, n_keys, head_dim, next, rate);
    c = few_outputs_by(type, n_queries, 2, c, acc, scores, v, n_keys, head_dim, next, rate);
    c = few_outputs_by(type, n_queries, 1, c, acc, scores, v, n_keys, head_dim, next, rate);
    if (c < head_dim)
        few_values(type, n_queries, 1, acc + c, scores, v + c * (ptrdiff_t)kv_sizes[type], n_keys, head_dim, head_dim - c, next,
                   rate);
}

// How many of n queries are taken together: a constant for each.
VEC_INLINE int few_tile(int n)
{
    return n == 8 && SUMS > 8 ? 8 : n == 3 || n == 6 ? 3 : n >= 4 ? 4 : n;
}

// scores (n_queries, FEW_KEYS) *= scales (n) of the keys.
VEC_INLINE void few_scale(int n_queries, float *scores, const float *scales, int n)
{
    for (int j = 0; j < n; j += VEC) {
        const vec scale = n - j < VEC ? vec_load_part(scales + j, n - j) : vec_load(scales + j);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++)
            vec_store(scores + s * FEW_KEYS + j, vec_mul(scale, vec_load(scores + s * FEW_KEYS + j)));
    }
}

// Queries [i, i + n_queries) of a block: scores, softmax, outputs. `values` and `keys` are what may be fetched meanwhile.
VEC_INLINE void few_queries(enum kv_type type, int n_queries, const struct attend_args *a, int i, int at, int n,
                            struct fetch *values, struct fetch *keys)
{
    const ptrdiff_t d = a->head_dim, offset = at * d * (ptrdiff_t)kv_sizes[type];
    float *scores = a->scratch;
    const float *q = scores + FEW_QUERIES * FEW_KEYS + i * ((d + VEC - 1) / VEC * VEC);
    few_scores(type, n_queries, scores, q, (const char *)a->k + offset, n, a->head_dim, values);
    if (type == KV_INT8)
        few_scale(n_queries, scores, a->k_scales + at, n);
    if (a->softcap > 0)
        softcap_rows(scores, FEW_KEYS, n_queries, n, a->softcap);
    if (a->bias)
        bias_rows(scores, FEW_KEYS, n_queries, a->bias + at, n);
    struct view views[8];
    for (int s = 0; s < n_queries; s++)
        views[s] = view_of(a, i + s, at, n);
    softmax_rows(scores, FEW_KEYS, n_queries, (struct view){0, n}, views, a->acc + i * d, a->head_dim, a->max + i, a->sum + i,
                 keys->rows ? NULL : keys);
    if (type == KV_INT8)
        few_scale(n_queries, scores, a->v_scales + at, n);
    few_outputs(type, n_queries, a->acc + i * d, scores, (const char *)a->v + offset, n, a->head_dim, keys);
}

// How many of `left` keys the next block has: all blocks about the same, in whole vectors, at most `most`, a multiple of VEC.
// The next block is fetched while this one is read. A short one at a part's end leaves lines unfetched; the next part waits for
// these at its beginning.
VEC_INLINE int few_block_keys(int left, int most)
{
    const int vecs = (left + VEC - 1) / VEC, blocks = (vecs + most / VEC - 1) / (most / VEC);
    if (blocks == 0)
        return 0;
    const int n = (vecs + blocks - 1) / blocks * VEC;
    return n < left ? n : left;
}

VEC_INLINE void attend_few(enum kv_type type, const struct attend_args *a)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    const char *k = a->k, *v = a->v;
    struct view views[FEW_QUERIES];
    for (int i = 0; i < a->n_queries; i++)
        views[i] = view_of(a, i, 0, a->n_keys);
    const struct view seen = view_union(views, a->n_queries);
    float *q = (float *)a->scratch + FEW_QUERIES * FEW_KEYS;
    for (int i = 0, n; i < a->n_queries; i += n) {
        n = few_tile(a->n_queries - i);
        few_pack_queries(n, q + i * ((a->head_dim + VEC - 1) / VEC * VEC), a->q + i * (ptrdiff_t)a->head_dim, a->head_dim);
    }
    int block = (int)(FEW_BYTES / row_bytes) & -VEC;
    block = block > FEW_KEYS ? FEW_KEYS : block < FEW_KEYS_LEAST ? FEW_KEYS_LEAST : block;
    for (int at = seen.first, n; at < seen.last; at += n) {
        n = few_block_keys(seen.last - at, block);
        const int after = at + n, n_after = few_block_keys(seen.last - after, block);
        struct fetch values = fetch_make(v, NULL, at, n, row_bytes), keys = fetch_make(k, NULL, after, n_after, row_bytes);
        if (n_after == 0 && a->next_rows) {
            values = fetch_make(a->next_v, a->next_rows, 0, a->n_next, row_bytes);
            keys = fetch_make(a->next_k, a->next_rows, 0, a->n_next, row_bytes);
        } else if (n_after == 0 && a->next_k) {
            keys = fetch_make(a->next_k, NULL, 0, block, row_bytes);
        }
        for (int i = 0, tile; i < a->n_queries; i += tile) {
            tile = few_tile(a->n_queries - i);
            if (tile == 8)
                few_queries(type, 8, a, i, at, n, &values, &keys);
            else if (tile == 4)
                few_queries(type, 4, a, i, at, n, &values, &keys);
            else if (tile == 3)
                few_queries(type, 3, a, i, at, n, &values, &keys);
            else if (tile == 2)
                few_queries(type, 2, a, i, at, n, &values, &keys);
            else
                few_queries(type, 1, a, i, at, n, &values, &keys);
        }
    }
}
