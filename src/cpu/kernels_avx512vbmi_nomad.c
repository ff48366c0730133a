// NoMAD's kernels with AVX-512 (F, BW, DQ, VL), VNNI and VBMI.
#include "cpu/kernels_avx512.h"
#include "cpu/vec_codes_vbmi.h"
#include "cpu/vec_nomad_avx512.h"

static void avx512vbmi_encode(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    nomad_encode_any(codes, key, book);
}
static void avx512vbmi_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    nomad_table(table, q, book, scratch);
}
static void avx512vbmi_scores(const struct nomad_score_args *args)
{
    nomad_scores(args);
}
static void avx512vbmi_code_scores(const struct code_score_args *args)
{
    code_scores(args);
}
static void avx512vbmi_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    nomad_decode(y, block, book);
}

const struct nomad_kernels nomad_kernels_avx512vbmi = {
    .name = "avx512vbmi",
    .encode = avx512vbmi_encode,
    .table = avx512vbmi_table,
    .scores = avx512vbmi_scores,
    .code_scores = avx512vbmi_code_scores,
    .decode = avx512vbmi_decode,
    .values =
        {[KV_FP16] = avx512_nomad_values_fp16, [KV_FP32] = avx512_nomad_values_fp32, [KV_INT8] = avx512_nomad_values_int8},
};
