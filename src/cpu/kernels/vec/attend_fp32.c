// Attention to an fp32 cache.
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/parts.h"

ATTEND_PART(KV_FP32)

void ISA(attend_fp32)(const struct attend_args *args)
{
    attend_part(args);
}
