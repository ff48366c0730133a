// Products of quantised matrices in plain C, and the readable statement of what the others compute. A token's block of 128 values is
// quantised to 16-bit integers q = round(x / scale), scale = max |x| / 32512; the products of a group of 32 with the weights' quants are
// summed in integers, exactly, and then scaled by both scales.
#include "cpu/kernels_scalar.h"

static const float quant_most = 32512;

// A token: integers, (blocks * 128), then the blocks' scales.
static size_t token_blocks(int cols)
{
    return ((size_t)cols + QUANT_BLOCK - 1) / QUANT_BLOCK;
}

static size_t token_bytes(int cols)
{
    return token_blocks(cols) * (QUANT_BLOCK * sizeof(int16_t) + sizeof(float));
}

static float *token_scales(const char *token, int cols)
{
    return (float *)(token + token_blocks(cols) * QUANT_BLOCK * sizeof(int16_t));
}

static size_t scalar_quantised_size(int n, int cols)
{
    return (size_t)n * token_bytes(cols);
}

static float quantise_block(int16_t *to, const float *x, int n)
{
    uint32_t most_bits = 0; // as bits: a NaN is larger than any number
    for (int i = 0; i < n; i++) {
        const uint32_t magnitude = float_to_bits(x[i]) & 0x7fffffff;
        most_bits = magnitude > most_bits ? magnitude : most_bits;
    }
    const float most = bits_to_float(most_bits), inverse = most > 1e-30f ? quant_most / most : 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        const float q = i < n ? nearbyintf(x[i] * inverse) : 0;
        to[i] = fabsf(q) <= quant_most ? (int16_t)q : 0; // where it is not a number: the scale is none either
    }
    return most / quant_most;
}

static void scalar_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (int t = 0; t < n; t++) {
        char *token = (char *)to + (size_t)t * token_bytes(cols);
        for (int c = first_col; c < last_col; c += QUANT_BLOCK)
            token_scales(token, cols)[c / QUANT_BLOCK] =
                quantise_block((int16_t *)token + c, x + t * ldx + c, cols - c < QUANT_BLOCK ? cols - c : QUANT_BLOCK);
    }
}

// A group's quants; returns its scale.
static float group_of(int8_t quants[QUANT_GROUP], enum dtype type, const void *w, int rows, size_t groups, int row,
                      size_t group)
{
    const size_t at = (size_t)row * groups + group;
    const uint8_t *bytes = (const uint8_t *)w + at * dtype_group_bytes[type];
    const uint16_t *scales = (const uint16_t *)((const uint8_t *)w + (size_t)rows * groups * dtype_group_bytes[type]);
    if (type == DTYPE_Q8)
        memcpy(quants, bytes, QUANT_GROUP);
    else
        for (int i = 0; i < QUANT_GROUP; i++) { // two's complement, the even columns in the low four bits
            const int bits = bytes[i / 2] >> (i % 2 * 4) & 15;
            quants[i] = (int8_t)(bits - (bits & 8) * 2);
        }
    return fp16_to_float(scales[at]);
}

void quant_row_to_fp32(float *y, enum dtype type, const void *w, int rows, int cols, int row)
{
    for (int c = 0; c < cols; c += QUANT_GROUP) {
        int8_t quants[QUANT_GROUP];
        const float scale = group_of(quants, type, w, rows, quant_groups(cols), row, (size_t)(c / QUANT_GROUP));
        for (int i = 0; i < QUANT_GROUP && c + i < cols; i++)
            y[c + i] = scale * quants[i];
    }
}

// Tokens whose products with a row are summed together.
enum { TOKENS = 8 };

static void row_product(enum dtype type, const struct quant_args *a, int row, int first_token, int tokens)
{
    const size_t groups = quant_groups(a->cols), bytes = token_bytes(a->cols);
    const char *x = (const char *)a->x + (size_t)first_token * bytes;
    double sum[TOKENS] = {0};
    for (size_t g = 0; g < groups; g++) {
        int8_t quants[QUANT_GROUP];
        const float scale = group_of(quants, type, a->w, a->rows, groups, row, g);
        for (int t = 0; t < tokens; t++) {
            const char *token = x + (size_t)t * bytes;
            const int16_t *values = (const int16_t *)token + g * QUANT_GROUP;
            int32_t dot = 0;
            for (int i = 0; i < QUANT_GROUP; i++)
                dot += quants[i] * values[i];
            sum[t] += (double)dot * (double)(scale * token_scales(token, a->cols)[g * QUANT_GROUP / QUANT_BLOCK]);
        }
    }
    for (int t = 0; t < tokens; t++)
        a->y[(first_token + t) * a->ldy + (row - a->first_row)] = (float)sum[t];
}

static void product(enum dtype type, const struct quant_args *a)
{
    for (int r = a->first_row; r < a->last_row; r++)
        for (int t = 0; t < a->n; t += TOKENS)
            row_product(type, a, r, t, a->n - t < TOKENS ? a->n - t : TOKENS);
}

static void scalar_q8(const struct quant_args *args)
{
    product(DTYPE_Q8, args);
}
static void scalar_q4(const struct quant_args *args)
{
    product(DTYPE_Q4, args);
}

static double scalar_dot_loop(long rounds)
{
    enum { LANES = 32 };
    uint32_t sum[LANES];       // they wrap
    volatile int8_t start = 3; // volatile: the compiler must not know the factor
    const int8_t factor = start;
    for (int i = 0; i < LANES; i++)
        sum[i] = (uint32_t)i;
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < LANES; i++)
            sum[i] += (uint32_t)((int8_t)sum[i] * factor);
    uint32_t all = 0;
    for (int i = 0; i < LANES; i++)
        all ^= sum[i];
    start = (int8_t)all; // used
    return 2.0 * LANES * (double)rounds;
}

const struct quant_kernels quant_kernels_scalar = {
    .size = scalar_quantised_size,
    .quantise = scalar_quantise,
    .product = {[DTYPE_Q8] = scalar_q8, [DTYPE_Q4] = scalar_q4},
    .scratch = 0,
    .dot_loop = scalar_dot_loop,
};
