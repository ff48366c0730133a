// Scores from SparQ's component-major copy of the keys, for either vector width; included by sparse.c. See struct score_args.
//
// Bound by reading r runs, once for all queries of a group. The scores of some slots stay in registers while all r components
// go by. The runs are fetched some way ahead, into the L2 cache: more can be under way there than to the L1 cache. With VNNI an
// int8 copy goes another way (vnni/sparq.c).
#pragma once
#include "cpu/kernels/sparse.h"
#include "cpu/kernels/vec/math.h"

enum { AHEAD = 512 }; // slots; by measurement: with 2,048 scores took 8 % longer

// Elements of slots at + 0 … at + n - 1 of a run, n <= VEC; `at` counts within a half run of q4.
VEC_INLINE vec copy_load(enum copy_type type, bool high, const void *run, int at, int n)
{
    if (type == COPY_FP16)
        return n == VEC ? vec_load_as(DTYPE_FP16, run, at) : vec_load_part_as(DTYPE_FP16, run, at, n);
    if (type == COPY_INT8)
        return n == VEC ? vec_load_int8((const int8_t *)run + at) : vec_load_int8_part((const int8_t *)run + at, n);
    return vec_load_nibbles((const uint8_t *)run + at, n, high);
}

// n_vecs vectors of slots, the last with `part` slots, for n_queries queries; both counts are constants where this is inlined,
// their product at most SUMS. runs: component 0's first element.
VEC_INLINE void sparq_slots(enum copy_type type, bool high, int n_queries, int n_vecs, const struct score_args *a, int query,
                            const char *runs, int part, float *scores, const float *scales)
{
    const float *q = a->q + query * (ptrdiff_t)a->r;
    vec sum[SUMS]; // (n_queries, n_vecs)
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++)
        sum[i] = vec_zero();
    for (int c = 0; c < a->r; c++) {
        const char *p = runs + a->components[c] * a->stride;
        if (type != COPY_Q4 || !high)
            for (int line = 0; line < (type == COPY_FP16 ? 2 : 1) * n_vecs * VEC; line += 64)
                __builtin_prefetch(p + copy_offset(type, AHEAD) + line, 0, 2);
        vec key[SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < n_vecs; i++)
            key[i] = copy_load(type, high, p, i * VEC, i + 1 < n_vecs ? VEC : part);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++) {
            const vec x = vec_set(q[s * (ptrdiff_t)a->r + c]);
#pragma GCC unroll 16
            for (int i = 0; i < n_vecs; i++)
                sum[s * n_vecs + i] = vec_fma(x, key[i], sum[s * n_vecs + i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++) {
        const int v = i % n_vecs, live = v + 1 < n_vecs ? VEC : part;
        float *to = scores + (query + i / n_vecs) * a->ld + v * VEC;
        if (type != COPY_FP16)
            sum[i] = vec_mul(sum[i], live == VEC ? vec_load(scales + v * VEC) : vec_load_part(scales + v * VEC, live));
        if (live == VEC)
            vec_store(to, sum[i]);
        else
            vec_store_part(to, sum[i], live);
    }
}

// As many vectors of slots at a time as there are sums for, then one by one.
VEC_INLINE void sparq_run(enum copy_type type, bool high, int n_queries, const struct score_args *a, int query,
                          const char *runs, int n, float *scores, const float *scales)
{
    const int most = n_queries == 1 ? 8 : n_queries == 2 ? SUMS / 2 : n_queries <= 4 ? SUMS / 4 : SUMS / 8;
    const ptrdiff_t size = type == COPY_FP16 ? 2 : 1;
    int j = 0;
    for (; j + most * VEC <= n; j += most * VEC)
        sparq_slots(type, high, n_queries, most, a, query, runs + j * size, VEC, scores + j, scales + j);
    for (; j < n; j += VEC)
        sparq_slots(type, high, n_queries, 1, a, query, runs + j * size, n - j < VEC ? n - j : VEC, scores + j, scales + j);
}

VEC_INLINE void sparq_queries(enum copy_type type, bool high, const struct score_args *a, const char *runs, int n,
                              float *scores, const float *scales)
{
    for (int i = 0, left; i < a->n_queries;) {
        left = a->n_queries - i;
        if (left >= 8 && SUMS > 8) {
            sparq_run(type, high, 8, a, i, runs, n, scores, scales);
            i += 8;
        } else if (left >= 4) {
            sparq_run(type, high, 4, a, i, runs, n, scores, scales);
            i += 4;
        } else if (left >= 2) {
            sparq_run(type, high, 2, a, i, runs, n, scores, scales);
            i += 2;
        } else {
            sparq_run(type, high, 1, a, i, runs, n, scores, scales);
            i++;
        }
    }
}

VEC_INLINE void sparq_score(enum copy_type type, const struct score_args *a)
{
    for (int done = 0, n; done < a->n; done += n) {
        const int slot = a->slot + done, half = COPY_GROUP / 2, left = half - slot % half;
        n = type == COPY_Q4 && a->n - done > left ? left : a->n - done;
        if (type != COPY_Q4 && a->n_queries > 8 && n > COPY_GROUP)
            n = COPY_GROUP; // what several tiles of queries read again is still in the cache
        const char *runs = (const char *)a->copy + copy_offset(type, slot);
        const float *scales = type == COPY_FP16 ? a->q : a->scales + slot; // of fp16: not read
        if (type == COPY_Q4 && slot % COPY_GROUP >= half)
            sparq_queries(type, true, a, runs, n, a->scores + done, scales);
        else
            sparq_queries(type, false, a, runs, n, a->scores + done, scales);
    }
}
