// The kernels for AVX-512 (F, BW, DQ, VL): the element-wise ones, and the table. The products are in matvec.c and
// matmul.c, attention in attend.c; all are written once for both vector widths, in vec/*.h.
#include "cpu/kernels/avx512/kernels.h"
#include "cpu/kernels/sparse.h"
#include "cpu/kernels/vec/attend.h"
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/elementwise.h"
#include "cpu/kernels/vec/matmul.h"
#include "cpu/kernels/vec/matvec.h"

static void avx512_fp32_to_fp32(float *y, const void *x, int n)
{
    to_fp32(DTYPE_FP32, y, x, n);
}
static void avx512_fp16_to_fp32(float *y, const void *x, int n)
{
    to_fp32(DTYPE_FP16, y, x, n);
}
static void avx512_bf16_to_fp32(float *y, const void *x, int n)
{
    to_fp32(DTYPE_BF16, y, x, n);
}
static void avx512_fp8_to_fp32(float *y, const void *x, int n)
{
    to_fp32(DTYPE_FP8, y, x, n);
}
static void avx512_fp8_e5m2_to_fp32(float *y, const void *x, int n)
{
    to_fp32(DTYPE_FP8_E5M2, y, x, n);
}

// VNNI changes the quantised products alone, AMX those of many tokens (half_kernels_select()).
#define TABLE(isa, quants)                                                                                                     \
    {                                                                                                                          \
        .name = #isa,                                                                                                          \
        .matvec =                                                                                                              \
            {[DTYPE_FP32] = avx512_matvec_fp32, [DTYPE_FP16] = avx512_matvec_fp16,         [DTYPE_BF16] = avx512_matvec_bf16,  \
             [DTYPE_FP8] = avx512_matvec_fp8,   [DTYPE_FP8_E5M2] = avx512_matvec_fp8_e5m2, [DTYPE_BF12] = avx512_matvec_bf12}, \
        .unpack_bf12 = avx512_unpack_bf12, .matvec_max = MATVEC_MAX, .packed_size = avx512_packed_size,                        \
        .pack_tokens = avx512_pack_tokens,                                                                                     \
        .matmul = {[DTYPE_FP32] = avx512_matmul_fp32,                                                                          \
                   [DTYPE_FP16] = avx512_matmul_fp16,                                                                          \
                   [DTYPE_BF16] = avx512_matmul_bf16,                                                                          \
                   [DTYPE_FP8] = avx512_matmul_fp8,                                                                            \
                   [DTYPE_FP8_E5M2] = avx512_matmul_fp8_e5m2},                                                                 \
        .matmul_scratch = MATMUL_SCRATCH, .quant = &quant_kernels_##quants, .quant8 = &quant8_kernels_##quants,                \
        .nomad = &nomad_kernels_avx512,                                                                                        \
        .attend = {[KV_FP16] = avx512_attend_fp16, [KV_FP32] = avx512_attend_fp32, [KV_INT8] = avx512_attend_int8},            \
        .attend_scratch = ATTEND_SCRATCH, .sparse = &sparse_kernels_avx512, .rmsnorm = rmsnorm, .rope = rope,                  \
        .silu_multiply = silu_multiply, .add = add, .add_scaled = add_scaled,                                                  \
        .to_fp32 = {[DTYPE_FP32] = avx512_fp32_to_fp32,                                                                        \
                    [DTYPE_FP16] = avx512_fp16_to_fp32,                                                                        \
                    [DTYPE_BF16] = avx512_bf16_to_fp32,                                                                        \
                    [DTYPE_FP8] = avx512_fp8_to_fp32,                                                                          \
                    [DTYPE_FP8_E5M2] = avx512_fp8_e5m2_to_fp32},                                                               \
        .to_fp16 = to_fp16, .to_int8 = to_int8, .log_sum_exp = log_sum_exp, .read_streams = read_streams,                      \
        .fma_loop = fma_loop,                                                                                                  \
    }

const struct cpu_kernels cpu_kernels_avx512 = TABLE(avx512, avx512);
const struct cpu_kernels cpu_kernels_avx512vnni = TABLE(avx512vnni, avx512vnni);
const struct cpu_kernels cpu_kernels_amx = TABLE(amx, avx512vnni);
