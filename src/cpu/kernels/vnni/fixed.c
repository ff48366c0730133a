// Products of many tokens with fp16, bf16 and fp8 matrices in 16-bit integers, with AVX-512 (F, BW, DQ, VL) and VNNI.
#include "cpu/kernels/vnni/fixed.h"

#include "cpu/kernels/vec/quant_many.h"

#include "cpu/kernels/vnni/fixed_short.h"

static size_t fixed_size(int n, int cols) // of up to so many
{
    const size_t many = many_size(n, cols), few = short_size(n < SHORT_TOKENS ? n : SHORT_TOKENS, cols);
    return many > few ? many : few;
}

static void fixed_pack(void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    if (n <= SHORT_TOKENS)
        short_pack(packed, x, ldx, n, cols, first_col, last_col);
    else
        many_quantise(packed, x, ldx, n, cols, first_col, last_col);
}

VEC_INLINE void fixed(enum dtype type, const struct matmul_args *m)
{
    const struct quant_args a = {
        .y = m->y,
        .ldy = m->ldy,
        .w = m->w,
        .rows = m->rows,
        .cols = m->cols,
        .first_row = m->first_row,
        .last_row = m->last_row,
        .x = m->packed,
        .n = m->n,
        .scratch = m->scratch,
    };
    if (m->n > SHORT_TOKENS)
        many(type, &a);
    else if (m->first_row < m->last_row)
        short_product(type, &a);
}
static void fixed_fp16(const struct matmul_args *args)
{
    fixed(DTYPE_FP16, args);
}
static void fixed_bf16(const struct matmul_args *args)
{
    fixed(DTYPE_BF16, args);
}
static void fixed_fp8(const struct matmul_args *args)
{
    fixed(DTYPE_FP8, args);
}
static void fixed_fp8_e5m2(const struct matmul_args *args)
{
    fixed(DTYPE_FP8_E5M2, args);
}

static double fixed_dot_loop(long rounds)
{
    return dot_loop(rounds) / 2;
}

const struct half_kernels half_kernels_avx512vnni = {
    .name = "16-bit integers",
    .size = fixed_size,
    .pack = fixed_pack,
    .product =
        {[DTYPE_FP16] = fixed_fp16, [DTYPE_BF16] = fixed_bf16, [DTYPE_FP8] = fixed_fp8, [DTYPE_FP8_E5M2] = fixed_fp8_e5m2},
    .scratch = QUANT_SCRATCH,
    .rows = MANY_ROWS,
    .least = 5,
    .fma_loop = fixed_dot_loop,
};
