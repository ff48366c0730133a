// Products of quantised matrices in plain C, and the readable statement of what the others compute. A token's block of 128
// values is quantised to 16-bit integers q = round(x / scale), scale = max |x| / 32512. The products of a group of 32 with the
// weights' quants are summed in integers, exactly, then multiplied by both scales. Tokens as 8-bit integers have a scale = max
// |x| / 127 for each 32 values. Where a group has a minimum, it meets the sum of the token's integers.
#include "model/quant.h"
#include "cpu/kernels/ref/scalar.h"

struct form {
    int block;  // columns with one scale
    float most; // of the integers
};
static const struct form int16_form = {QUANT_BLOCK, 32512}, int8_form = {QUANT_GROUP, 127};

// A token: integers, whole blocks, then the blocks' scales.
static size_t token_blocks(const struct form *form, int cols)
{
    return ((size_t)cols + (size_t)form->block - 1) / (size_t)form->block;
}

static size_t token_bytes(const struct form *form, int cols)
{
    return token_blocks(form, cols) * ((size_t)form->block * sizeof(int16_t) + sizeof(float));
}

static float *token_scales(const struct form *form, const char *token, int cols)
{
    return (float *)(token + token_blocks(form, cols) * (size_t)form->block * sizeof(int16_t));
}

static float quantise_block(const struct form *form, int16_t *to, const float *x, int n)
{
    uint32_t most_bits = 0; // as bits: a NaN is larger than any number
    for (int i = 0; i < n && i < form->block; i++) {
        const uint32_t magnitude = float_to_bits(x[i]) & 0x7fffffff;
        most_bits = magnitude > most_bits ? magnitude : most_bits;
    }
    const float most = bits_to_float(most_bits), inverse = most > 1e-30f ? form->most / most : 0;
    for (int i = 0; i < form->block; i++) {
        const float q = i < n ? nearbyintf(x[i] * inverse) : 0;
        to[i] = fabsf(q) <= form->most ? (int16_t)q : 0; // where it is not a number: the scale is none either
    }
    return most / form->most;
}

static void quantise(const struct form *form, void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col,
                     int last_col)
{
    for (int t = 0; t < n; t++) {
        char *token = (char *)to + (size_t)t * token_bytes(form, cols);
        for (int c = first_col; c < last_col; c += form->block)
            token_scales(form, token, cols)[c / form->block] =
                quantise_block(form, (int16_t *)token + c, x + t * ldx + c, cols - c);
    }
}

// A group's product with a token's integers, without the token's scale.
static double group_product(const struct quant_group *group, const int16_t *x)
{
    double sum = 0;
    for (int half = 0; half < 2; half++) {
        int32_t dot = 0, all = 0;
        for (int i = half * QUANT_GROUP / 2; i < (half + 1) * QUANT_GROUP / 2; i++) {
            dot += group->quants[i] * x[i];
            all += x[i];
        }
        sum += (double)group->scale[half] * (dot + group->centre * all) + (double)group->minimum[half] * all;
    }
    return sum;
}

// Tokens whose products with a row are summed together.
enum { TOKENS = 8 };

static void row_product(const struct form *form, const struct product_args *a, int row, int first_token, int tokens)
{
    const size_t groups = quant_groups(a->cols), bytes = token_bytes(form, a->cols);
    const char *x = (const char *)a->x + (size_t)first_token * bytes;
    double sum[TOKENS] = {0};
    for (size_t g = 0; g < groups; g++) {
        struct quant_group group;
        quant_read_group(&group, a->type, a->w, a->rows, groups, row, g);
        for (int t = 0; t < tokens; t++) {
            const char *token = x + (size_t)t * bytes;
            const float scale = token_scales(form, token, a->cols)[g * QUANT_GROUP / (size_t)form->block];
            sum[t] += group_product(&group, (const int16_t *)token + g * QUANT_GROUP) * (double)scale;
        }
    }
    for (int t = 0; t < tokens; t++)
        a->y[(first_token + t) * a->ldy + (row - a->first_row)] = (float)sum[t];
}

static void product(const struct form *form, const struct product_args *a)
{
    for (int r = a->first_row; r < a->last_row; r++)
        for (int t = 0; t < a->n; t += TOKENS)
            row_product(form, a, r, t, a->n - t < TOKENS ? a->n - t : TOKENS);
}

#define FORM(form)                                                                                                             \
    static size_t form##_size(int n, int cols)                                                                                 \
    {                                                                                                                          \
        return (size_t)n * token_bytes(&form##_form, cols);                                                                    \
    }                                                                                                                          \
    static void form##_quantise(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)         \
    {                                                                                                                          \
        quantise(&form##_form, to, x, ldx, n, cols, first_col, last_col);                                                      \
    }                                                                                                                          \
    static void form##_product(const struct product_args *args)                                                                \
    {                                                                                                                          \
        product(&form##_form, args);                                                                                           \
    }
#define PRODUCT_ENTRY(TYPE, type, form) [DTYPE_##TYPE] = form##_product,
#define QUANT_FORM(form)                                                                                                       \
    {                                                                                                                          \
        .size = form##_size, .quantise = form##_quantise, .product = {QUANT_TYPES(PRODUCT_ENTRY, form)},                       \
    }

FORM(int16)
FORM(int8)

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
    .few = QUANT_FORM(int16), .many = QUANT_FORM(int16), .scratch = 0, .dot_loop = scalar_dot_loop};
const struct quant_kernels quant8_kernels_scalar = {
    .few = QUANT_FORM(int8), .many = QUANT_FORM(int8), .scratch = 0, .dot_loop = scalar_dot_loop};
