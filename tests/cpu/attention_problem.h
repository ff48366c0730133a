// Attention's problems, of which test_attention_kernels.c, test_fixed_attention.c and test_byte_attention.c check the answers.
#pragma once
#include "kernels_testing.h"

struct problem {
    enum kv_type kv;
    enum dtype type; // of the same elements; of int8, of k_exact and v_exact
    int n_queries, n_keys, head_dim;
    float softcap;     // 0: none
    const float *bias; // (n_keys); NULL: none
    float *q, *acc, *max, *sum;
    void *k, *v;
    float *k_scales, *v_scales; // of int8
    void *k_exact, *v_exact;    // what the cache stands for, of `type`: k and v themselves, or each row times its scale
    int *first, *last;          // or NULL
    void *scratch;
    const struct fixed_attention *fixed; // whose kernel it is
    const struct byte_attention *few;    // likewise; both NULL: f->kernels'
};

// Rows of int8 that use the whole range, with scales of very different sizes, one of them 0; and what they stand for.
static inline void random_int8(struct fixture *f, int n_keys, int head_dim, void **rows, float **scales, void **exact)
{
    int8_t *x = guarded(f, (size_t)n_keys * head_dim);
    *scales = guarded(f, sizeof(float) * (size_t)n_keys);
    float *y = guarded(f, sizeof(float) * (size_t)n_keys * head_dim);
    for (int j = 0; j < n_keys; j++) {
        (*scales)[j] = j % 11 == 5 ? 0 : (float)(ldexp(1 + uniform(f) / 2, -below(f, 6)) / 127);
        for (int c = 0; c < head_dim; c++) {
            const int i = j * head_dim + c;
            x[i] = (int8_t)(i % 17 == 0 ? 127 : i % 19 == 0 ? -128 : below(f, 255) - 127);
            y[i] = (*scales)[j] * x[i];
        }
    }
    *rows = x;
    *exact = y;
}

// As if no key had been seen yet.
static inline void start_again(const struct problem *p)
{
    memset(p->acc, 0, sizeof(float) * (size_t)p->n_queries * p->head_dim);
    for (int i = 0; i < p->n_queries; i++) {
        p->max[i] = -INFINITY;
        p->sum[i] = 0;
    }
}

static inline struct problem make_problem(struct fixture *f, enum kv_type kv, int n_queries, int n_keys, int head_dim,
                                          double range)
{
    struct problem p = {.kv = kv, .type = kv == KV_FP16 ? DTYPE_FP16 : DTYPE_FP32};
    p.n_queries = n_queries;
    p.n_keys = n_keys;
    p.head_dim = head_dim;
    p.q = random_floats(f, (size_t)n_queries * head_dim, range);
    if (kv == KV_INT8) {
        random_int8(f, n_keys, head_dim, &p.k, &p.k_scales, &p.k_exact);
        random_int8(f, n_keys, head_dim, &p.v, &p.v_scales, &p.v_exact);
    } else {
        p.k = p.k_exact = random_elements(f, p.type, (size_t)n_keys * head_dim);
        p.v = p.v_exact = random_elements(f, p.type, (size_t)n_keys * head_dim);
    }
    p.acc = guarded(f, sizeof(float) * (size_t)n_queries * head_dim);
    p.max = guarded(f, sizeof(float) * (size_t)n_queries);
    p.sum = guarded(f, sizeof(float) * (size_t)n_queries);
    start_again(&p);
    p.scratch = guarded_scratch(f, f->kernels->attend_scratch);
    return p;
}

static inline void random_masks(struct fixture *f, struct problem *p)
{
    p->first = guarded(f, sizeof(int) * (size_t)p->n_queries);
    p->last = guarded(f, sizeof(int) * (size_t)p->n_queries);
    for (int i = 0; i < p->n_queries; i++) {
        p->first[i] = below(f, 3) ? below(f, p->n_keys) : 0;
        p->last[i] = below(f, 3) ? below(f, p->n_keys + 1) : p->n_keys; // often before `first`: sees nothing
    }
}

// Keys [from, to) of the problem's, with the masks moved along.
static inline void attend(struct fixture *f, const struct problem *p, int from, int to)
{
    const size_t at = (size_t)from * p->head_dim * kv_sizes[p->kv];
    int first[512], last[512];
    for (int i = 0; i < p->n_queries && p->first; i++) {
        first[i] = p->first[i] < from ? 0 : p->first[i] > to ? to - from : p->first[i] - from;
        last[i] = p->last[i] < from ? 0 : p->last[i] > to ? to - from : p->last[i] - from;
    }
    (p->fixed ? p->fixed->attend
     : p->few ? p->few->attend
              : f->kernels->attend)[p->kv](&(struct attend_args){
        .acc = p->acc,
        .max = p->max,
        .sum = p->sum,
        .q = p->q,
        .k = (const char *)p->k + at,
        .v = (const char *)p->v + at,
        .k_scales = p->k_scales ? p->k_scales + from : NULL,
        .v_scales = p->v_scales ? p->v_scales + from : NULL,
        .n_queries = p->n_queries,
        .n_keys = to - from,
        .head_dim = p->head_dim,
        .softcap = p->softcap,
        .bias = p->bias ? p->bias + from : NULL,
        .first = p->first ? first : NULL,
        .last = p->first ? last : NULL,
        .fetching = {.streams = 2 + (from + to) % 2 * 2, .to_l2 = (from + to) / 2 % 2},
        .scratch = p->scratch,
    });
}

// In pieces of up to `most` keys, as a ring buffer and the cache's parts are read.
static inline void attend_pieces(struct fixture *f, const struct problem *p, int most)
{
    for (int from = 0, to; from < p->n_keys; from = to) {
        to = from + 1 + below(f, most);
        to = to < p->n_keys ? to : p->n_keys;
        attend(f, p, from, to);
    }
}
