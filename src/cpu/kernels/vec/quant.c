// Products of quantised matrices: tokens as 16-bit integers.
#include "cpu/kernels/vec/parts.h"
#include "cpu/kernels/vec/quant_int16.h"
#include "cpu/kernels/vec/quant_many.h"

#include "cpu/kernels/vec/quant_table.h"

const struct quant_kernels ISA(quant_kernels) = {
    .few = QUANT_FORM(few), .many = QUANT_FORM(many), .scratch = QUANT_SCRATCH, .dot_loop = dot_loop};
