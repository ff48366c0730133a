// Attention with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels/vec/attend.h"
#include "cpu/kernels/avx512/kernels.h"
#include "cpu/kernels/vec/attend_many.h"

void avx512_attend_fp16(const struct attend_args *args)
{
    attend(KV_FP16, args);
}
void avx512_attend_fp32(const struct attend_args *args)
{
    attend(KV_FP32, args);
}
void avx512_attend_int8(const struct attend_args *args)
{
    attend(KV_INT8, args);
}
