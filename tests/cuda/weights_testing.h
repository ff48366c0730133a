// Weights of each type for the tests of the CUDA half: on the device, and what they are as doubles.
#pragma once
#include "cuda_testing.h"
#include "model/quant_values.h"

static const enum dtype float_types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};
static const enum dtype quantised_types[] = {DTYPE_Q8, DTYPE_Q4, DTYPE_Q4N, DTYPE_Q5, DTYPE_Q6, DTYPE_FP8, DTYPE_FP8_E5M2};
static const enum dtype weight_types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPE_Q8,  DTYPE_Q4,
                                          DTYPE_Q4N,  DTYPE_Q5,   DTYPE_Q6,   DTYPE_FP8, DTYPE_FP8_E5M2};

// A float sum of n terms by 32 lanes or more: a relative error of their magnitudes.
static inline double sum_error(int n)
{
    return (n / 32.0 + 12) * 0x1p-24;
}

struct weights {
    struct matrix device;
    std::vector<double> values; // (rows, cols)
    double at(int row, int col) const { return values[(size_t)row * device.cols + col]; }
};

template <class T> static inline void *typed_copy(std::vector<double> &values, T (*convert)(float), float (*value)(T))
{
    std::vector<T> x(values.size());
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = convert((float)values[i]);
        values[i] = value(x[i]);
    }
    return device_copy(x);
}
static inline float same(float x)
{
    return x;
}
static inline half to_half(float x)
{
    return __float2half_rn(x);
}
static inline float half_value(half x)
{
    return __half2float(x);
}
static inline __nv_bfloat16 to_bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}
static inline float bfloat16_value(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

// By the definition in docs/format.md.
static inline double e4m3_value(uint8_t byte)
{
    const int e = byte >> 3 & 15, f = byte & 7;
    const double magnitude = e > 0 ? ldexp(1 + f / 8.0, e - 7) : ldexp(f / 8.0, -6);
    return byte & 0x80 ? -magnitude : magnitude;
}

// What quants are made of: bytes of any value but the NaNs of the type, and scales of either sign and of about `scale`.
struct quant_maker {
    uint64_t *seed;
    double scale;
    std::vector<uint8_t> bytes; // as docs/format.md lays them out
};

static inline void make_groups(struct quant_maker *m, struct weights *w)
{
    const bool narrow = w->device.dtype == DTYPE_Q4;
    const int rows = w->device.rows, cols = w->device.cols;
    const size_t groups = quant_groups(cols), group_bytes = dtype_group_bytes[w->device.dtype];
    for (size_t i = 0; i < rows * groups; i++) {
        const half scale = __float2half_rn((float)(m->scale * (uniform(m->seed) + (i % 3 ? 1.5 : -1.5)) / (narrow ? 8 : 127)));
        memcpy(&m->bytes[rows * groups * group_bytes + i * sizeof scale], &scale, sizeof scale);
        const int row = (int)(i / groups), first = (int)(i % groups) * QUANT_GROUP;
        for (int c = first; c < cols && c < first + QUANT_GROUP; c++) {
            const int q = (int)floor(uniform(m->seed) * (narrow ? 8 : 128)), at = c - first;
            uint8_t *group = &m->bytes[i * group_bytes];
            if (narrow)
                group[at / 2] |= (q & 15) << at % 2 * 4;
            else
                group[at] = (uint8_t)q;
            w->values[(size_t)row * cols + c] = (double)q * __half2float(scale);
        }
    }
}

// q4n, q5 and q6: any bits, in what fills up the last group too.
static inline void make_six_bits(struct quant_maker *m, struct weights *w)
{
    const enum dtype type = w->device.dtype;
    const size_t rows = w->device.rows, cols = w->device.cols, groups = quant_groups((int)cols);
    const size_t pitch = groups * dtype_group_bytes[type], more = dtype_group_bytes[type] - 16;
    for (size_t i = 0; i < rows * (pitch + groups); i++)
        m->bytes[i] = (uint8_t)floor(128 + 128 * uniform(m->seed));
    for (size_t r = 0; r < rows; r++) {
        const float row_scale = (float)(m->scale * (uniform(m->seed) + (r % 3 ? 1.5 : -1.5)) / 32 / 127);
        memcpy(&m->bytes[rows * (pitch + groups) + r * sizeof row_scale], &row_scale, sizeof row_scale);
        for (size_t c = 0; c < cols; c++) {
            const size_t group = c / QUANT_GROUP;
            const uint8_t *low = &m->bytes[r * pitch + 16 * group], *high = &m->bytes[r * pitch + 16 * groups + more * group];
            const int value = six_bit_value(type, low, high, (int)(c % QUANT_GROUP));
            w->values[r * cols + c] = (double)value * (int8_t)m->bytes[rows * pitch + r * groups + group] * row_scale;
        }
    }
}

static inline void make_floats(struct quant_maker *m, struct weights *w)
{
    const size_t rows = w->device.rows, cols = w->device.cols;
    for (size_t i = 0; i < rows * cols; i++) {
        if (w->device.dtype == DTYPE_FP8) {
            const uint8_t byte = (uint8_t)(128 + floor(uniform(m->seed) * 128));
            m->bytes[i] = (byte & 0x7f) == 0x7f ? 0 : byte;
            w->values[i] = e4m3_value(m->bytes[i]);
        } else {
            m->bytes[i] = __half_as_ushort(__float2half_rn((float)(m->scale * uniform(m->seed)))) >> 8;
            w->values[i] = __half2float(__ushort_as_half((unsigned short)(m->bytes[i] << 8)));
        }
    }
    for (size_t r = 0; r < rows && w->device.dtype == DTYPE_FP8; r++) {
        const float scale = (float)(m->scale * (uniform(m->seed) + (r % 3 ? 1.5 : -1.5)) / 448);
        memcpy(&m->bytes[rows * cols + r * sizeof scale], &scale, sizeof scale);
        for (size_t c = 0; c < cols; c++)
            w->values[r * cols + c] *= scale;
    }
}

static inline struct weights quantised_weights(uint64_t *seed, enum dtype type, int rows, int cols, double scale)
{
    struct weights w = {{NULL, type, rows, cols}, std::vector<double>((size_t)rows * cols)};
    struct quant_maker maker = {seed, scale, {}};
    maker.bytes.resize(factors_at(&w.device) + sizeof(struct product_factors));
    if (type == DTYPE_Q8 || type == DTYPE_Q4)
        make_groups(&maker, &w);
    else if (dtype_is_six_bit(type))
        make_six_bits(&maker, &w);
    else
        make_floats(&maker, &w);
    yalm_error error = {};
    w.device.data = device_copy(maker.bytes);
    assert_ok(product_factors_make(&w.device, 0, &error), error);
    return w;
}

static inline struct weights random_weights(uint64_t *seed, enum dtype type, int rows, int cols)
{
    struct weights w = {{NULL, type, rows, cols}, std::vector<double>((size_t)rows * cols)};
    if (matrix_is_quantised(&w.device))
        return quantised_weights(seed, type, rows, cols, 1);
    for (double &value : w.values) {
        value = uniform(seed);
    }
    w.device.data = type == DTYPE_FP32   ? typed_copy<float>(w.values, same, same)
                    : type == DTYPE_FP16 ? typed_copy<half>(w.values, to_half, half_value)
                                         : typed_copy<__nv_bfloat16>(w.values, to_bfloat16, bfloat16_value);
    return w;
}

static inline void free_weights(const struct weights *w)
{
    cudaFree(const_cast<void *>(w->device.data));
}

static inline double silu_of(double x)
{
    return x / (1 + exp(-x));
}

// rmsnorm(x) * norm
static inline std::vector<double> normalised(const float *x, const float *norm, double eps, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) {
        squares += (double)x[i] * x[i];
    }
    std::vector<double> y(n);
    for (int i = 0; i < n; i++) {
        y[i] = x[i] / sqrt(squares / n + eps) * norm[i];
    }
    return y;
}

// w[row] · x, and in *magnitude the sum of its terms' magnitudes.
static inline double dot(const struct weights *w, int row, const std::vector<double> &x, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int c = 0; c < w->device.cols; c++) {
        sum += w->at(row, c) * x[c];
        *magnitude += fabs(w->at(row, c) * x[c]);
    }
    return sum;
}

// How far rounding x moves w[row] · x: one token's products with q8 and q4 round it to 1 / 32512 of the largest of each 128
// columns.
static inline double input_error(const struct weights *w, int row, const std::vector<double> &x)
{
    double sum = 0;
    for (int first = 0; first < w->device.cols && dtype_group_bytes[w->device.dtype]; first += 128) {
        double most = 0, magnitude = 0;
        for (int c = first; c < w->device.cols && c < first + 128; c++) {
            most = fmax(most, fabs(x[c]));
            magnitude += fabs(w->at(row, c));
        }
        sum += magnitude * most * 0.501 / 32512;
    }
    return sum;
}
