// Products of quantised matrices with AVX-512 (F, BW, DQ, VL) and VNNI: tokens as 8-bit integers.
#include "cpu/kernels/vec/quant_int8.h"

#include "cpu/kernels/vec/quant_many.h"
#include "cpu/kernels/vnni/digits.h"

#include "cpu/kernels/vec/quant_table.h"

QUANT_KERNELS(PRODUCT, digits, digits)

const struct quant_kernels quant8_kernels_avx512vnni = {
    .few = QUANT_FORM(few),
    .some = QUANT_FORM(digits),
    .many = QUANT_FORM(many),
    .scratch = QUANT_SCRATCH,
    .dot_loop = dot_loop,
};
