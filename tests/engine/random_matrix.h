// Random matrices and vectors of each type, as the file stores them; what they take is freed with the model.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"

struct random_model {
    yalm_model model;
    void *blocks[4096];
    int n_blocks;
    uint64_t seed;
};

static double random_normal(struct random_model *m)
{
    double sum = 0; // of 12 uniform values: variance 1
    for (int i = 0; i < 12; i++) {
        m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(m->seed >> 33) / (double)(1u << 31);
    }
    return sum - 6;
}

static void *random_block(struct random_model *m, size_t bytes)
{
    void *block = malloc(bytes); // of the exact size: a sanitizer sees each read past it
    if (!block || m->n_blocks == 4096)
        abort();
    return m->blocks[m->n_blocks++] = block;
}

static float *random_vector(struct random_model *m, int n, double mean, double deviation)
{
    float *v = random_block(m, sizeof(float) * n);
    for (int i = 0; i < n; i++)
        v[i] = (float)(mean + deviation * random_normal(m));
    return v;
}

// Quants and scales are drawn as they are stored; where the columns end within a group, what follows them is anything.
static struct matrix random_quantised(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = dtype == DTYPE_Q8 ? 32 : 16;
    const double deviation = 1.5 / sqrt(cols), largest = 2 * deviation; // as scales are chosen in earnest
    uint8_t *data = random_block(m, groups * (bytes + 2));
    for (size_t i = 0; i < groups * bytes; i++) {
        uint8_t quants[2];
        for (int j = 0; j < 2; j++) {
            const int most = dtype == DTYPE_Q8 ? 127 : 7;
            quants[j] = (uint8_t)lrint(fmax(-most, fmin(most, random_normal(m) * deviation / largest * most)));
        }
        data[i] = dtype == DTYPE_Q8 ? quants[0] : (uint8_t)((quants[0] & 15) | quants[1] << 4);
    }
    for (size_t i = 0; i < groups; i++) {
        int exponent;
        const double fraction = frexp(largest * (0.8 + 0.03 * random_normal(m)) / (dtype == DTYPE_Q8 ? 127 : 7), &exponent);
        const uint16_t half = (uint16_t)((i % 5 == 0) << 15 | (exponent + 14) << 10 | ((int)(fraction * 2048) & 1023));
        memcpy(data + groups * bytes + 2 * i, &half, 2);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// q4n, q5, q6, q3, q2: any bits in the planes; groups' scales of either sign, about the same, as are rows'.
static struct matrix random_six_bit(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    static const uint8_t bytes_of[] = {16, 20, 24, 12, 8}, typical_of[] = {15, 15, 18, 17, 20};
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = bytes_of[dtype - DTYPE_Q4N];
    const double typical = typical_of[dtype - DTYPE_Q4N], deviation = 1.2 / sqrt(cols); // as of q4
    uint8_t *data = random_block(m, groups * (bytes + 1) + sizeof(float) * (size_t)rows);
    for (size_t i = 0; i < groups * bytes; i++)
        data[i] = (uint8_t)lrint(64 * random_normal(m));
    for (size_t i = 0; i < groups; i++)
        data[groups * bytes + i] = (uint8_t)lrint((i % 5 ? 80 : -80) + 5 * random_normal(m));
    for (int r = 0; r < rows; r++) {
        const float row_scale = (float)((r % 5 ? 1 : -1) * (1 + 0.03 * random_normal(m)) * deviation / typical / 80);
        memcpy(data + groups * (bytes + 1) + sizeof row_scale * (size_t)r, &row_scale, sizeof row_scale);
    }
    return (struct matrix){data, dtype, rows, cols};
}

static uint16_t random_half(struct random_model *m, double typical)
{
    int exponent;
    const double x = typical * (1 + 0.03 * random_normal(m)), fraction = frexp(x, &exponent);
    return exponent < -13 ? (uint16_t)lrint(x * 0x1p24) // subnormal
                          : (uint16_t)((exponent + 14) << 10 | ((int)(fraction * 2048) & 1023));
}

// GGUF's numbers: any bits as quants; scales about the same, and minima that send values to both sides of 0.
static struct matrix random_of_gguf(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const bool four = dtype == DTYPE_Q4K || dtype == DTYPE_Q4A, six = dtype == DTYPE_Q6K;
    const bool alone = dtype == DTYPE_Q5U, pairs = dtype == DTYPE_Q4A || dtype == DTYPE_Q5A;
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = groups * (four ? 16 : six ? 24 : 20);
    const size_t apart = alone ? 2 : pairs ? 4 : six ? 18 : 16, n = alone || pairs ? groups : groups / 8;
    const double most = four ? 8 : six ? 32 : 16, scale = 1.2 / sqrt(cols) / (most / 1.7); // as of q4
    if (apart > 4 && cols % 256 != 0)
        abort();
    uint8_t *data = random_block(m, bytes + n * apart);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)lrint(64 * random_normal(m));
    for (size_t i = 0; i < n; i++) {
        uint8_t *at = data + bytes + i * apart;
        for (size_t j = 2; j < apart; j++) // of q4k and q5k scales of about 16, then the upper bits of minima of about 21
            at[j] = !six && j >= 12 ? (uint8_t)(0x55 ^ (i & 1))
                                    : (uint8_t)lrint((six && (i + j) % 5 == 0 ? -80 : 80) + 5 * random_normal(m));
        const uint16_t d = random_half(m, alone || pairs ? scale : scale / (six ? 80 : 16));
        const uint16_t minimum = pairs ? random_half(m, scale * most) | 0x8000 : random_half(m, scale * most / 21);
        memcpy(at, &d, sizeof d);
        if (!alone && !six)
            memcpy(at + 2, &minimum, sizeof minimum);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// Numbers of four bits: any bits as quants; scales about the same, and zero points in the middle.
static struct matrix random_four_bits(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = groups * 16;
    const size_t halves = dtype == DTYPE_Q4Z32 ? 8 : dtype == DTYPE_Q4Z64 ? 4 : dtype == DTYPE_Q4Z128 ? 2 : 1;
    const size_t others = dtype == DTYPE_IQ4XS ? 8 : dtype == DTYPE_IQ4NL ? 0 : halves, apart = 2 * halves + others;
    const bool alone = dtype == DTYPE_MXFP4 || dtype == DTYPE_IQ4NL;
    const size_t n = alone ? groups : groups / 8;
    if (!alone && cols % 256 != 0)
        abort();
    const double most = dtype == DTYPE_MXFP4 ? 12 : dtype == DTYPE_IQ4NL ? 127 : dtype == DTYPE_IQ4XS ? 127 * 24 : 8;
    const double scale = 1.2 / sqrt(cols) / (most / 1.7); // as of q4
    uint8_t *data = random_block(m, bytes + n * (dtype == DTYPE_MXFP4 ? 1 : apart));
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)lrint(64 * random_normal(m));
    for (size_t i = 0; i < n && dtype == DTYPE_MXFP4; i++)
        data[bytes + i] = (uint8_t)lrint(128 + log2(scale) + 0.5 * random_normal(m));
    for (size_t i = 0; i < n && dtype != DTYPE_MXFP4; i++) {
        uint8_t *at = data + bytes + i * apart;
        for (size_t j = 0; j < halves; j++) {
            const uint16_t d = random_half(m, scale);
            memcpy(at + 2 * j, &d, sizeof d);
        }
        for (size_t j = 0; j < others; j++)
            at[2 * halves + j] = dtype == DTYPE_IQ4XS ? (uint8_t)lrint(((i + j) % 5 ? 24 : -24) + 3 * random_normal(m))
                                                      : (uint8_t)(7 + (i + j) % 3);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// q3k and q2k: any bits as quants; scales of either sign about the same, or minima that send values to both sides of 0.
static struct matrix random_two_bits(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const bool third = dtype == DTYPE_Q3K;
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = groups * (third ? 12 : 8), apart = third ? 14 : 20;
    const double scale = 1.2 / sqrt(cols) / (third ? 2.4 : 1.2); // as of q4
    if (cols % 256 != 0)
        abort();
    uint8_t *data = random_block(m, bytes + groups / 8 * apart);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)lrint(64 * random_normal(m));
    for (size_t i = 0; i < groups / 8; i++) {
        uint8_t *at = data + bytes + i * apart;
        const uint16_t d = random_half(m, scale / (third ? 12 : 8)), minimum = random_half(m, scale * 1.5 / 8);
        for (size_t j = 2; j < apart; j++) // q3k: 44 or so, or 20, less 32; q2k: 6 to 9
            at[j] = third ? (uint8_t)(j < 10  ? lrint(16 * random_normal(m))
                                      : i % 5 ? 0xaa
                                              : 0x55)
                          : 0x66 + 0x11 * (uint8_t)((i + j) % 4);
        memcpy(at, &d, sizeof d);
        if (!third)
            memcpy(at + 2, &minimum, sizeof minimum);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// Grids: any bits as indices, signs and integers of scales; fp16 scales about the same.
static struct matrix random_grid(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const size_t groups = (size_t)rows * ((cols + 31) / 32), bytes = groups * dtype_group_bytes[dtype],
                 apart = dtype_eight_scales[dtype];
    const double typical = 16 * (dtype == DTYPE_IQ3S ? 8 : dtype == DTYPE_IQ3XXS ? 30 / 4.0 : 20 / 8.0);
    if (cols % 256 != 0)
        abort();
    uint8_t *data = random_block(m, bytes + groups / 8 * apart);
    for (size_t i = 0; i < bytes + groups / 8 * apart; i++)
        data[i] = (uint8_t)lrint(64 * random_normal(m));
    for (size_t i = 0; i < groups / 8; i++) {
        const uint16_t d = random_half(m, 1 / sqrt(cols) / typical);
        memcpy(data + bytes + i * apart, &d, sizeof d);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// fp8: exponents in the upper part of what the type has, and of E4M3 scales for the rows, of either sign, that begin at any
// byte.
static struct matrix random_fp8(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    const size_t n = (size_t)rows * cols;
    uint8_t *data = random_block(m, n + (dtype == DTYPE_FP8 ? sizeof(float) * (size_t)rows : 0));
    const double deviation = 1.5 / sqrt(cols), scale = dtype == DTYPE_FP8 ? 4 * deviation / 448 : 1;
    const int bias = dtype == DTYPE_FP8 ? 7 : 15, steps = dtype == DTYPE_FP8 ? 8 : 4;
    for (size_t i = 0; i < n; i++) {
        const double x = deviation * random_normal(m) / scale;
        int exponent;
        const double fraction = frexp(fmin(fabs(x), 448), &exponent); // |x| = fraction * 2^exponent, fraction in [0.5, 1)
        const int bits = (exponent - 1 + bias) * steps + (int)((2 * fraction - 1) * steps);
        data[i] = (uint8_t)((x < 0) << 7 | (bits > 0 ? bits : (int)(i % 2)));
    }
    for (int r = 0; r < rows && dtype == DTYPE_FP8; r++) {
        const float row_scale = (float)(scale * (r % 5 ? 1 : -1) * (1 + 0.03 * random_normal(m)));
        memcpy(data + n + sizeof row_scale * (size_t)r, &row_scale, sizeof row_scale);
    }
    return (struct matrix){data, dtype, rows, cols};
}

// Weights are drawn as stored: fp16 values are multiples of 2^-12, bf16 values fp32 ones cut to 16 bits.
static struct matrix random_matrix(struct random_model *m, enum dtype dtype, int rows, int cols)
{
    if (dtype == DTYPE_Q8 || dtype == DTYPE_Q4)
        return random_quantised(m, dtype, rows, cols);
    if (dtype >= DTYPE_Q4N && dtype <= DTYPE_Q2)
        return random_six_bit(m, dtype, rows, cols);
    if (dtype >= DTYPE_Q5U && dtype <= DTYPE_Q5A)
        return random_of_gguf(m, dtype, rows, cols);
    if (dtype >= DTYPE_IQ3S && dtype <= DTYPE_IQ2XXS)
        return random_grid(m, dtype, rows, cols);
    if (dtype == DTYPE_Q3K || dtype == DTYPE_Q2K)
        return random_two_bits(m, dtype, rows, cols);
    if (dtype >= DTYPE_MXFP4 && dtype <= DTYPE_Q4Z128)
        return random_four_bits(m, dtype, rows, cols);
    if (dtype == DTYPE_FP8 || dtype == DTYPE_FP8_E5M2)
        return random_fp8(m, dtype, rows, cols);
    const double deviation = 1.5 / sqrt(cols);
    const size_t n = (size_t)rows * cols;
    void *data = random_block(m, n * dtype_sizes[dtype]);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)(deviation * random_normal(m));
        if (dtype == DTYPE_FP32)
            ((float *)data)[i] = x;
        else if (dtype == DTYPE_BF16) {
            uint32_t bits;
            memcpy(&bits, &x, 4);
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        } else {
            int exponent;
            const double fraction = frexp(fabs(x), &exponent); // |x| = fraction * 2^exponent, fraction in [0.5, 1)
            const int mantissa = (int)(fraction * 2048) & 1023;
            ((uint16_t *)data)[i] = exponent < -13 ? 0 : (uint16_t)((x < 0) << 15 | (exponent + 14) << 10 | mantissa);
        }
    }
    return (struct matrix){data, dtype, rows, cols};
}
