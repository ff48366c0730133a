// What the sources of an instruction set give each other, and the table (table.c). Each is compiled once for every instruction
// set in the Makefile's VECTOR_ISAS (the quantised products also for QUANT_ISAS), and its names end in that set's.
#pragma once
#include "cpu/kernels/kernels.h"

#ifdef __AVX512F__
#define ISA(name) name##_avx512
#define ISA_NAME  "avx512"
#elif defined __AVXVNNI__
#define ISA(name) name##_avxvnni
#define ISA_NAME  "avxvnni"
#elif defined __AVX2__
#define ISA(name) name##_avx2
#define ISA_NAME  "avx2"
#elif defined __ARM_FEATURE_MATMUL_INT8
#define ISA(name) name##_neoni8mm
#define ISA_NAME  "neoni8mm"
#elif defined __ARM_FEATURE_DOTPROD
#define ISA(name) name##_neondot
#define ISA_NAME  "neondot"
#else
#define ISA(name) name##_neon
#define ISA_NAME  "neon"
#endif

matvec_function ISA(matvec_fp32), ISA(matvec_fp16), ISA(matvec_bf16), ISA(matvec_fp8), ISA(matvec_fp8_e5m2), ISA(matvec_bf12);
unpack_function ISA(unpack_bf12);
packed_size_function ISA(packed_size);
pack_function ISA(pack_tokens);
product_function ISA(matmul_fp32), ISA(matmul_fp16), ISA(matmul_bf16), ISA(matmul_fp8), ISA(matmul_fp8_e5m2);
attend_function ISA(attend_fp16), ISA(attend_fp32), ISA(attend_int8);
nomad_values_function ISA(nomad_values_fp16), ISA(nomad_values_fp32), ISA(nomad_values_int8);
