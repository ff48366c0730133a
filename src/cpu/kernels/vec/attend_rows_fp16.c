// Attention to given rows of an fp16 cache.
#include "cpu/kernels/vec/attend_dense.h"
#include "cpu/kernels/vec/parts.h"

ATTEND_ROWS_PART(KV_FP16, rows)

void ISA(attend_rows_fp16)(const struct attend_args *args, const int *rows)
{
    attend_rows_part(args, rows);
}
