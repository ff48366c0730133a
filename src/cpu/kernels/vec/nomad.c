// NoMAD's kernels.
#include "cpu/kernels/vec/nomad_values.h"
#include "cpu/kernels/vec/parts.h"
#ifdef __AVX512F__
#include "cpu/kernels/vec/codes_avx2.h"
#include "cpu/kernels/vec/nomad_avx512.h"
#elif defined __AVX2__
#include "cpu/kernels/vec/codes_avx2.h"
#include "cpu/kernels/vec/nomad_avx2.h"
#else
#include "cpu/kernels/vec/nomad_neon.h"
#endif

void ISA(nomad_values_fp16)(const struct nomad_value_args *args)
{
    nomad_values(KV_FP16, args);
}
void ISA(nomad_values_fp32)(const struct nomad_value_args *args)
{
    nomad_values(KV_FP32, args);
}
void ISA(nomad_values_int8)(const struct nomad_value_args *args)
{
    nomad_values(KV_INT8, args);
}

const struct nomad_kernels ISA(nomad_kernels) = {
    .name = ISA_NAME,
    .encode = nomad_encode_any,
    .table = nomad_table,
    .scores = nomad_scores,
    .code_scores = code_scores,
    .decode = nomad_decode,
    .values = {[KV_FP16] = ISA(nomad_values_fp16), [KV_FP32] = ISA(nomad_values_fp32), [KV_INT8] = ISA(nomad_values_int8)},
};
