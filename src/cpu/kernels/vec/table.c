// The element-wise kernels, and the table of all of an instruction set.
#include "cpu/kernels/floats.h"
#include "cpu/kernels/sparse.h"
#include "cpu/kernels/vec/attend.h"
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/delta.h"
#include "cpu/kernels/vec/elementwise.h"
#include "cpu/kernels/vec/matmul.h"
#include "cpu/kernels/vec/matvec.h"
#include "cpu/kernels/vec/parts.h"

#define TO_FLOATS(TYPE, type, ...)                                                                                             \
    static void type##_to_floats(float *y, const void *x, int n)                                                               \
    {                                                                                                                          \
        to_fp32(DTYPE_##TYPE, y, x, n);                                                                                        \
    }
FLOAT_TYPES(TO_FLOATS, )

// What the table has of each type.
#define MATVEC(TYPE, type, ...)  [DTYPE_##TYPE] = ISA(matvec_##type),
#define MATMUL(TYPE, type, ...)  [DTYPE_##TYPE] = ISA(matmul_##type),
#define TO_FP32(TYPE, type, ...) [DTYPE_##TYPE] = type##_to_floats,
#define KERNELS(isa, quants, quants8)                                                                                          \
    {                                                                                                                          \
        .name = isa, .matvec = {FLOAT_TYPES(MATVEC, )[DTYPE_BF12] = ISA(matvec_bf12)}, .unpack_bf12 = ISA(unpack_bf12),        \
        .matvec_max = MATVEC_MAX, .packed_size = ISA(packed_size), .pack_tokens = ISA(pack_tokens),                            \
        .matmul = {FLOAT_TYPES(MATMUL, )}, .matmul_scratch = MATMUL_SCRATCH, .quant = &quant_kernels_##quants,                 \
        .quant8 = &quant8_kernels_##quants8, .nomad = &ISA(nomad_kernels),                                                     \
        .attend = {[KV_FP16] = ISA(attend_fp16), [KV_FP32] = ISA(attend_fp32), [KV_INT8] = ISA(attend_int8)},                  \
        .attend_scratch = ATTEND_SCRATCH, .sparse = &ISA(sparse_kernels), .rmsnorm = rmsnorm, .layernorm = layernorm,          \
        .rope = rope,                                                                                                          \
        .activate = {[ACTIVATION_SILU] = silu_multiply,                                                                        \
                     [ACTIVATION_GELU] = gelu_multiply,                                                                        \
                     [ACTIVATION_CLAMPED] = clamped_multiply,                                                                  \
                     [ACTIVATION_GELU_ERF] = gelu_erf_multiply,                                                                \
                     [ACTIVATION_RELU2] = relu2_multiply},                                                                     \
        .softcap = softcap, .add = add, .add_scaled = add_scaled, .sigmoid_multiply = sigmoid_multiply, .convolve = convolve,  \
        .convolve_gated = convolve_gated, .delta_rule = delta_rule, .to_fp32 = {FLOAT_TYPES(TO_FP32, )}, .to_fp16 = to_fp16,   \
        .to_int8 = to_int8, .log_sum_exp = log_sum_exp, .read_streams = read_streams, .fma_loop = fma_loop,                    \
    }

#ifdef __AVX512F__
const struct cpu_kernels cpu_kernels_avx512 = KERNELS("avx512", avx512, avx512);
// VNNI changes the quantised products alone, AMX those of many tokens (matmul16_of()).
const struct cpu_kernels cpu_kernels_avx512vnni = KERNELS("avx512vnni", avx512vnni, avx512vnni);
const struct cpu_kernels cpu_kernels_amx = KERNELS("amx", avx512vnni, avx512vnni);
#elif defined __AVX2__
const struct cpu_kernels cpu_kernels_avx2 = KERNELS("avx2", avx2, avx2);
const struct cpu_kernels cpu_kernels_avxvnni = KERNELS("avxvnni", avxvnni, avxvnni); // likewise
#else
const struct cpu_kernels cpu_kernels_neon = KERNELS("neon", neon, neon);
const struct cpu_kernels cpu_kernels_neondot = KERNELS("neondot", neondot, neondot); // likewise, by dot products of bytes …
const struct cpu_kernels cpu_kernels_neoni8mm = KERNELS("neoni8mm", neondot, neoni8mm); // … and products of matrices of bytes
#endif
