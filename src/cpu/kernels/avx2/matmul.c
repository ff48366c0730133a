// Prefill's products with AVX2, FMA and F16C.
#include "cpu/kernels/vec/matmul.h"
#include "cpu/kernels/avx2/kernels.h"

size_t avx2_packed_size(int n, int cols)
{
    return packed_size(n, cols);
}

void avx2_pack_tokens(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    pack_tokens(packed, x, ldx, n, cols, first_col, last_col);
}

void avx2_matmul_fp32(const struct matmul_args *args)
{
    matmul(DTYPE_FP32, args);
}
void avx2_matmul_fp16(const struct matmul_args *args)
{
    matmul(DTYPE_FP16, args);
}
void avx2_matmul_bf16(const struct matmul_args *args)
{
    matmul(DTYPE_BF16, args);
}
void avx2_matmul_fp8(const struct matmul_args *args)
{
    matmul(DTYPE_FP8, args);
}
void avx2_matmul_fp8_e5m2(const struct matmul_args *args)
{
    matmul(DTYPE_FP8_E5M2, args);
}
