// NoMAD's kernels with AVX2, FMA and F16C.
#include "cpu/kernels/avx2/kernels.h"
#include "cpu/kernels/vec/codes_avx2.h"
#include "cpu/kernels/vec/nomad_avx2.h"
#include "cpu/kernels/vec/nomad_values.h"

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
    .encode = nomad_encode_any,
    .table = nomad_table,
    .scores = nomad_scores,
    .code_scores = code_scores,
    .decode = nomad_decode,
    .values = {[KV_FP16] = avx2_nomad_values_fp16, [KV_FP32] = avx2_nomad_values_fp32, [KV_INT8] = avx2_nomad_values_int8},
};
