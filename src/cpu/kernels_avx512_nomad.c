// NoMAD's kernels with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels_avx512.h"
#include "cpu/vec_codes_avx2.h"
#include "cpu/vec_nomad_avx512.h"
#include "cpu/vec_nomad_values.h"

static void avx512_encode(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    nomad_encode_any(codes, key, book);
}
static void avx512_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    nomad_table(table, q, book, scratch);
}
static void avx512_scores(const struct nomad_score_args *args)
{
    nomad_scores(args);
}
static void avx512_code_scores(const struct code_score_args *args)
{
    code_scores(args);
}
static void avx512_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    nomad_decode(y, block, book);
}
void avx512_nomad_values_fp16(const struct nomad_value_args *args)
{
    nomad_values(KV_FP16, args);
}
void avx512_nomad_values_fp32(const struct nomad_value_args *args)
{
    nomad_values(KV_FP32, args);
}
void avx512_nomad_values_int8(const struct nomad_value_args *args)
{
    nomad_values(KV_INT8, args);
}

const struct nomad_kernels nomad_kernels_avx512 = {
    .name = "avx512",
    .encode = avx512_encode,
    .table = avx512_table,
    .scores = avx512_scores,
    .code_scores = avx512_code_scores,
    .decode = avx512_decode,
    .values =
        {[KV_FP16] = avx512_nomad_values_fp16, [KV_FP32] = avx512_nomad_values_fp32, [KV_INT8] = avx512_nomad_values_int8},
};
