// Attention as one would write it down first, and the fused kernel on the same prompt: what the fusion is worth. One head,
// one thread.
#pragma once
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cpu/kernels/kernels.h"
#include "util/memory.h"

enum { QUERY_BLOCK = 128 }; // queries that the engine gives the kernel at once

// A prompt of n tokens, causal.
struct prompt {
    int n, head_dim;
    const float *q;        // (n, head_dim), already scaled by 1 / sqrt(head_dim)
    const uint16_t *k, *v; // (n, head_dim), fp16
    float *y;              // (n, head_dim)
    float *scratch;        // (2, n, head_dim) and (n, n)
    void *kernel_scratch;
};

// S = Q Kᵀ, P = softmax(S) over the keys that a query sees, Y = P V: each matrix whole, in plain C.
static void attend_naive(const struct prompt *p, const struct cpu_kernels *kernels)
{
    const ptrdiff_t n = p->n, d = p->head_dim;
    float *k = p->scratch, *v = k + n * d, *scores = v + n * d;
    kernels->to_fp32[DTYPE_FP16](k, p->k, (int)(n * d));
    kernels->to_fp32[DTYPE_FP16](v, p->v, (int)(n * d));
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < n; j++) {
            float sum = 0;
            for (ptrdiff_t c = 0; c < d; c++)
                sum += p->q[i * d + c] * k[j * d + c];
            scores[i * n + j] = j <= i ? sum : -INFINITY;
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        float max = -INFINITY, sum = 0;
        for (ptrdiff_t j = 0; j < n; j++)
            max = fmaxf(max, scores[i * n + j]);
        for (ptrdiff_t j = 0; j < n; j++)
            sum += scores[i * n + j] = expf(scores[i * n + j] - max);
        for (ptrdiff_t j = 0; j < n; j++)
            scores[i * n + j] /= sum;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t c = 0; c < d; c++) {
            float sum = 0;
            for (ptrdiff_t j = 0; j < n; j++)
                sum += scores[i * n + j] * v[j * d + c];
            p->y[i * d + c] = sum;
        }
}

static void attend_fused(const struct prompt *p, const struct cpu_kernels *kernels)
{
    const ptrdiff_t d = p->head_dim;
    memset(p->y, 0, sizeof(float) * (size_t)p->n * (size_t)d);
    for (int at = 0; at < p->n; at += QUERY_BLOCK) {
        const int n_queries = p->n - at < QUERY_BLOCK ? p->n - at : QUERY_BLOCK;
        float max[QUERY_BLOCK], sum[QUERY_BLOCK];
        int first[QUERY_BLOCK], last[QUERY_BLOCK];
        for (int i = 0; i < n_queries; i++) {
            max[i] = -INFINITY;
            sum[i] = 0;
            first[i] = 0;
            last[i] = at + i + 1;
        }
        kernels->attend[KV_FP16](&(struct attend_args){
            .acc = p->y + at * d,
            .max = max,
            .sum = sum,
            .q = p->q + at * d,
            .k = p->k,
            .v = p->v,
            .n_queries = n_queries,
            .n_keys = at + n_queries,
            .head_dim = p->head_dim,
            .first = first,
            .last = last,
            .scratch = p->kernel_scratch,
        });
        for (int i = 0; i < n_queries; i++)
            for (ptrdiff_t c = 0; c < d; c++)
                p->y[(at + i) * d + c] /= sum[i];
    }
}

// The largest difference between two results, over the largest magnitude.
static double largest_difference(const float *x, const float *y, ptrdiff_t n)
{
    double difference = 0, magnitude = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        difference = fmax(difference, isfinite(x[i]) && isfinite(y[i]) ? fabs((double)x[i] - y[i]) : INFINITY);
        magnitude = fmax(magnitude, fabs((double)y[i]));
    }
    return difference / magnitude;
}

// Seconds of this thread: the two forms are compared where neither waits for anything.
static double seconds_of_form(void (*form)(const struct prompt *p, const struct cpu_kernels *kernels), const struct prompt *p,
                              const struct cpu_kernels *kernels)
{
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    form(p, kernels);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

// kv: 2 * n * head_dim fp16 values.
static void compare_naive(const struct cpu_kernels *kernels, const uint16_t *kv, void *kernel_scratch, int n, int head_dim)
{
    enum { TURNS = 3 };
    const size_t size = (size_t)n * (size_t)head_dim, bytes = sizeof(float) * (5 * size + (size_t)n * (size_t)n);
    float *q = memory_pages(bytes);
    if (!q)
        return;
    for (size_t i = 0; i < size; i++)
        q[i] = (float)(int)(i * 2654435761u >> 8 & 0xff) / 512 - 0.25f;
    const struct prompt naive = {n, head_dim, q, kv, kv + size, q + size, q + 3 * size, kernel_scratch};
    struct prompt fused = naive;
    fused.y = q + 2 * size;
    double naive_time = INFINITY, fused_time = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        naive_time = fmin(naive_time, seconds_of_form(attend_naive, &naive, kernels));
        fused_time = fmin(fused_time, seconds_of_form(attend_fused, &fused, kernels));
    }
    printf("attend fp16 prefill %d, group 1, d %d, a head: naive %.3f s, fused %.4f s: %.1f times; difference %.1e\n", n,
           head_dim, naive_time, fused_time, naive_time / fused_time, largest_difference(fused.y, naive.y, (ptrdiff_t)size));
    memory_pages_free(q, bytes);
}
