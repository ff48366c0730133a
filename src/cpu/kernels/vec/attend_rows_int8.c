// Attention to given rows of an int8 cache.
#include "cpu/kernels/vec/attend_dense.h"
#include "cpu/kernels/vec/parts.h"

ATTEND_ROWS_PART(KV_INT8, rows)

void ISA(attend_rows_int8)(const struct attend_args *args, const int *rows)
{
    attend_rows_part(args, rows);
}
