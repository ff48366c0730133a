// What the files of this instruction set put into the table cpu_kernels_avx2.
#pragma once
#include "cpu/kernels/kernels.h"

void avx2_matvec_fp32(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2);
void avx2_matvec_fp16(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2);
void avx2_matvec_bf16(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2);
void avx2_matvec_fp8(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                     ptrdiff_t ldx, int n, bool to_l2);
void avx2_matvec_fp8_e5m2(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                          ptrdiff_t ldx, int n, bool to_l2);
void avx2_matvec_bf12(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2);
void avx2_unpack_bf12(uint16_t *to, const void *w, int first_row, int last_row, int cols);
size_t avx2_packed_size(int n, int cols);
void avx2_pack_tokens(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col);
void avx2_matmul_fp32(const struct matmul_args *args);
void avx2_matmul_fp16(const struct matmul_args *args);
void avx2_matmul_bf16(const struct matmul_args *args);
void avx2_matmul_fp8(const struct matmul_args *args);
void avx2_matmul_fp8_e5m2(const struct matmul_args *args);
void avx2_attend_fp16(const struct attend_args *args);
void avx2_attend_fp32(const struct attend_args *args);
void avx2_attend_int8(const struct attend_args *args);
void avx2_nomad_values_fp16(const struct nomad_value_args *args);
void avx2_nomad_values_fp32(const struct nomad_value_args *args);
void avx2_nomad_values_int8(const struct nomad_value_args *args);
