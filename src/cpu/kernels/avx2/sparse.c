// Kernels of the attention methods that select keys, with AVX2, FMA and F16C.
#include "cpu/kernels/vec/sparse.h"

const struct sparse_kernels sparse_kernels_avx2 = SPARSE_KERNELS;
