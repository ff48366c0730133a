// What bench/kernels.c times: each kernel's work at a shape, shared among threads, and the work of the limits.
#pragma once
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "cpu/machine/isa.h"
#include "cpu/machine/limits.h"
#include "cpu/plan.h"

enum { MAX_TOKENS = 512, MAX_QUERIES = 384 };

static const size_t pool_bytes = (size_t)512 << 20; // weights and caches: far more than the last-level cache

struct bench {
    const struct cpu_kernels *kernels;
    const struct matmul16 *half;         // float16's or bfloat16's, or tiles, while these are measured; else NULL
    const struct fixed_attention *fixed; // likewise
    const struct byte_attention *few;    // likewise
    struct team *team;
    int n_threads, rounds;
    const char *only;
    clockid_t clock;
    char *pool;            // random elements that are small numbers in every type
    float *x, *y, *packed; // (MAX_TOKENS, cols)
    const struct quant_kernels *quant;
    void *quantised; // the same tokens, for quantised matrices
    char **scratch;  // (n_threads)
    yalm_limits limits;
    atomic_int next;
    atomic_ullong read; // what reading found, so that it is not in vain
    int streams, ahead; // of the reading
    struct fetching fetching;
    long multiply_rounds;
    double (*multiply_loop)(long rounds); // an fma_loop or dot_loop

    // The case.
    enum dtype type;
    enum kv_type kv;
    int rows, cols, n; // of a matrix, and tokens
    int group, head_dim, n_keys, n_heads, query_tokens;
};

// ---------------------------------------------------------------------------------------- limits

static void read_pool(void *context, int thread)
{
    struct bench *b = context;
    const size_t share = pool_bytes / (size_t)b->n_threads / 65536 * 65536;
    atomic_fetch_xor(&b->read, b->kernels->read_streams(b->pool + (size_t)thread * share, share, b->streams, b->ahead));
}

static void multiply(void *context, int thread)
{
    struct bench *b = context;
    (void)thread;
    b->multiply_loop(b->multiply_rounds);
}

// ---------------------------------------------------------------------------------------- kernels

// Thread i's part of n items, in whole grains.
static struct grains share_of(const struct bench *b, int i, int n, int grain)
{
    const int grains = (n + grain - 1) / grain;
    const int first = grains * i / b->n_threads * grain, last = grains * (i + 1) / b->n_threads * grain;
    return (struct grains){first < n ? first : n, last < n ? last : n};
}

static int matrices(const struct bench *b)
{
    return (int)(pool_bytes / ((size_t)b->rows * dtype_row_bytes(b->type, b->cols)));
}

static void *matrix(const struct bench *b, int i)
{
    return b->pool + (size_t)i * (size_t)b->rows * dtype_row_bytes(b->type, b->cols);
}

static void matvec(void *context, int thread)
{
    struct bench *b = context;
    const struct grains rows = share_of(b, thread, b->rows, 16);
    for (int i = 0; i < matrices(b); i++)
        b->kernels->matvec[b->type](b->y + rows.first, b->rows, matrix(b, i), rows.first, rows.last, b->cols, b->x, b->cols,
                                    b->n, b->fetching.to_l2);
}

static void pack(void *context, int thread)
{
    struct bench *b = context;
    const struct grains cols = share_of(b, thread, b->cols, MATMUL16_BLOCK);
    if (b->half)
        b->half->pack(b->packed, b->x, b->cols, b->n, b->cols, cols.first, cols.last);
    else
        b->kernels->pack_tokens(b->packed, b->x, b->cols, b->n, b->cols, cols.first, cols.last);
}

static void matmul(void *context, int thread)
{
    struct bench *b = context;
    const struct grains rows = share_of(b, thread, b->rows, 16);
    (b->half ? b->half->product : b->kernels->matmul)[b->type](&(struct product_args){
        .y = b->y + rows.first,
        .ldy = b->rows,
        .w = matrix(b, (int)(atomic_load(&b->next) % matrices(b))),
        .type = b->type,
        .rows = b->rows,
        .first_row = rows.first,
        .last_row = rows.last,
        .cols = b->cols,
        .x = b->packed,
        .n = b->n,
        .scratch = b->scratch[thread],
    });
}

static void quantise(void *context, int thread)
{
    struct bench *b = context;
    const struct grains cols = share_of(b, thread, b->cols, QUANT_BLOCK);
    plan_quant_form(b->quant, b->n)->quantise(b->quantised, b->x, b->cols, b->n, b->cols, cols.first, cols.last);
}

static void quant_product(struct bench *b, int thread, const void *w)
{
    const struct grains rows = share_of(b, thread, b->rows, 16);
    plan_quant_form(b->quant, b->n)
        ->product[b->type](&(struct product_args){
            .y = b->y + rows.first,
            .ldy = b->rows,
            .w = w,
            .type = b->type,
            .rows = b->rows,
            .cols = b->cols,
            .first_row = rows.first,
            .last_row = rows.last,
            .x = b->quantised,
            .n = b->n,
            .fetching = b->fetching,
            .scratch = b->scratch[thread],
        });
}

static void quant_few(void *context, int thread)
{
    struct bench *b = context;
    for (int i = 0; i < matrices(b); i++)
        quant_product(b, thread, matrix(b, i));
}

static void quant_many(void *context, int thread)
{
    struct bench *b = context;
    quant_product(b, thread, matrix(b, (int)(atomic_load(&b->next) % matrices(b))));
}

struct queries { // on a thread's stack
    float acc[MAX_QUERIES * 128], max[MAX_QUERIES], sum[MAX_QUERIES];
    int first[MAX_QUERIES], last[MAX_QUERIES];
};

static void attend(struct bench *b, int thread, struct queries *q, int head, int n_queries, int n_keys, bool masked)
{
    const size_t row = (size_t)b->head_dim * kv_sizes[b->kv], size = (size_t)b->n_keys * row;
    const size_t scales = b->kv == KV_INT8 ? (size_t)b->n_keys * sizeof(float) : 0;
    const char *k = b->pool + (size_t)head * 2 * (size + scales), *v = k + size + scales;
    memset(q->acc, 0, sizeof(float) * (size_t)n_queries * (size_t)b->head_dim);
    for (int i = 0; i < n_queries; i++) {
        q->max[i] = -INFINITY;
        q->sum[i] = 0;
    }
    (b->fixed ? b->fixed->attend
     : b->few ? b->few->attend
              : b->kernels->attend)[b->kv](&(struct attend_args){
        .acc = q->acc,
        .max = q->max,
        .sum = q->sum,
        .q = b->x,
        .k = k,
        .v = v,
        .k_scales = scales ? (const float *)(k + size) : NULL,
        .v_scales = scales ? (const float *)(v + size) : NULL,
        .n_queries = n_queries,
        .n_keys = n_keys,
        .head_dim = b->head_dim,
        .first = masked ? q->first : NULL,
        .last = masked ? q->last : NULL,
        .fetching = b->fetching,
        .scratch = b->scratch[thread],
    });
}

// One token: each KV head's keys, once.
static void attend_decode(void *context, int thread)
{
    struct bench *b = context;
    struct queries q;
    for (int head; (head = atomic_fetch_add(&b->next, 1)) < b->n_heads;)
        attend(b, thread, &q, head, b->group, b->n_keys, false);
}

// A prompt of n_keys tokens: blocks of query_tokens tokens of each KV head, the longest first.
static void attend_prefill(void *context, int thread)
{
    struct bench *b = context;
    struct queries q;
    const int n_blocks = (b->n_keys + b->query_tokens - 1) / b->query_tokens;
    for (int task; (task = atomic_fetch_add(&b->next, 1)) < n_blocks * b->n_heads;) {
        const int first = (n_blocks - 1 - task / b->n_heads) * b->query_tokens;
        const int tokens = b->n_keys - first < b->query_tokens ? b->n_keys - first : b->query_tokens;
        for (int i = 0; i < tokens * b->group; i++) {
            q.first[i] = 0;
            q.last[i] = first + i / b->group + 1;
        }
        attend(b, thread, &q, task % b->n_heads, tokens * b->group, first + tokens, true);
    }
}
