// Prefill's products, in float32.
#include "cpu/kernels/vec/matmul.h"
#include "cpu/kernels/vec/parts.h"

size_t ISA(packed_size)(int n, int cols)
{
    return packed_size(n, cols);
}

void ISA(pack_tokens)(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    pack_tokens(packed, x, ldx, n, cols, first_col, last_col);
}

void ISA(matmul_fp32)(const struct product_args *args)
{
    matmul(DTYPE_FP32, args);
}
void ISA(matmul_fp16)(const struct product_args *args)
{
    matmul(DTYPE_FP16, args);
}
void ISA(matmul_bf16)(const struct product_args *args)
{
    matmul(DTYPE_BF16, args);
}
void ISA(matmul_fp8)(const struct product_args *args)
{
    matmul(DTYPE_FP8, args);
}
void ISA(matmul_fp8_e5m2)(const struct product_args *args)
{
    matmul(DTYPE_FP8_E5M2, args);
}
