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

// Where a group lies in both planes of its row; of which type the row is, of those that share kernels.
struct quants_at {
    const uint8_t *low, *high;
    enum dtype type;
};
// The type whose planes are read: of grids, which share kernels but not planes, the row's own.
VEC_INLINE enum dtype planes_of(enum dtype kernels, enum dtype type)
{
    return dtype_is_grid(kernels) ? type : kernels;
}
VEC_INLINE struct quants_at groups_on(enum dtype type, struct quants_at at, ptrdiff_t groups)
{
    const enum dtype planes = planes_of(type, at.type);
    return (struct quants_at){at.low + groups * low_bytes(planes), at.high + groups * high_bytes(planes), at.type};
}
