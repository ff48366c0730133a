// NoMAD's kernels with AVX2, FMA and F16C.
#include "cpu/kernels_avx2.h"
#include "cpu/vec_codes_avx2.h"
#include "cpu/vec_nomad_avx2.h"
#include "cpu/vec_nomad_values.h"

static void avx2_encode(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    nomad_encode_any(codes, key, book);
}
static void avx2_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    nomad_table(table, q, book, scratch);
}
static void avx2_scores(const struct nomad_score_args *args)
{
    nomad_scores(args);
}
static void avx2_code_scores(const struct code_score_args *args)
{
    code_scores(args);
}
static void avx2_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    nomad_decode(y, block, book);
}
void avx2_nomad_values_fp16(const struct nomad_value_args *args)
{
    nomad_values(KV_FP16, args);
}
void avx2_nomad_values_fp32(const struct nomad_value_args *args)
{
    nomad_values(KV_FP32, args);
}
void avx2_nomad_values_int8(const struct nomad_value_args *args)
{
    nomad_values(KV_INT8, args);
}

const struct nomad_kernels nomad_kernels_avx2 = {
    .name = "avx2",
    .encode = avx2_encode,
    .table = avx2_table,
    .scores = avx2_scores,
    .code_scores = avx2_code_scores,
    .decode = avx2_decode,
    .values = {[KV_FP16] = avx2_nomad_values_fp16, [KV_FP32] = avx2_nomad_values_fp32, [KV_INT8] = avx2_nomad_values_int8},
};
