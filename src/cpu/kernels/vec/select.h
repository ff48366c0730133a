// What selection needs, for either vector width; included by sparse.c. See struct sparse_kernels.
#pragma once
#include <math.h>

#include "cpu/kernels/sparse.h"
#include "cpu/kernels/vec/math.h"

// The exponentials of a row's vector at j, stored where they are wanted.
VEC_INLINE vec softmax_exp(vec x, vec base, float *keep)
{
    const vec e = vec_exp(vec_sub(x, base));
    if (keep)
        vec_store(keep, e);
    return e;
}

// keep: x or NULL, a constant where this is inlined
VEC_INLINE void softmax_row(const float *x, float *keep, int n, float *max, float *sum)
{
    vec most[4], total[4];
    for (int i = 0; i < 4; i++) {
        most[i] = vec_set(*max);
        total[i] = vec_zero();
    }
    int j = 0;
    for (; j + 4 * VEC <= n; j += 4 * VEC)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            most[i] = vec_max(vec_load(x + j + i * VEC), most[i]);
    for (; j < n; j += VEC) {
        const int live = n - j < VEC ? n - j : VEC;
        most[0] = vec_max(vec_between(vec_load_part(x + j, live), most[0], 0, live), most[0]);
    }
    const float largest = vec_largest(vec_max(vec_max(most[0], most[1]), vec_max(most[2], most[3])));
    if (!(largest > -INFINITY)) { // nothing that counts
        for (j = 0; keep && j < n; j++)
            keep[j] = 0;
        return;
    }
    const vec base = vec_set(largest);
    for (j = 0; j + 4 * VEC <= n; j += 4 * VEC)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            total[i] = vec_add(total[i], softmax_exp(vec_load(x + j + i * VEC), base, keep ? keep + j + i * VEC : NULL));
    for (; j < n; j += VEC) {
        const int live = n - j < VEC ? n - j : VEC;
        const vec e = vec_between(vec_exp(vec_sub(vec_load_part(x + j, live), base)), vec_zero(), 0, live);
        if (keep)
            vec_store_part(keep + j, e, live);
        total[0] = vec_add(total[0], e);
    }
    *sum = *sum * vec_first(vec_exp(vec_set(*max - largest))) +
           vec_total(vec_add(vec_add(total[0], total[1]), vec_add(total[2], total[3])));
    *max = largest;
}

VEC_INLINE void softmax_stats(const float *x, int n, float *max, float *sum)
{
    softmax_row(x, NULL, n, max, sum);
}

VEC_INLINE void softmax_keep(float *x, int n, float *max, float *sum)
{
    softmax_row(x, x, n, max, sum);
}

VEC_INLINE void weighted_sum(float *w, const float *x, ptrdiff_t ld, int n_rows, int n, const float *factor)
{
    int j = 0;
    for (; j + 4 * VEC <= n; j += 4 * VEC) {
        vec sum[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
        for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                sum[k] = vec_fma(vec_load(x + i * ld + j + k * VEC), vec_set(factor[i]), sum[k]);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            vec_store(w + j + k * VEC, sum[k]);
    }
    for (; j < n; j += VEC) {
        const int live = n - j < VEC ? n - j : VEC;
        vec sum = vec_zero();
        for (int i = 0; i < n_rows; i++)
            sum = vec_fma(vec_load_part(x + i * ld + j, live), vec_set(factor[i]), sum);
        vec_store_part(w + j, sum, live);
    }
}

VEC_INLINE float sum_at(const float *x, const int *indices, int n)
{
    vec sum[2] = {vec_zero(), vec_zero()};
    int j = 0;
    for (; j + 2 * VEC <= n; j += 2 * VEC) {
        sum[0] = vec_add(sum[0], vec_gather(x, indices + j));
        sum[1] = vec_add(sum[1], vec_gather(x, indices + j + VEC));
    }
    float total = vec_total(vec_add(sum[0], sum[1]));
    for (; j < n; j++)
        total += x[indices[j]];
    return total;
}

VEC_INLINE int collect(int *indices, float *values, const float *x, int first, int last, float least)
{
    int n = 0, j = first;
    for (; j + VEC <= last; j += VEC)
        n += vec_collect(indices + n, values + n, vec_load(x + j), j, least);
    for (; j < last; j++)
        if (x[j] >= least) {
            indices[n] = j;
            values[n++] = x[j];
        }
    return n;
}

VEC_INLINE int keep(int *indices, float *values, int n, float least)
{
    int kept = 0, j = 0;
    for (; j + VEC <= n; j += VEC) // what is written lies before what is still to be read
        kept += vec_keep(indices + kept, values + kept, vec_load(values + j), indices + j, least);
    for (; j < n; j++)
        if (values[j] >= least) {
            indices[kept] = indices[j];
            values[kept++] = values[j];
        }
    return kept;
}

// In this order of the operands NaN is passed over.
VEC_INLINE void range(const float *x, int n, float *least, float *largest)
{
    vec low[2] = {vec_set(INFINITY), vec_set(INFINITY)}, high[2] = {vec_set(-INFINITY), vec_set(-INFINITY)};
    int j = 0;
    for (; j + 2 * VEC <= n; j += 2 * VEC)
        for (int i = 0; i < 2; i++) {
            low[i] = vec_min(vec_load(x + j + i * VEC), low[i]);
            high[i] = vec_max(vec_load(x + j + i * VEC), high[i]);
        }
    *least = -vec_largest(vec_sub(vec_zero(), vec_min(low[0], low[1])));
    *largest = vec_largest(vec_max(high[0], high[1]));
    for (; j < n; j++) {
        *least = x[j] < *least ? x[j] : *least;
        *largest = x[j] > *largest ? x[j] : *largest;
    }
}

VEC_INLINE int count_from(const float *x, int n, float least)
{
    int count = 0, j = 0;
    for (; j + VEC <= n; j += VEC)
        count += vec_count_from(vec_load(x + j), least);
    for (; j < n; j++)
        count += x[j] >= least;
    return count;
}

VEC_INLINE void add_exactly(double *sum, const float *x, int n, double sign)
{
    for (int i = 0; i < n; i++)
        sum[i] += (double)rintf(x[i] * 0x1p24f) * (sign * 0x1p-24);
}
