// Decode's products.
#include "cpu/kernels/vec/matvec.h"
#include "cpu/kernels/floats.h"
#include "cpu/kernels/vec/parts.h"

#define MATVEC(TYPE, type, ...)                                                                                                \
    void ISA(matvec_##type)(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,     \
                            ptrdiff_t ldx, int n, bool to_l2)                                                                  \
    {                                                                                                                          \
        matvec(DTYPE_##TYPE, y, ldy, w, first_row, last_row, cols, x, ldx, n, to_l2);                                          \
    }
FLOAT_TYPES(MATVEC, )
