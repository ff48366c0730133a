// Attention to an fp32 cache.
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/parts.h"

void ISA(attend_fp32)(const struct attend_args *args)
{
    attend(KV_FP32, args);
}
