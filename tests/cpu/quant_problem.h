// A quantised matrix for the kernels' tests, by what docs/format.md says of its bytes, and tokens to multiply.
#pragma once
#include "cpu/plan.h"
#include "kernels_testing.h"
#include "model/quant_grids.h"
#include "model/quant_values.h"

// How tokens are quantised, by the rules that ref/quant.c states.
struct form {
    bool int8;
    int block;  // columns with one scale
    float most; // of the integers
};
static const struct form forms[] = {{false, 128, 32512}, {true, 32, 127}};

struct problem {
    enum dtype type;
    const struct form *form;
    const struct quant_kernels *quant;
    int rows, cols, groups, n;
    ptrdiff_t ldx, ldy;
    uint8_t *w; // quants, then scales, as docs/format.md has them
    float *x;   // (n, ldx)
    float *y;   // (n, ldy)
    void *quantised, *scratch;
};

static bool has_row_scale(enum dtype type)
{
    return type == DTYPE_Q4N || type == DTYPE_Q5 || type == DTYPE_Q6 || type == DTYPE_Q3 || type == DTYPE_Q2;
}
// Of eight groups, how many scales with zero points.
static int zeros_in_eight(enum dtype type)
{
    return type == DTYPE_Q4Z32 ? 8 : type == DTYPE_Q4Z64 ? 4 : type == DTYPE_Q4Z128 ? 2 : 0;
}
// The first plane has two bits of a column.
static bool has_low_pairs(enum dtype type)
{
    return type == DTYPE_Q3K || type == DTYPE_Q2K || type == DTYPE_Q3 || type == DTYPE_Q2;
}
// Magnitudes are looked up for eight columns, or four.
static bool is_grid(enum dtype type)
{
    return type == DTYPE_IQ3S || type == DTYPE_IQ3XXS || type == DTYPE_IQ2S || type == DTYPE_IQ2XS || type == DTYPE_IQ2XXS;
}
static bool by_fours(enum dtype type)
{
    return type == DTYPE_IQ3S || type == DTYPE_IQ3XXS;
}
// Eight groups' scales stand together.
static bool in_eights(enum dtype type)
{
    return type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q6K || type == DTYPE_IQ4XS || type == DTYPE_Q3K ||
           type == DTYPE_Q2K || is_grid(type) || zeros_in_eight(type);
}
static bool has_pairs(enum dtype type) // of a scale and a minimum
{
    return type == DTYPE_Q4A || type == DTYPE_Q5A;
}

// Bytes of a group: in a row's first plane, and in its second; and of eight groups' scales.
static size_t low_bytes(enum dtype type)
{
    if (is_grid(type))
        return by_fours(type) ? 8 : 4;
    return type == DTYPE_Q8 ? 32 : has_low_pairs(type) ? 8 : 16;
}
static size_t high_bytes(enum dtype type)
{
    if (is_grid(type))
        return type == DTYPE_IQ3S || type == DTYPE_IQ2S ? 5 : 4;
    const bool one = type == DTYPE_Q5 || type == DTYPE_Q5U || type == DTYPE_Q5K || type == DTYPE_Q5A || type == DTYPE_Q3K ||
                     type == DTYPE_Q3;
    return one ? 4 : type == DTYPE_Q6 || type == DTYPE_Q6K ? 8 : 0;
}
static size_t scale_bytes(enum dtype type)
{
    if (zeros_in_eight(type))
        return 3 * (size_t)zeros_in_eight(type);
    if (type == DTYPE_IQ4XS)
        return 10;
    if (type == DTYPE_Q3K || type == DTYPE_Q2K)
        return type == DTYPE_Q3K ? 14 : 20;
    if (is_grid(type))
        return type == DTYPE_IQ3S ? 6 : type == DTYPE_IQ2S || type == DTYPE_IQ2XS ? 10 : 2;
    return has_row_scale(type) || type == DTYPE_MXFP4 ? 8 : type == DTYPE_Q6K ? 18 : has_pairs(type) ? 32 : 16;
}
static size_t all_scales(const struct problem *p) // bytes
{
    return (size_t)p->rows * (size_t)p->groups * scale_bytes(p->type) / 8;
}
static size_t all_quants(const struct problem *p) // bytes
{
    return (size_t)p->rows * (size_t)p->groups * (low_bytes(p->type) + high_bytes(p->type));
}

static int grid_at(enum dtype type, const uint8_t *low, const uint8_t *high, int c)
{
    const int i = by_fours(type) ? c / 4 : c / 8, byte = high[c / 8];
    int index = low[i], odd = 0;
    if (type == DTYPE_IQ3S)
        index += 256 * (high[4] >> i & 1);
    if (type == DTYPE_IQ2S)
        index += 256 * (high[4] >> 2 * i & 3);
    if (type == DTYPE_IQ2XS)
        index += 256 * (byte >> 7);
    for (int bit = 0; bit < 7; bit++)
        odd ^= byte >> bit & 1;
    const int minus = (type == DTYPE_IQ3S || type == DTYPE_IQ2S || c % 8 < 7) ? byte >> c % 8 & 1 : odd;
    const uint64_t found = type == DTYPE_IQ3S     ? iq3s_grid[index]
                           : type == DTYPE_IQ3XXS ? iq3xxs_grid[index]
                           : type == DTYPE_IQ2S   ? iq2s_grid[index]
                           : type == DTYPE_IQ2XS  ? iq2xs_grid[index]
                                                  : iq2xxs_grid[index];
    const int magnitude = (int)(found >> 8 * (by_fours(type) ? c % 4 : c % 8) & 255);
    return minus ? -magnitude : magnitude;
}

// Of a group, or of half of one: where its type's scales are, and where the group's second plane is.
static double grid_scale_at(enum dtype type, const uint8_t *eight, int in_eight, int half, const uint8_t *high)
{
    int s = 0;
    if (type == DTYPE_IQ3S)
        s = eight[2 + in_eight / 2] >> in_eight % 2 * 4 & 15;
    else if (type == DTYPE_IQ2S || type == DTYPE_IQ2XS)
        s = eight[2 + in_eight] >> 4 * half & 15;
    else
        for (int i = 0; i < 4; i++)
            s += high[i] / 128 << i;
    return (2 * s + 1) * (type == DTYPE_IQ3S ? 1 : type == DTYPE_IQ3XXS ? 0.25 : 0.125);
}

static const uint8_t *second_plane(const struct problem *p, int row, int col)
{
    const size_t groups = (size_t)p->groups, low = low_bytes(p->type), high = high_bytes(p->type);
    return p->w + (size_t)row * groups * (low + high) + groups * low + (size_t)col / 32 * high;
}

static int quant_at(const struct problem *p, int row, int col)
{
    const size_t groups = (size_t)p->groups, low = low_bytes(p->type), high = high_bytes(p->type), group = (size_t)col / 32;
    const uint8_t *quants = p->w + (size_t)row * groups * (low + high) + group * low;
    const uint8_t *more = second_plane(p, row, col);
    const int c = col % 32, two = quants[c % 2 * 4 + c % 8 / 2] >> c / 8 * 2 & 3; // where the first plane has two bits
    if (is_grid(p->type))
        return grid_at(p->type, quants, more, c);
    if (has_low_pairs(p->type)) {
        const int third = high_bytes(p->type) ? more[c % 8 / 2] >> (c / 8 * 2 + c % 2) & 1 : 0;
        return p->type == DTYPE_Q3 ? q3_values[two + 4 * third] : p->type == DTYPE_Q2 ? q2_values[two] : two - 4 * third;
    }
    const int nibble = c % 2 ? quants[c / 2] >> 4 : quants[c / 2] & 15;
    switch (p->type) {
    case DTYPE_Q8:
        return (int8_t)quants[c];
    case DTYPE_Q4:
    case DTYPE_Q4K:
    case DTYPE_Q4A:
    case DTYPE_Q4Z32:
    case DTYPE_Q4Z64:
    case DTYPE_Q4Z128:
        return nibble < 8 ? nibble : nibble - 16;
    case DTYPE_Q4N:
        return q4n_values[nibble];
    case DTYPE_MXFP4:
        return mxfp4_values[nibble];
    case DTYPE_IQ4NL:
    case DTYPE_IQ4XS:
        return iq4_values[nibble];
    case DTYPE_Q5:
        return q5_values[nibble + (more[c % 8 / 2] >> (c / 8 * 2 + c % 2) & 1) * 16];
    case DTYPE_Q5U:
    case DTYPE_Q5K:
    case DTYPE_Q5A:
        return nibble - (more[c % 8 / 2] >> (c / 8 * 2 + c % 2) & 1) * 16;
    default: {
        const int upper = more[c % 2 * 4 + c % 8 / 2] >> c / 8 * 2 & 3;
        return upper < 2 ? upper * 16 + nibble : upper * 16 + nibble - 64;
    }
    }
}

static double half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return fp16_value(half);
}

// A weight, without its row's scale, which is not the kernels', as the terms of a sum. Minima are rounded as what they come to
// with the scale times `centre`, by which quants with a sign are less than those of the format's formula.
struct terms {
    double scaled, minimum, centre;
};
static struct terms terms_at(const struct problem *p, int row, int col)
{
    const int quant = quant_at(p, row, col), centre = high_bytes(p->type) ? 16 : 8, unsigned_quant = quant + centre;
    const size_t i = (size_t)row * (size_t)p->groups + (size_t)col / 32;
    const uint8_t *scales = p->w + all_quants(p), *eight = scales + i / 8 * scale_bytes(p->type);
    if (has_row_scale(p->type))
        return (struct terms){quant * (int8_t)scales[i], 0, 0};
    if (has_pairs(p->type))
        return (struct terms){unsigned_quant * half_at(scales + 4 * i), half_at(scales + 4 * i + 2),
                              centre * half_at(scales + 4 * i)};
    if (p->type == DTYPE_Q6K)
        return (struct terms){quant * ((int8_t)eight[2 + col % 32 / 16 * 8 + (int)(i % 8)] * half_at(eight)), 0, 0};
    const int half = col % 32 / 16, in_eight = (int)(i % 8);
    if (is_grid(p->type))
        return (struct terms){quant * grid_scale_at(p->type, eight, in_eight, half, second_plane(p, row, col)) * half_at(eight),
                              0, 0};
    if (p->type == DTYPE_Q3K) {
        const int low = eight[2 + in_eight] >> 4 * half & 15,
                  high = eight[10 + 2 * half + in_eight / 4] >> in_eight % 4 * 2 & 3;
        return (struct terms){quant * ((low + 16 * high - 32) * half_at(eight)), 0, 0};
    }
    if (p->type == DTYPE_Q2K) {
        const int byte = eight[4 + 8 * half + in_eight];
        return (struct terms){quant * (byte % 16 * half_at(eight)), -(byte / 16) * half_at(eight + 2), 0};
    }
    if (p->type == DTYPE_IQ4XS)
        return (struct terms){quant * ((int8_t)eight[2 + i % 8] * half_at(eight)), 0, 0};
    if (p->type == DTYPE_MXFP4)
        return (struct terms){quant * ldexp(1, scales[i] - 128), 0, 0};
    if (zeros_in_eight(p->type)) { // the zero point is taken from the quant before both meet the scale
        const size_t zeros = (size_t)zeros_in_eight(p->type), at = i % 8 * zeros / 8;
        const double scale = half_at(eight + 2 * at), zero = eight[2 * zeros + at];
        return (struct terms){unsigned_quant * scale, -zero * scale, centre * scale};
    }
    if (in_eights(p->type)) {
        const int byte = eight[4 + i % 8], nibble = i % 2 ? eight[12 + i % 8 / 2] >> 4 : eight[12 + i % 8 / 2] & 15;
        return (struct terms){unsigned_quant * (byte % 64 * half_at(eight)), -(byte / 64 + 4 * nibble) * half_at(eight + 2),
                              centre * (byte % 64 * half_at(eight))};
    }
    return (struct terms){quant * half_at(scales + 2 * i), 0, 0};
}
static double weight_at(const struct problem *p, int row, int col)
{
    const struct terms terms = terms_at(p, row, col);
    return terms.scaled + terms.minimum;
}

// Of either sign, subnormal ones among them.
static void random_half(struct fixture *f, uint8_t *at, size_t i)
{
    const uint16_t half =
        (uint16_t)((i % 7 == 0 ? below(f, 0x0400) : 0x1c00 + below(f, 0x1000)) | (uniform(f) < 0 ? 0x8000 : 0));
    memcpy(at, &half, sizeof half);
}

static struct problem make_problem(struct fixture *f, const struct form *form, enum dtype type, int rows, int cols, int n)
{
    cols = in_eights(type) ? (cols + 255) / 256 * 256 : cols;
    struct problem p = {.type = type, .form = form, .rows = rows, .cols = cols, .groups = (cols + 31) / 32, .n = n};
    p.quant = form->int8 ? f->kernels->quant8 : f->kernels->quant;
    p.ldx = cols + n % 3;
    p.ldy = rows + n % 2;
    const size_t n_groups = (size_t)rows * (size_t)p.groups, bytes = all_quants(&p);
    p.w = guarded(f, bytes + all_scales(&p));
    for (size_t i = 0; i < bytes + all_scales(&p); i++)
        p.w[i] = (uint8_t)below(f, 256); // past the last column too: what stands there must not count
    const size_t apart = has_pairs(type) ? 4 : in_eights(type) ? scale_bytes(type) : 2;
    for (size_t i = 0; i < n_groups && type == DTYPE_MXFP4; i++)
        p.w[bytes + i] = (uint8_t)(i % 7 == 0 && p.groups > 3 ? below(f, 3) : 118 + below(f, 5)); // subnormal ones
    for (size_t i = 0; i < n_groups / (in_eights(type) ? 8 : 1) && !has_row_scale(type) && type != DTYPE_MXFP4; i++) {
        for (size_t j = 0; j < (size_t)zeros_in_eight(type); j++)
            random_half(f, p.w + bytes + apart * i + 2 * j, i + j);
        if (!zeros_in_eight(type))
            random_half(f, p.w + bytes + apart * i, i);
        if (has_pairs(type) || type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q2K)
            random_half(f, p.w + bytes + apart * i + 2, i + 3);
    }
    p.x = random_floats(f, (size_t)((n - 1) * p.ldx + cols), 1.0);
    for (int t = 0; t < n; t++) // groups of very different sizes, and some that are all zero
        for (int c = 0; c < cols; c++)
            p.x[t * p.ldx + c] *= (t + c / 32) % 5 == 0 ? 0 : (float)ldexp(1, (t * 3 + c / 32 * 7) % 24 - 12);
    p.y = guarded(f, sizeof *p.y * (size_t)((n - 1) * p.ldy + rows));
    p.quantised = guarded_scratch(f, plan_quant_form(p.quant, n)->size(n, cols));
    p.scratch = guarded_scratch(f, p.quant->scratch);
    return p;
}
