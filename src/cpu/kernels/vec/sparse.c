// Kernels of the attention methods that select keys.
#include "cpu/kernels/vec/gather.h"
#include "cpu/kernels/vec/parts.h"
#include "cpu/kernels/vec/select.h"
#include "cpu/kernels/vec/sparq.h"

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

static void gather(void *to, const void *from, size_t row_bytes, const int *rows, int n)
{
    gather_rows(to, from, row_bytes, rows, n);
}

const struct sparse_kernels ISA(sparse_kernels) = {
    .gather = gather,
    .score = {[COPY_FP16] = score_fp16, [COPY_INT8] = score_int8, [COPY_Q4] = score_q4},
    .softmax_stats = softmax_stats,
    .softmax_keep = softmax_keep,
    .weighted_sum = weighted_sum,
    .sum_at = sum_at,
    .collect = collect,
    .keep = keep,
    .range = range,
    .count_from = count_from,
    .add_exactly = add_exactly,
};
