// A small model with random weights, in memory.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv_cache.h"
#include "engine/model.h"
#include "model/mtp.h"

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

// Decays are between about 0.2 and 0.99, so that a state remembers tokens and forgets them.
static void random_recurrence(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const struct delta_config *d = config_delta(c, layer);
    l->q = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->k = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->v = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->output_gate = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->o = random_matrix(m, dtype, c->hidden_dim, delta_values(d));
    l->delta.conv = random_vector(m, d->conv_width * delta_channels(d), 0.3, 0.5);
    l->delta.decay = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.beta = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.decay_bias = random_vector(m, d->n_value_heads, -1, 1);
    float *rates = random_vector(m, d->n_value_heads, 0.5, 0.2);
    for (int i = 0; i < d->n_value_heads; i++)
        rates[i] = fabsf(rates[i]);
    l->delta.decay_rate = rates;
    l->delta.value_norm = random_vector(m, d->value_dim, 1, 0.3);
}

// A convolution alone, which sees the oldest of its tokens as well as the last.
static void random_convolution(struct random_model *m, int layer, enum dtype dtype)
{
    const struct delta_config *d = config_delta(&m->model.config, layer);
    struct layer_weights *l = &m->model.weights.layers[layer];
    const int dim = m->model.config.hidden_dim;
    struct matrix *const products[] = {&l->q, &l->k, &l->v, &l->o};
    const float **const biases[] = {&l->q_bias, &l->k_bias, &l->v_bias, &l->o_bias};
    for (int i = 0; i < 4; i++) {
        *products[i] = random_matrix(m, dtype, dim, dim);
        if (d->conv_bias)
            *biases[i] = random_vector(m, dim, 0, 0.5);
    }
    l->delta.conv = random_vector(m, d->conv_width * dim, 0.3, 0.5);
    if (d->conv_bias)
        l->delta.conv_bias = random_vector(m, dim, 0, 0.5);
}

// Steps and decays of all sizes, some beyond the bounds.
static void random_scan(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const struct delta_config *d = config_delta(c, layer);
    l->scan.c = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->scan.b = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->scan.x = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->scan.z = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->scan.o = random_matrix(m, dtype, c->hidden_dim, delta_values(d));
    l->scan.skip = random_vector(m, d->n_value_heads, 0.7, 0.5);
    l->delta.conv = random_vector(m, d->conv_width * delta_channels(d), 0.3, 0.5);
    if (d->scan.conv_bias)
        l->scan.conv_bias = random_vector(m, delta_channels(d), 0, 0.4);
    l->delta.decay = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.decay_bias = random_vector(m, d->n_value_heads, -1, 1);
    float *rates = random_vector(m, d->n_value_heads, 0.5, 0.2);
    for (int i = 0; i < d->n_value_heads; i++)
        rates[i] = fabsf(rates[i]);
    l->delta.decay_rate = rates;
    if (d->scan.norm_groups)
        l->delta.value_norm = random_vector(m, delta_values(d), 1, 0.3);
}

// What Gemma 4 has besides: norms of experts, an input of the layer's own, a factor at its end.
static void random_extras(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    if (l->router.data && c->expert_norms) {
        l->expert_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->expert_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->shared_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->router_scale = random_vector(m, c->n_experts, 1, 0.3);
    }
    if (c->layer_input_dim) {
        l->input_gate = random_matrix(m, dtype, c->layer_input_dim, c->hidden_dim);
        l->input_projection = random_matrix(m, dtype, c->hidden_dim, c->layer_input_dim);
        l->input_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    }
    if (c->layer_scale)
        l->scale = random_vector(m, 1, 0.8, 0.1);
}

static void random_latents(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    const struct latent_config *d = &c->latent;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const enum dtype of_heads = dtype <= DTYPE_BF16 ? dtype : DTYPE_BF16;
    l->q = random_matrix(m, dtype, c->n_heads * (d->nope_dim + d->rope_dim), d->q_rank ? d->q_rank : c->hidden_dim);
    l->k = random_matrix(m, dtype, d->kv_rank + d->rope_dim, c->hidden_dim);
    l->k_norm = random_vector(m, d->kv_rank, 1, 0.3);
    l->o = random_matrix(m, dtype, c->hidden_dim, c->n_heads * d->v_dim);
    l->latent.k_b = random_matrix(m, of_heads, c->n_heads * d->kv_rank, d->nope_dim);
    l->latent.v_b = random_matrix(m, of_heads, c->n_heads * d->v_dim, d->kv_rank);
    if (d->q_rank) {
        l->latent.q_a = random_matrix(m, dtype, d->q_rank, c->hidden_dim);
        l->q_norm = random_vector(m, d->q_rank, 1, 0.3);
    }
}

static void random_layer(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const bool experts = config_has_experts(c, layer);
    const int d = config_head_dim(c, layer), q = c->n_heads * d, kv = config_kv_heads(c, layer) * d;
    const int n = c->n_experts ? c->n_experts : 1, ffn = experts ? config_expert_ffn(c) : config_ffn_dim(c, layer);
    const bool keeps = config_kv_layer(c, layer) == layer;
    *(c->norms_after ? &l->attention_post_norm : &l->attention_norm) = random_vector(m, c->hidden_dim, 1, 0.1);
    *(c->norms_after ? &l->ffn_post_norm : &l->ffn_norm) = random_vector(m, c->hidden_dim, 1, 0.1);
    if (c->norms_around) {
        l->attention_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->ffn_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    }
    const bool recurrent = !config_attends(c, layer);
    if (config_delta(c, layer)->conv_dim)
        random_convolution(m, layer, dtype);
    else if (config_is_recurrent(c, layer))
        (config_delta(c, layer)->scan.there ? random_scan : random_recurrence)(m, layer, dtype);
    if (recurrent)
        ;
    else if (c->latent.kv_rank)
        random_latents(m, layer, dtype);
    else {
        l->q = random_matrix(m, dtype, q, c->hidden_dim);
        if (keeps)
            l->k = random_matrix(m, dtype, kv, c->hidden_dim);
        if (keeps)
            l->v = random_matrix(m, dtype, kv, c->hidden_dim);
        l->o = random_matrix(m, dtype, c->hidden_dim, q);
    }
    if (!recurrent && c->output_gate)
        l->output_gate = random_matrix(m, dtype, q, c->hidden_dim);
    if (!recurrent && c->output_gate && (c->attention_bias || c->qkv_bias))
        l->output_gate_bias = random_vector(m, q, 0, 0.5);
    if (!recurrent && (c->qk_norm || c->whole_qk_norm)) {
        l->q_norm = random_vector(m, c->whole_qk_norm ? q : d, 1, 0.3);
        if (keeps)
            l->k_norm = random_vector(m, c->whole_qk_norm ? kv : d, 1, 0.3);
    }
    if (!recurrent && (c->attention_bias || c->qkv_bias)) {
        l->q_bias = random_vector(m, q, 0, 0.5);
        l->k_bias = random_vector(m, kv, 0, 0.5);
        l->v_bias = random_vector(m, kv, 0, 0.5);
    }
    if (!recurrent && c->attention_bias)
        l->o_bias = random_vector(m, c->hidden_dim, 0, 0.5);
    if (experts)
        l->router = random_matrix(m, DTYPE_FP32, c->n_experts, c->hidden_dim);
    if (experts && c->sigmoid_router)
        l->router_choice_bias = random_vector(m, c->n_experts, 0, 0.3);
    if (experts && c->shared_ffn_dim) {
        if (!c->ungated)
            l->shared.gate = random_matrix(m, dtype, c->shared_ffn_dim, c->hidden_dim);
        l->shared.up = random_matrix(m, dtype, c->shared_ffn_dim, c->hidden_dim);
        l->shared.down = random_matrix(m, dtype, c->hidden_dim, c->shared_ffn_dim);
        if (c->shared_gate)
            l->shared_router = random_matrix(m, DTYPE_FP32, 1, c->hidden_dim);
    }
    if (experts && c->router_bias)
        l->router_bias = random_vector(m, c->n_experts, 0, 1);
    if (c->sink_logits)
        l->sink_logits = random_vector(m, c->n_heads, 0.5, 1);
    if (c->activation == ACTIVATION_XIELU)
        l->xielu = random_vector(m, 3, 0.7, 0.2);
    l->experts = random_block(m, sizeof *l->experts * n);
    memset(l->experts, 0, sizeof *l->experts * n);
    for (int e = 0; e < (experts ? n : 1); e++) {
        // A file may keep some experts in another type: here every other one of those in q4, q5 or fp8.
        const enum dtype type = (dtype == DTYPE_Q4 || dtype == DTYPE_Q5 || dtype == DTYPE_FP8) && e % 2 ? DTYPE_BF16 : dtype;
        if (!c->ungated)
            l->experts[e].gate = random_matrix(m, type, ffn, c->hidden_dim);
        l->experts[e].up = random_matrix(m, type, ffn, c->hidden_dim);
        l->experts[e].down = random_matrix(m, type, c->hidden_dim, ffn);
        if (c->mlp_bias) {
            l->experts[e].gate_bias = random_vector(m, ffn, 0, 0.5);
            l->experts[e].up_bias = random_vector(m, ffn, 0, 0.5);
            l->experts[e].down_bias = random_vector(m, c->hidden_dim, 0, 0.5);
        }
    }
}

// A head that guesses, with its layer.
static void random_head(struct random_model *m, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct model_weights *w = &m->model.weights;
    random_layer(m, c->n_layers, dtype);
    w->mtp_projection = random_matrix(m, dtype, c->hidden_dim, 2 * c->hidden_dim);
    w->mtp_embedding_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    w->mtp_hidden_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    w->mtp_norm = random_vector(m, c->hidden_dim, 1, 0.1);
    m->model.mtp_config = mtp_config_of(c);
    m->model.mtp_weights = mtp_weights_of(w, c);
}

// `config` needs its numbers; the rest is filled in. Freed by random_model_free().
static struct random_model *random_model_make(struct model_config config, enum dtype dtype, uint64_t seed)
{
    struct random_model *m = calloc(1, sizeof *m);
    m->seed = seed;
    config.norm_eps = 1e-5f;
    config.latent.norm_eps = 1e-3f; // so that another one shows
    for (int kind = 0; kind < config_n_kinds(&config); kind++) {
        const int like = config.kinds[kind].shares_keys ? config.kinds[kind].kv_of : kind;
        config.kinds[kind].rope = (struct rope_config){
            .type = ROPE_DEFAULT, .rotary_dim = config.kinds[kind].rope.rotary_dim, .theta = like ? 500 : 10000, .factor = 1};
    }
    m->model.config = config;
    struct model_weights *w = &m->model.weights;
    w->embedding = random_matrix(m, dtype, config.vocab_size, config.hidden_dim);
    if (config.learned_positions)
        w->positions = random_matrix(m, DTYPE_FP32, config.context_length, config.hidden_dim);
    if (config.alibi)
        w->alibi_slopes = random_vector(m, config.n_heads, 0.1, 0.05);
    if (config.classifier_bias)
        w->classifier_bias = random_vector(m, config.vocab_size, 0, 0.5);
    w->norm = random_vector(m, config.hidden_dim, 1, 0.1);
    w->classifier = config.tied_embeddings ? w->embedding : random_matrix(m, dtype, config.vocab_size, config.hidden_dim);
    const size_t n_layers = (size_t)config_n_listed(&config);
    w->layers = random_block(m, sizeof *w->layers * n_layers);
    memset(w->layers, 0, sizeof *w->layers * n_layers);
    for (int l = 0; l < config.n_layers; l++) {
        random_layer(m, l, dtype);
        random_extras(m, l, dtype);
    }
    if (config.layer_input_dim) {
        w->layer_embedding = random_matrix(m, dtype, config.vocab_size, config.n_layers * config.layer_input_dim);
        w->layer_projection = random_matrix(m, dtype, config.n_layers * config.layer_input_dim, config.hidden_dim);
        w->layer_projection_norm = random_vector(m, config.layer_input_dim, 1, 0.3);
    }
    if (config.mtp.there)
        random_head(m, dtype);
    return m;
}

static void random_model_free(struct random_model *m)
{
    struct shared *const shared[] = {&m->model.of_cpu, &m->model.weights_copy};
    for (int i = 0; i < 2; i++)
        if (shared[i]->data)
            shared[i]->release(shared[i]->data);
    for (int i = 0; i < m->n_blocks; i++)
        free(m->blocks[i]);
    free(m);
}
