// Products of many tokens with fp16, bf16 and fp8 matrices in 16-bit integers, with AVX-512 (F, BW, DQ, VL) and VNNI.
#include "cpu/kernels/vnni/fixed.h"

#include "cpu/kernels/vec/quant_many.h"

FIXED_PRODUCTS(many)

const struct matmul16 matmul16_integers = {
    .name = "16-bit integers",
    .size = many_size,
    .pack = many_quantise,
    .product = FIXED_TABLE,
    .scratch = QUANT_SCRATCH,
    .rows = MANY_ROWS,
    .fma_loop = fixed_dot_loop,
};
