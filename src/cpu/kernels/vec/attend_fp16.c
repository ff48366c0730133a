// Attention to an fp16 cache.
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/parts.h"

ATTEND_PART(KV_FP16)

void ISA(attend_fp16)(const struct attend_args *args)
{
    attend_part(args);
}
