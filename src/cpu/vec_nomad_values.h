// NoMAD's other half: values weighted by scores that are known already, for either vector width; see struct nomad_value_args. The products are
// those of attention over few queries (vec_attend.h), on all rows of a block or on those that are worth it.
#pragma once
#include "cpu/kernels_nomad.h"
#include "cpu/vec_attend.h"
#include "cpu/vec_nomad.h"

// weights (n_queries, FEW_KEYS) = e^(score - max) of n keys from key `at` on, zeros up to whole vectors.
VEC_INLINE void nomad_weights(int n_queries, float *weights, const struct nomad_value_args *a, int query, int at, int n)
{
#pragma GCC unroll 8
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

// Moves the weights of those keys together that some query gives its least weight or more, and writes their rows; returns how many.
VEC_INLINE int nomad_keep(int n_queries, float *weights, int *rows, const struct nomad_value_args *a, int query, int at, int n)
{
    int kept[FEW_KEYS + VEC], m = 0;
    float ignored[FEW_KEYS + VEC];
    for (int j = 0; j < n; j += VEC) {
        vec most = vec_zero();
#pragma GCC unroll 8
        for (int i = 0; i < n_queries; i++)
            most = vec_max(vec_mul(vec_load(weights + i * FEW_KEYS + j), vec_set(a->inverse_least[query + i])), most);
        m += vec_collect(kept + m, ignored + m, most, j, 1.0f);
    }
    for (int j = 0; j < m; j++) {
        rows[j] = at + kept[j];
        for (int i = 0; i < n_queries; i++)
            weights[i * FEW_KEYS + j] = weights[i * FEW_KEYS + kept[j]];
    }
    for (int i = 0; i < n_queries && m < n; i++)
        memset(weights + i * FEW_KEYS + m, 0, sizeof(float) * (size_t)((m + VEC - 1) / VEC * VEC - m));
    return m;
}

VEC_INLINE void nomad_values_queries(enum kv_type type, int n_queries, const struct nomad_value_args *a, int query, int at,
                                     int n, struct fetch *next)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    float *weights = a->scratch, *acc = a->acc + query * (ptrdiff_t)a->head_dim;
    int kept[FEW_KEYS];
    const char *v = a->v;
    const int *rows = NULL;
    nomad_weights(n_queries, weights, a, query, at, n);
    if (a->inverse_least) {
        const int all = n;
        n = nomad_keep(n_queries, weights, kept, a, query, at, n);
        if (n == 0)
            return;
        if (n < all) { // else a run as without leaving out, and probably another after it
            rows = kept;
            struct fetch these = fetch_make(v, rows, 0, n, row_bytes);
            fetch_lines(&these, 1 << 20);
            *next = (struct fetch){0};
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_queries; i++) {
        vec total = vec_zero();
        for (int j = 0; j < n; j += VEC)
            total = vec_add(total, vec_load(weights + i * FEW_KEYS + j));
        a->sum[query + i] += vec_total(total);
    }
    if (type == KV_INT8)
        few_scale(n_queries, weights, a->v_scales, rows, rows ? 0 : at, n);
    few_outputs(type, n_queries, acc, weights, rows ? v : v + at * row_bytes, rows, n, a->head_dim, next);
}

VEC_INLINE void nomad_values(enum kv_type type, const struct nomad_value_args *a)
{
    const ptrdiff_t row_bytes = a->head_dim * (ptrdiff_t)kv_sizes[type];
    int block = (int)(FEW_BYTES / row_bytes) & -4;
    block = a->inverse_least || block > FEW_KEYS ? FEW_KEYS : block < FEW_KEYS_LEAST ? FEW_KEYS_LEAST : block;
    for (int at = 0; at < a->n_keys; at += block) {
        const int n = a->n_keys - at < block ? a->n_keys - at : block, after = at + n;
        struct fetch next = fetch_make(a->v, NULL, after, a->n_keys - after < block ? a->n_keys - after : block, row_bytes);
        for (int i = 0, tile; i < a->n_queries; i += tile) {
            tile = few_tile(a->n_queries - i);
            if (tile == 8)
                nomad_values_queries(type, 8, a, i, at, n, &next);
            else if (tile == 4)
                nomad_values_queries(type, 4, a, i, at, n, &next);
            else if (tile == 3)
                nomad_values_queries(type, 3, a, i, at, n, &next);
            else if (tile == 2)
                nomad_values_queries(type, 2, a, i, at, n, &next);
            else
                nomad_values_queries(type, 1, a, i, at, n, &next);
        }
    }
}
