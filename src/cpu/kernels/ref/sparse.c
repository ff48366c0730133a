// Kernels of the attention methods that select keys, in plain C (see struct sparse_kernels for the formulas). Sums run in
// double.
#include "cpu/kernels/sparse.h"
#include "cpu/kernels/ref/scalar.h"

static void gather(void *to, const void *from, size_t row_bytes, const int *rows, int n)
{
    for (int j = 0; j < n; j++)
        memcpy((char *)to + (size_t)j * row_bytes, (const char *)from + (size_t)rows[j] * row_bytes, row_bytes);
}

static float copy_element(enum copy_type type, const void *run, int slot)
{
    const ptrdiff_t at = copy_offset(type, slot);
    if (type == COPY_FP16)
        return fp16_to_float(((const uint16_t *)run)[slot]);
    if (type == COPY_INT8)
        return ((const int8_t *)run)[at];
    const int pair = ((const uint8_t *)run)[at];
    return (float)((slot % COPY_GROUP < COPY_GROUP / 2 ? pair & 15 : pair >> 4) - 8);
}

static void score(enum copy_type type, const struct score_args *a)
{
    for (int j = 0; j < a->n; j++)
        for (int i = 0; i < a->n_queries; i++) {
            double sum = 0;
            for (int c = 0; c < a->r; c++)
                sum += (double)a->q[(ptrdiff_t)i * a->r + c] *
                       (double)copy_element(type, (const char *)a->copy + a->components[c] * a->stride, a->slot + j);
            a->scores[i * a->ld + j] = (float)(type == COPY_FP16 ? sum : sum * (double)a->scales[a->slot + j]);
        }
}
static void score_fp16(const struct score_args *args)
{
    score(COPY_FP16, args);
}
static void score_int8(const struct score_args *args)
{
    score(COPY_INT8, args);
}
static void score_q4(const struct score_args *args)
{
    score(COPY_Q4, args);
}

static void softmax_row(const float *x, float *keep, int n, float *max, float *sum)
{
    float largest = *max;
    for (int j = 0; j < n; j++)
        largest = x[j] > largest ? x[j] : largest;
    const bool counts = largest > -INFINITY; // anything
    double total = 0;
    for (int j = 0; j < n; j++) {
        const float e = counts ? expf(x[j] - largest) : 0;
        total += (double)e;
        if (keep)
            keep[j] = e;
    }
    if (counts)
        *sum = (float)((double)*sum * exp((double)(*max - largest)) + total);
    *max = largest;
}
static void scalar_softmax_stats(const float *x, int n, float *max, float *sum)
{
    softmax_row(x, NULL, n, max, sum);
}
static void scalar_softmax_keep(float *x, int n, float *max, float *sum)
{
    softmax_row(x, x, n, max, sum);
}

static void scalar_weighted_sum(float *w, const float *x, ptrdiff_t ld, int n_rows, int n, const float *factor)
{
    for (int j = 0; j < n; j++) {
        double sum = 0;
        for (int i = 0; i < n_rows; i++)
            sum += (double)factor[i] * (double)x[i * ld + j];
        w[j] = (float)sum;
    }
}

static float scalar_sum_at(const float *x, const int *indices, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++)
        sum += (double)x[indices[j]];
    return (float)sum;
}

static int scalar_collect(int *indices, float *values, const float *x, int first, int last, float least)
{
    int n = 0;
    for (int j = first; j < last; j++)
        if (x[j] >= least) {
            indices[n] = j;
            values[n++] = x[j];
        }
    return n;
}

static int scalar_keep(int *indices, float *values, int n, float least)
{
    int kept = 0;
    for (int j = 0; j < n; j++)
        if (values[j] >= least) {
            indices[kept] = indices[j];
            values[kept++] = values[j];
        }
    return kept;
}

static void scalar_range(const float *x, int n, float *least, float *largest)
{
    *least = INFINITY;
    *largest = -INFINITY;
    for (int j = 0; j < n; j++) {
        *least = x[j] < *least ? x[j] : *least;
        *largest = x[j] > *largest ? x[j] : *largest;
    }
}

static int scalar_count_from(const float *x, int n, float least)
{
    int count = 0;
    for (int j = 0; j < n; j++)
        count += x[j] >= least;
    return count;
}

static void scalar_add_exactly(double *sum, const float *x, int n, double sign)
{
    for (int i = 0; i < n; i++)
        sum[i] += (double)rintf(x[i] * 0x1p24f) * (sign * 0x1p-24);
}

const struct sparse_kernels sparse_kernels_scalar = {
    .gather = gather,
    .score = {[COPY_FP16] = score_fp16, [COPY_INT8] = score_int8, [COPY_Q4] = score_q4},
    .softmax_stats = scalar_softmax_stats,
    .softmax_keep = scalar_softmax_keep,
    .weighted_sum = scalar_weighted_sum,
    .sum_at = scalar_sum_at,
    .collect = scalar_collect,
    .keep = scalar_keep,
    .range = scalar_range,
    .count_from = scalar_count_from,
    .add_exactly = scalar_add_exactly,
};
