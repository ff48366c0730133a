// Kernels of the attention methods that select keys, with AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels/vec/sparse.h"

const struct sparse_kernels sparse_kernels_avx512 = SPARSE_KERNELS;
