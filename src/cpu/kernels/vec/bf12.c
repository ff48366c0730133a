// Products with bf12 weights.
#include "cpu/kernels/vec/bf12.h"
#include "cpu/kernels/vec/parts.h"

void ISA(matvec_bf12)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2)
{
    bf12_matvec(y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void ISA(unpack_bf12)(uint16_t *to, const void *w, int first_row, int last_row, int cols)
{
    bf12_unpack(to, w, first_row, last_row, cols);
}
