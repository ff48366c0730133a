// The kernels of the attention methods that select keys, for either vector width: what sparse.c make their tables of.
#pragma once
#include "cpu/kernels/vec/attend_dense.h"
#include "cpu/kernels/vec/select.h"
#include "cpu/kernels/vec/sparq.h"

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

#define SPARSE_KERNELS                                                                                                         \
    {                                                                                                                          \
        .attend_rows = {[KV_FP16] = attend_rows_fp16, [KV_FP32] = attend_rows_fp32, [KV_INT8] = attend_rows_int8},             \
        .score = {[COPY_FP16] = score_fp16, [COPY_INT8] = score_int8, [COPY_Q4] = score_q4}, .softmax_stats = softmax_stats,   \
        .softmax_keep = softmax_keep, .weighted_sum = weighted_sum, .sum_at = sum_at, .collect = collect, .keep = keep,        \
        .range = range, .count_from = count_from, .sum_from = sum_from, .add_exactly = add_exactly,                            \
    }
