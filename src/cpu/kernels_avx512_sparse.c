// Kernels of the attention methods that select keys, with AVX-512 (F, BW, DQ, VL).
#include "cpu/vec_attend_dense.h"
#include "cpu/vec_select.h"
#include "cpu/vec_sparq.h"

static void attend_rows_fp16(const struct attend_args *args, const int *rows)
{
    attend_rows(KV_FP16, args, rows);
}
static void attend_rows_fp32(const struct attend_args *args, const int *rows)
{
    attend_rows(KV_FP32, args, rows);
}
static void attend_rows_int8(const struct attend_args *args, const int *rows)
{
    attend_rows(KV_INT8, args, rows);
}
static void score_fp16(const struct score_args *args)
{
    sparq_score(COPY_FP16, args);
}
static void score_int8(const struct score_args *args)
{
    sparq_score(COPY_INT8, args);
}
static void score_q4(const struct score_args *args)
{
    sparq_score(COPY_Q4, args);
}
static void avx512_softmax_stats(const float *x, int n, float *max, float *sum)
{
    softmax_stats(x, n, max, sum);
}
static void avx512_softmax_keep(float *x, int n, float *max, float *sum)
{
    softmax_keep(x, n, max, sum);
}
static void avx512_weighted_sum(float *w, const float *x, ptrdiff_t ld, int n_rows, int n, const float *factor)
{
    weighted_sum(w, x, ld, n_rows, n, factor);
}
static float avx512_sum_at(const float *x, const int *indices, int n)
{
    return sum_at(x, indices, n);
}
static int avx512_collect(int *indices, float *values, const float *x, int first, int last, float least)
{
    return collect(indices, values, x, first, last, least);
}
static int avx512_keep(int *indices, float *values, int n, float least)
{
    return keep(indices, values, n, least);
}
static void avx512_range(const float *x, int n, float *least, float *largest)
{
    range(x, n, least, largest);
}
static int avx512_count_from(const float *x, int n, float least)
{
    return count_from(x, n, least);
}
static float avx512_sum_from(const float *x, int n, float least)
{
    return sum_from(x, n, least);
}
static void avx512_add_exactly(double *sum, const float *x, int n, double sign)
{
    add_exactly(sum, x, n, sign);
}

const struct sparse_kernels sparse_kernels_avx512 = {
    .attend_rows = {[KV_FP16] = attend_rows_fp16, [KV_FP32] = attend_rows_fp32, [KV_INT8] = attend_rows_int8},
    .score = {[COPY_FP16] = score_fp16, [COPY_INT8] = score_int8, [COPY_Q4] = score_q4},
    .softmax_stats = avx512_softmax_stats,
    .softmax_keep = avx512_softmax_keep,
    .weighted_sum = avx512_weighted_sum,
    .sum_at = avx512_sum_at,
    .collect = avx512_collect,
    .keep = avx512_keep,
    .range = avx512_range,
    .count_from = avx512_count_from,
    .sum_from = avx512_sum_from,
    .add_exactly = avx512_add_exactly,
};
