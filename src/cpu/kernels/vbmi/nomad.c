// NoMAD's kernels with AVX-512 (F, BW, DQ, VL), VNNI and VBMI.
#include "cpu/kernels/vbmi/codes.h"
#include "cpu/kernels/vec/nomad_avx512.h"
#include "cpu/kernels/vec/parts.h"

const struct nomad_kernels nomad_kernels_avx512vbmi = {
    .name = "avx512vbmi",
    .encode = nomad_encode_any,
    .table = nomad_table,
    .scores = nomad_scores,
    .code_scores = code_scores,
    .decode = nomad_decode,
    .values = {[KV_FP16] = ISA(nomad_values_fp16), [KV_FP32] = ISA(nomad_values_fp32), [KV_INT8] = ISA(nomad_values_int8)},
};
