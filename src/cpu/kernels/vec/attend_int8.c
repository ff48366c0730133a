// Attention to an int8 cache.
#include "cpu/kernels/vec/attend_many.h"
#include "cpu/kernels/vec/parts.h"

void ISA(attend_int8)(const struct attend_args *args)
{
    attend(KV_INT8, args);
}
