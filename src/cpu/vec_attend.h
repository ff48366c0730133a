// Attention over a run of keys, for either vector width; included by kernels_<isa>_attend.c. Online softmax by blocks of keys
// (Milakov and Gimelshein, 2018; Dao et al., 2022), see struct attend_args. Here is what is common to both forms, and
// the form for a few queries, the heads that share a KV head at decode; vec_attend_many.h has the one for prefill.
//
// Few queries: bound by reading K and V, once for all queries. A block of both stays in L1: its scores are dot products along K's
// rows, four keys and QUERY_TILE queries at a time; then each p v is added to sums that live in registers for the whole block.
// While the scores of a block are computed its values are fetched from memory, and with the values the next block's keys.
#pragma once
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/vec_math.h"

enum {
    FEW_QUERIES = 8,
    FEW_BYTES = 16384, // of K, and of V, in a block, about
    FEW_KEYS = 256,    // in a block, at most
    FEW_KEYS_LEAST = 16,
    VALUE_VECS = 4, // vectors of a value's row that are summed at a time
    FEW_SCRATCH = (int)sizeof(float) * FEW_QUERIES * FEW_KEYS,
};

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

// The scores that the query sees become e^(score - max), the others of `all` 0; there is room for whole vectors. A larger maximum
// shrinks the query's sum and output.
VEC_INLINE void softmax_row(float *scores, struct view all, struct view view, float *acc, int head_dim, float *max, float *sum)
{
    const vec none = vec_set(-INFINITY);
    const int from = view.first - view.first % VEC;
    vec most = vec_set(*max);
    for (int j = from; j < view.last; j += VEC)
        most = vec_max(most, vec_between(vec_load(scores + j), none, view.first - j, view.last - j));
    const float largest = vec_largest(most);
    if (largest > *max) {
        const vec shrink = vec_exp(vec_set(*max - largest));
        for (int i = 0; i < head_dim; i += VEC) {
            const int part = head_dim - i < VEC ? head_dim - i : VEC;
            vec_store_part(acc + i, vec_mul(shrink, vec_load_part(acc + i, part)), part);
        }
        *sum *= vec_first(shrink);
        *max = largest;
    }

    const vec base = vec_set(largest);
    vec total = vec_zero();
    for (int j = all.first - all.first % VEC; j < from; j += VEC)
        vec_store(scores + j, vec_zero());
    int j = from;
    for (; j < view.last; j += VEC) {
        const vec p = vec_between(vec_exp(vec_sub(vec_load(scores + j), base)), vec_zero(), view.first - j, view.last - j);
        vec_store(scores + j, p);
        total = vec_add(total, p);
    }
    for (; j < all.last; j += VEC)
        vec_store(scores + j, vec_zero());
    *sum += vec_total(total);
}

// Memory that will be read soon, line by line.
struct fetch {
    const char *at, *end;
};

VEC_INLINE void fetch_lines(struct fetch *f, int n)
{
    for (; n > 0 && f->at < f->end; n--, f->at += 64)
        __builtin_prefetch(f->at);
}

// Lines to fetch at each of `steps` steps.
VEC_INLINE int fetch_rate(const struct fetch *f, int steps)
{
    return (int)((f->end - f->at + 63) / 64 + steps - 1) / steps;
}

// scores (n_queries, FEW_KEYS) = q Kᵀ for n_keys keys from k on; n_queries <= QUERY_TILE is a constant where this is inlined.
VEC_INLINE void few_scores(enum dtype type, int n_queries, float *scores, const float *q, const void *k, int n_keys,
                           int head_dim, struct fetch *next)
{
    const int rate = fetch_rate(next, (n_keys + 3) / 4);
    for (int j = 0; j < n_keys; j += 4) {
        ptrdiff_t row[4]; // past the end: the last one again
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            row[i] = (j + i < n_keys ? j + i : n_keys - 1) * (ptrdiff_t)head_dim;
        vec sum[QUERY_TILE][4];
#pragma GCC unroll 4
        for (int s = 0; s < n_queries; s++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sum[s][i] = vec_zero();
        fetch_lines(next, rate);
        for (int c = 0; c < head_dim; c += VEC) {
            const int part = head_dim - c < VEC ? head_dim - c : VEC;
            vec key[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                key[i] = part == VEC ? vec_load_as(type, k, row[i] + c) : vec_load_part_as(type, k, row[i] + c, part);
#pragma GCC unroll 4
            for (int s = 0; s < n_queries; s++) {
                const float *p = q + s * (ptrdiff_t)head_dim + c;
                const vec x = part == VEC ? vec_load(p) : vec_load_part(p, part);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    sum[s][i] = vec_fma(x, key[i], sum[s][i]);
            }
        }
#pragma GCC unroll 4
        for (int s = 0; s < n_queries; s++)
            _mm_storeu_ps(scores + s * FEW_KEYS + j, vec_total4(sum[s][0], sum[s][1], sum[s][2], sum[s][3]));
    }
}

// acc[s][0 … n_vecs * VEC) += Σ_j scores[s, j] v[j]; acc and v point at the first component, of which `part` of the last vector are live.
VEC_INLINE void few_values(enum dtype type, int n_queries, int n_vecs, float *acc, const float *scores, const void *v,
                           int n_keys, int head_dim, int part, struct fetch *next, int rate)
{
    vec sum[QUERY_TILE][VALUE_VECS];
#pragma GCC unroll 4
    for (int s = 0; s < n_queries; s++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; i++) {
            const float *p = acc + s * (ptrdiff_t)head_dim + i * VEC;
            sum[s][i] = i + 1 < n_vecs || part == VEC ? vec_load(p) : vec_load_part(p, part);
        }
    for (int j = 0; j < n_keys; j++) {
        if (j % 4 == 0)
            fetch_lines(next, rate);
        const ptrdiff_t row = j * (ptrdiff_t)head_dim;
        vec value[VALUE_VECS];
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; i++)
            value[i] = i + 1 < n_vecs || part == VEC ? vec_load_as(type, v, row + i * VEC)
                                                     : vec_load_part_as(type, v, row + i * VEC, part);
#pragma GCC unroll 4
        for (int s = 0; s < n_queries; s++) {
            const vec p = vec_set(scores[s * FEW_KEYS + j]);
#pragma GCC unroll 4
            for (int i = 0; i < n_vecs; i++)
                sum[s][i] = vec_fma(p, value[i], sum[s][i]);
        }
    }
#pragma GCC unroll 4
    for (int s = 0; s < n_queries; s++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; i++) {
            float *p = acc + s * (ptrdiff_t)head_dim + i * VEC;
            if (i + 1 < n_vecs || part == VEC)
                vec_store(p, sum[s][i]);
            else
                vec_store_part(p, sum[s][i], part);
        }
}

// All components: VALUE_VECS whole vectors at a time, then one at a time.
VEC_INLINE void few_values_all(enum dtype type, int n_queries, float *acc, const float *scores, const void *v, int n_keys,
                               int head_dim, struct fetch *next, int rate)
{
    const ptrdiff_t size = (ptrdiff_t)dtype_sizes[type];
    int c = 0;
    for (; c + VALUE_VECS * VEC <= head_dim; c += VALUE_VECS * VEC)
        few_values(type, n_queries, VALUE_VECS, acc + c, scores, (const char *)v + c * size, n_keys, head_dim, VEC, next, rate);
    for (; c + VEC <= head_dim; c += VEC)
        few_values(type, n_queries, 1, acc + c, scores, (const char *)v + c * size, n_keys, head_dim, VEC, next, rate);
    if (c < head_dim)
        few_values(type, n_queries, 1, acc + c, scores, (const char *)v + c * size, n_keys, head_dim, head_dim - c, next, rate);
}

// QUERY_TILE queries at a time; the function for a constant number of them.
VEC_INLINE void few_scores_all(enum dtype type, const struct attend_args *a, float *scores, const void *k, int n_keys,
                               struct fetch *next)
{
    const int d = a->head_dim;
    int i = 0;
    for (; i + QUERY_TILE <= a->n_queries; i += QUERY_TILE)
        few_scores(type, QUERY_TILE, scores + i * FEW_KEYS, a->q + i * (ptrdiff_t)d, k, n_keys, d, next);
    for (; i < a->n_queries; i++)
        few_scores(type, 1, scores + i * FEW_KEYS, a->q + i * (ptrdiff_t)d, k, n_keys, d, next);
}

VEC_INLINE void few_outputs_all(enum dtype type, const struct attend_args *a, const float *scores, const void *v, int n_keys,
                                struct fetch *next)
{
    const int d = a->head_dim, passes = (a->n_queries / QUERY_TILE + a->n_queries % QUERY_TILE) * ((d + VEC - 1) / VEC);
    const int rate = fetch_rate(next, passes * ((n_keys + 3) / 4));
    int i = 0;
    for (; i + QUERY_TILE <= a->n_queries; i += QUERY_TILE)
        few_values_all(type, QUERY_TILE, a->acc + i * (ptrdiff_t)d, scores + i * FEW_KEYS, v, n_keys, d, next, rate);
    for (; i < a->n_queries; i++)
        few_values_all(type, 1, a->acc + i * (ptrdiff_t)d, scores + i * FEW_KEYS, v, n_keys, d, next, rate);
}

VEC_INLINE void attend_few(enum dtype type, const struct attend_args *a)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)dtype_sizes[type];
    const char *k = a->k, *v = a->v;
    float *scores = a->scratch;
    struct view views[FEW_QUERIES];
    for (int i = 0; i < a->n_queries; i++)
        views[i] = view_of(a, i, 0, a->n_keys);
    const struct view seen = view_union(views, a->n_queries);
    int block = (int)(FEW_BYTES / row_bytes) & -4;
    block = block > FEW_KEYS ? FEW_KEYS : block < FEW_KEYS_LEAST ? FEW_KEYS_LEAST : block;
    for (int at = seen.first; at < seen.last; at += block) {
        const int n = seen.last - at < block ? seen.last - at : block, after = at + n;
        const int n_after = seen.last - after < block ? seen.last - after : block;
        struct fetch values = {v + at * row_bytes, v + after * row_bytes};
        struct fetch keys = {k + after * row_bytes, k + (after + n_after) * row_bytes};
        few_scores_all(type, a, scores, k + at * row_bytes, n, &values);
        for (int i = 0; i < a->n_queries; i++)
            softmax_row(scores + i * FEW_KEYS, (struct view){0, n}, view_of(a, i, at, n), a->acc + i * (ptrdiff_t)a->head_dim,
                        a->head_dim, &a->max[i], &a->sum[i]);
        few_outputs_all(type, a, scores, v + at * row_bytes, n, &keys);
    }
}
