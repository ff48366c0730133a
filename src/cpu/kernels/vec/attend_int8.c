// Attention to an int8 cache.
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/parts.h"

ATTEND_PART(KV_INT8)

void ISA(attend_int8)(const struct attend_args *args)
{
    attend_part(args);
}
