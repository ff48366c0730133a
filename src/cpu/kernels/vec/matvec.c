// Decode's products.
#include "cpu/kernels/vec/matvec.h"
#include "cpu/kernels/vec/parts.h"

void ISA(matvec_fp32)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2)
{
    matvec(DTYPE_FP32, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void ISA(matvec_fp16)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2)
{
    matvec(DTYPE_FP16, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void ISA(matvec_bf16)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2)
{
    matvec(DTYPE_BF16, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void ISA(matvec_fp8)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                     ptrdiff_t ldx, int n, bool to_l2)
{
    matvec(DTYPE_FP8, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void ISA(matvec_fp8_e5m2)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                          ptrdiff_t ldx, int n, bool to_l2)
{
    matvec(DTYPE_FP8_E5M2, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}
