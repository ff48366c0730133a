// Products with bf12 weights, with AVX2 and FMA.
#include "cpu/kernels/vec/bf12.h"
#include "cpu/kernels/avx2/kernels.h"

void avx2_matvec_bf12(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                      ptrdiff_t ldx, int n, bool to_l2)
{
    bf12_matvec(y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void avx2_unpack_bf12(uint16_t *to, const void *w, int first_row, int last_row, int cols)
{
    bf12_unpack(to, w, first_row, last_row, cols);
}
