// Prefill's products, in float32.
#include "cpu/kernels/vec/matmul.h"
#include "cpu/kernels/floats.h"
#include "cpu/kernels/vec/parts.h"

size_t ISA(packed_size)(int n, int cols)
{
    return packed_size(n, cols);
}

void ISA(pack_tokens)(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    pack_tokens(packed, x, ldx, n, cols, first_col, last_col);
}

#define MATMUL(TYPE, type, ...)                                                                                                \
    void ISA(matmul_##type)(const struct product_args *args)                                                                   \
    {                                                                                                                          \
        matmul(DTYPE_##TYPE, args);                                                                                            \
    }
FLOAT_TYPES(MATMUL, )
