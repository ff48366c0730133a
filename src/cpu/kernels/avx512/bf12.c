// Products with bf12 weights, with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels/vec/bf12.h"
#include "cpu/kernels/avx512/kernels.h"

void avx512_matvec_bf12(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                        ptrdiff_t ldx, int n, bool to_l2)
{
    bf12_matvec(y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);
}

void avx512_unpack_bf12(uint16_t *to, const void *w, int first_row, int last_row, int cols)
{
    bf12_unpack(to, w, first_row, last_row, cols);
}
