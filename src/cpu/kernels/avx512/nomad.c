// NoMAD's kernels with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels/avx512/kernels.h"
#include "cpu/kernels/vec/codes_avx2.h"
#include "cpu/kernels/vec/nomad_avx512.h"
#include "cpu/kernels/vec/nomad_values.h"

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
    .encode = nomad_encode_any,
    .table = nomad_table,
    .scores = nomad_scores,
    .code_scores = code_scores,
    .decode = nomad_decode,
    .values =
        {[KV_FP16] = avx512_nomad_values_fp16, [KV_FP32] = avx512_nomad_values_fp32, [KV_INT8] = avx512_nomad_values_int8},
};
