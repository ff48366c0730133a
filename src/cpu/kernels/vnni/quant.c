// Products of quantised matrices with AVX-512 (F, BW, DQ, VL) and VNNI: tokens as 16-bit integers.
#include "cpu/kernels/vec/quant_int16.h"

#include "cpu/kernels/vec/quant_many.h"
#include "cpu/kernels/vnni/digits.h"

#define MORE(what) digits_or_many##what
#include "cpu/kernels/vec/quant_table.h"

const struct quant_kernels quant_kernels_avx512vnni = QUANT_TABLE;
