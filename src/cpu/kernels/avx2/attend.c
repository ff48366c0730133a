// Attention with AVX2, FMA and F16C.
#include "cpu/kernels/vec/attend.h"
#include "cpu/kernels/avx2/kernels.h"
#include "cpu/kernels/vec/attend_many.h"

void avx2_attend_fp16(const struct attend_args *args)
{
    attend(KV_FP16, args);
}
void avx2_attend_fp32(const struct attend_args *args)
{
    attend(KV_FP32, args);
}
void avx2_attend_int8(const struct attend_args *args)
{
    attend(KV_INT8, args);
}
