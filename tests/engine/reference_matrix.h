// The elements of matrices of every type, as docs/format.md says.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/quant_grids.h"
#include "model/quant_values.h"
#include "model/weights.h"

static float half_to_float(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double x = (exponent ? 1024 + fraction : fraction) * 0x1p-25 * (1u << (exponent ? exponent : 1));
    return (float)(h >> 15 ? -x : x);
}

static double quantised_at(const struct matrix *w, int row, int col)
{
    const size_t in_row = (size_t)(w->cols + 31) / 32, i = (size_t)row * in_row * 32 + (size_t)col;
    const uint8_t *bytes = w->data;
    const size_t all = (size_t)w->rows * in_row * (w->dtype == DTYPE_Q8 ? 32 : 16);
    int quant = w->dtype == DTYPE_Q8 ? bytes[i] : i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15;
    if (quant >= (w->dtype == DTYPE_Q8 ? 128 : 8))
        quant -= w->dtype == DTYPE_Q8 ? 256 : 16;
    uint16_t scale;
    memcpy(&scale, bytes + all + i / 32 * 2, 2);
    return quant * (double)half_to_float(scale);
}

// q4n, q5, q6, q3, q2, as docs/format.md says.
static bool is_six_bit(enum dtype type)
{
    return type >= DTYPE_Q4N && type <= DTYPE_Q2;
}
static double six_bit_at(const struct matrix *w, int row, int col)
{
    const bool few = w->dtype == DTYPE_Q3 || w->dtype == DTYPE_Q2;
    const size_t high = w->dtype == DTYPE_Q6 ? 8 : w->dtype == DTYPE_Q5 || w->dtype == DTYPE_Q3 ? 4 : 0, first = few ? 8 : 16;
    const size_t groups = (size_t)(w->cols + 31) / 32, group = (size_t)col / 32;
    const uint8_t *data = w->data, *low = data + (size_t)row * groups * (first + high), *more = low + groups * first;
    const uint8_t *scales = data + (size_t)w->rows * groups * (first + high);
    const int c = col % 32, nibble = low[group * first + (size_t)c / 2 % first] >> (c % 2 * 4) & 15;
    const int pair = low[group * first + (size_t)(c % 2 * 4 + c % 8 / 2)] >> (c / 8 * 2) & 3; // where two bits are first
    const int bit = high == 4 ? more[group * 4 + (size_t)(c % 8 / 2)] >> (c / 8 * 2 + c % 2) & 1 : 0;
    int value = w->dtype == DTYPE_Q5   ? q5_values[nibble + 16 * bit]
                : w->dtype == DTYPE_Q3 ? q3_values[pair + 4 * bit]
                : w->dtype == DTYPE_Q2 ? q2_values[pair]
                                       : q4n_values[nibble];
    if (w->dtype == DTYPE_Q6) {
        const int two = more[group * 8 + (size_t)(c % 2 * 4 + c % 8 / 2)] >> (c / 8 * 2) & 3;
        value = nibble + 16 * (two < 2 ? two : two - 4);
    }
    float row_scale;
    memcpy(&row_scale, scales + (size_t)w->rows * groups + sizeof row_scale * (size_t)row, sizeof row_scale);
    return value * (double)(int8_t)scales[(size_t)row * groups + group] * (double)row_scale;
}

// q5u, q4k, q5k, q6k, q4a, q5a, as docs/format.md says; and mxfp4, iq4nl, iq4xs, and q4z32 and its likes.
static bool is_of_gguf(enum dtype type)
{
    return type >= DTYPE_Q5U && type <= DTYPE_Q5A;
}
static bool has_four_bits(enum dtype type)
{
    return type >= DTYPE_MXFP4 && type <= DTYPE_Q4Z128;
}
static double four_bits_at(const struct matrix *w, int row, int col)
{
    static const int e2m1[8] = {0, 1, 2, 3, 4, 6, 8, 12},
                     iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const size_t i = (size_t)row * ((size_t)(w->cols + 31) / 32) + (size_t)col / 32;
    const uint8_t *data = w->data, *scales = data + (size_t)w->rows * ((size_t)(w->cols + 31) / 32) * 16;
    const int nibble = data[i * 16 + (size_t)(col % 32 / 2)] >> (col % 2 * 4) & 15;
    if (w->dtype == DTYPE_MXFP4)
        return (nibble & 8 ? -1 : 1) * ldexp(e2m1[nibble & 7], scales[i] - 128);
    const size_t halves = w->dtype == DTYPE_Q4Z32 ? 8 : w->dtype == DTYPE_Q4Z64 ? 4 : w->dtype == DTYPE_Q4Z128 ? 2 : 0;
    const uint8_t *eight = scales + i / 8 * (halves ? 3 * halves : w->dtype == DTYPE_IQ4NL ? 16 : 10);
    const size_t in_eight = i % 8, at = halves ? in_eight * halves / 8 : w->dtype == DTYPE_IQ4NL ? in_eight : 0;
    uint16_t half;
    memcpy(&half, eight + 2 * at, sizeof half);
    const double d = half_to_float(half);
    if (halves)
        return ((nibble ^ 8) - eight[2 * halves + at]) * d;
    return iq4[nibble] * (w->dtype == DTYPE_IQ4NL ? 1 : (int8_t)eight[2 + in_eight]) * d;
}
static double of_gguf_at(const struct matrix *w, int row, int col)
{
    const bool four = w->dtype == DTYPE_Q4K || w->dtype == DTYPE_Q4A, six = w->dtype == DTYPE_Q6K;
    const size_t groups = (size_t)(w->cols + 31) / 32, high = four ? 0 : six ? 8 : 4, group = (size_t)col / 32;
    const uint8_t *data = w->data, *low = data + (size_t)row * groups * (16 + high), *more = low + groups * 16;
    const uint8_t *scales = data + (size_t)w->rows * groups * (16 + high);
    const int c = col % 32, nibble = low[group * 16 + (size_t)c / 2] >> (c % 2 * 4) & 15;
    const int two = six ? more[group * 8 + (size_t)(c % 2 * 4 + c % 8 / 2)] >> (c / 8 * 2) & 3 : 0;
    const int fifth = four || six ? 0 : more[group * 4 + (size_t)(c % 8 / 2)] >> (c / 8 * 2 + c % 2) & 1;
    const int quant = four ? nibble - nibble / 8 * 16 : six ? nibble + 16 * (two < 2 ? two : two - 4) : nibble - 16 * fifth;
    const size_t i = (size_t)row * groups + group;
    const size_t apart = w->dtype == DTYPE_Q5U ? 2 : w->dtype == DTYPE_Q4A || w->dtype == DTYPE_Q5A ? 4 : six ? 18 : 16;
    const uint8_t *at = scales + (apart < 8 ? i : i / 8) * apart;
    uint16_t halves[2];
    memcpy(halves, at, w->dtype == DTYPE_Q5U ? 2 : 4);
    const double d = half_to_float(halves[0]);
    if (w->dtype == DTYPE_Q5U)
        return quant * d;
    if (six)
        return quant * (int8_t)at[2 + c / 16 * 8 + (int)(i % 8)] * d;
    if (apart == 4)
        return (quant + (four ? 8 : 16)) * d + half_to_float(halves[1]);
    const int byte = at[4 + i % 8], upper = at[12 + i % 8 / 2] >> (i % 2 * 4) & 15;
    return (quant + (four ? 8 : 16)) * (byte & 63) * d - (byte >> 6 | upper << 2) * (double)half_to_float(halves[1]);
}

// q3k and q2k: a scale for each half of a group.
static double of_two_bits_at(const struct matrix *w, int row, int col)
{
    const size_t groups = (size_t)(w->cols + 31) / 32, high = w->dtype == DTYPE_Q3K ? 4 : 0, group = (size_t)col / 32;
    const uint8_t *data = w->data, *low = data + (size_t)row * groups * (8 + high), *more = low + groups * 8;
    const size_t i = (size_t)row * groups + group, in_eight = i % 8, half = (size_t)col % 32 / 16;
    const uint8_t *at = data + (size_t)w->rows * groups * (8 + high) + i / 8 * (high ? 14 : 20);
    const int c = col % 32, two = low[group * 8 + (size_t)(c % 2 * 4 + c % 8 / 2)] >> (c / 8 * 2) & 3;
    uint16_t halves[2];
    memcpy(halves, at, sizeof halves);
    const double d = half_to_float(halves[0]);
    if (!high)
        return two * (at[4 + 8 * half + in_eight] & 15) * d -
               (at[4 + 8 * half + in_eight] >> 4) * (double)half_to_float(halves[1]);
    const int third = more[group * 4 + (size_t)(c % 8 / 2)] >> (c / 8 * 2 + c % 2) & 1;
    const int scale = (at[2 + in_eight] >> (4 * half) & 15) + 16 * (at[10 + 2 * half + in_eight / 4] >> (in_eight % 4 * 2) & 3);
    return (two - 4 * third) * (scale - 32) * d;
}

// iq3s, iq3xxs, iq2s, iq2xs, iq2xxs, with the reading of a group that tests/cpu checks.
static double of_grid_at(const struct matrix *w, int row, int col)
{
    const bool fours = w->dtype == DTYPE_IQ3S || w->dtype == DTYPE_IQ3XXS,
               five = w->dtype == DTYPE_IQ3S || w->dtype == DTYPE_IQ2S;
    const size_t groups = (size_t)(w->cols + 31) / 32, group = (size_t)col / 32, n_low = fours ? 8 : 4, n_high = five ? 5 : 4;
    const uint8_t *data = w->data, *plane = data + (size_t)row * groups * (n_low + n_high), *low = plane + group * n_low;
    const uint8_t *high = plane + groups * n_low + group * n_high;
    const size_t i = (size_t)row * groups + group, apart = w->dtype == DTYPE_IQ3S                            ? 6
                                                           : n_low + n_high < 10 && w->dtype != DTYPE_IQ2XXS ? 10
                                                                                                             : 2;
    const uint8_t *at = data + (size_t)w->rows * groups * (n_low + n_high) + i / 8 * apart;
    const int c = col % 32, magnitude = (int)(grid_eight(w->dtype, low, high, c / 8) >> (c % 8 * 8) & 255);
    const int in_eight = (int)(i % 8), s = apart == 6    ? at[2 + in_eight / 2] >> (in_eight % 2 * 4) & 15
                                           : apart == 10 ? at[2 + in_eight] >> (c / 16 * 4) & 15
                                                         : grid_scale(high);
    uint16_t d;
    memcpy(&d, at, sizeof d);
    return (grid_signs(w->dtype, high) >> c & 1 ? -magnitude : magnitude) * (2 * s + 1) * half_to_float(d) /
           (!fours       ? 8.0
            : apart == 6 ? 1
                         : 4);
}

static double fp8_at(const struct matrix *w, int row, int col)
{
    const uint8_t *bytes = w->data, x = bytes[(size_t)row * w->cols + col];
    if (w->dtype == DTYPE_FP8_E5M2)
        return half_to_float((uint16_t)(x << 8));
    const int exponent = x >> 3 & 15, fraction = x & 7;
    const double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    float scale;
    memcpy(&scale, bytes + (size_t)w->rows * w->cols + 4 * (size_t)row, 4);
    return (x >> 7 ? -magnitude : magnitude) * (double)scale;
}

static double matrix_at(const struct matrix *w, int row, int col)
{
    const size_t i = (size_t)row * w->cols + col;
    if (w->dtype == DTYPE_Q8 || w->dtype == DTYPE_Q4)
        return quantised_at(w, row, col);
    if (is_six_bit(w->dtype))
        return six_bit_at(w, row, col);
    if (is_of_gguf(w->dtype))
        return of_gguf_at(w, row, col);
    if (w->dtype == DTYPE_Q3K || w->dtype == DTYPE_Q2K)
        return of_two_bits_at(w, row, col);
    if (w->dtype >= DTYPE_IQ3S && w->dtype <= DTYPE_IQ2XXS)
        return of_grid_at(w, row, col);
    if (has_four_bits(w->dtype))
        return four_bits_at(w, row, col);
    if (w->dtype == DTYPE_FP8 || w->dtype == DTYPE_FP8_E5M2)
        return fp8_at(w, row, col);
    if (w->dtype == DTYPE_FP32)
        return ((const float *)w->data)[i];
    const uint16_t bits = ((const uint16_t *)w->data)[i];
    if (w->dtype == DTYPE_FP16)
        return half_to_float(bits);
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

// (rows, cols): all elements of a matrix, decoded when first asked for, and kept until matrices_forget().
static struct decoded {
    const void *data;
    double *values;
} decoded_matrices[1024];

static const double *matrix_values(const struct matrix *w)
{
    enum { MOST = sizeof decoded_matrices / sizeof *decoded_matrices };
    int i = 0;
    for (; i < MOST && decoded_matrices[i].data; i++)
        if (decoded_matrices[i].data == w->data)
            return decoded_matrices[i].values;
    double *values = i < MOST ? malloc(sizeof *values * (size_t)w->rows * (size_t)w->cols) : NULL;
    if (!values)
        abort();
    for (int r = 0; r < w->rows; r++)
        for (int c = 0; c < w->cols; c++)
            values[(size_t)r * w->cols + c] = matrix_at(w, r, c);
    decoded_matrices[i] = (struct decoded){w->data, values};
    return values;
}

static void matrices_forget(void)
{
    for (struct decoded *d = decoded_matrices; d < decoded_matrices + sizeof decoded_matrices / sizeof *d && d->data; d++) {
        free(d->values);
        *d = (struct decoded){NULL, NULL};
    }
}
