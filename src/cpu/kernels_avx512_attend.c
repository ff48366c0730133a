// Attention with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels_avx512.h"
#include "cpu/vec_attend.h"
#include "cpu/vec_attend_many.h"

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
