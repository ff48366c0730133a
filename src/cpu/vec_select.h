// What selection needs, for either vector width; included by kernels_<isa>_sparse.c. See struct sparse_kernels.
#pragma once
#include <math.h>

#include "cpu/sparse.h"
#include "cpu/vec_math.h"

VEC_INLINE void softmax_stats(const float *x, int n, float *max, float *sum)
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
    if (!(largest > -INFINITY))
        return; // nothing that counts
    const vec base = vec_set(largest);
    for (j = 0; j + 4 * VEC <= n; j += 4 * VEC)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            total[i] = vec_add(total[i], vec_exp(vec_sub(vec_load(x + j + i * VEC), base)));
    for (; j < n; j += VEC) {
        const int live = n - j < VEC ? n - j : VEC;
        const vec e = vec_exp(vec_sub(vec_load_part(x + j, live), base));
        total[0] = vec_add(total[0], vec_between(e, vec_zero(), 0, live));
    }
    *sum = *sum * vec_first(vec_exp(vec_set(*max - largest))) +
           vec_total(vec_add(vec_add(total[0], total[1]), vec_add(total[2], total[3])));
    *max = largest;
}

VEC_INLINE void softmax_sums(float *w, const float *x, ptrdiff_t ld, int n_rows, int n, const float *max, const float *factor)
{
    for (int j = 0; j < n; j += 2 * VEC) {
        vec sum[2] = {vec_zero(), vec_zero()};
        const int live = n - j < 2 * VEC ? n - j : 2 * VEC, second = live > VEC ? live - VEC : 0;
        for (int i = 0; i < n_rows; i++) {
            const float *row = x + i * ld + j;
            const vec a = live == 2 * VEC ? vec_load(row) : vec_load_part(row, live < VEC ? live : VEC);
            const vec b = live == 2 * VEC ? vec_load(row + VEC) : second ? vec_load_part(row + VEC, second) : a;
            const vec base = vec_set(max[i]), by = vec_set(factor[i]);
            sum[0] = vec_fma(vec_exp(vec_sub(a, base)), by, sum[0]);
            sum[1] = vec_fma(vec_exp(vec_sub(b, base)), by, sum[1]);
        }
        vec_store_part(w + j, sum[0], live < VEC ? live : VEC);
        if (second)
            vec_store_part(w + j + VEC, sum[1], second);
    }
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

VEC_INLINE int count_from(const float *x, int n, float least)
{
    int count = 0, j = 0;
    for (; j + VEC <= n; j += VEC)
        count += vec_count_from(vec_load(x + j), least);
    for (; j < n; j++)
        count += x[j] >= least;
    return count;
}

VEC_INLINE float sum_from(const float *x, int n, float least)
{
    vec sum = vec_zero();
    for (int j = 0; j < n; j += VEC)
        sum = vec_add(sum, vec_keep_from(n - j < VEC ? vec_load_part(x + j, n - j) : vec_load(x + j), least));
    return vec_total(sum);
}

VEC_INLINE void add_exactly(double *sum, const float *x, int n, double sign)
{
    for (int i = 0; i < n; i++)
        sum[i] += (double)rintf(x[i] * 0x1p24f) * (sign * 0x1p-24);
}
