// Where integers of few bits lie: what of them does not depend on the processor. Included by the quant_*.h of each width.
#pragma once
#include "cpu/kernels/vec/common.h"
#include "model/quant_values.h"

// Bytes of a group in a row's first plane, and in the second.
VEC_INLINE ptrdiff_t low_bytes(enum dtype type)
{
    return (ptrdiff_t)dtype_low_bytes(type);
}
VEC_INLINE ptrdiff_t high_bytes(enum dtype type)
{
    return (ptrdiff_t)dtype_group_bytes[type] - low_bytes(type);
}

// Where a group lies in both planes of its row.
struct quants_at {
    const uint8_t *low, *high;
};
VEC_INLINE struct quants_at groups_on(enum dtype type, struct quants_at at, ptrdiff_t groups)
{
    return (struct quants_at){at.low + groups * low_bytes(type), at.high + groups * high_bytes(type)};
}
