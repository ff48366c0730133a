// Weights of each floating-point type for the tests of the CUDA half: on the device, and what they are as doubles.
#pragma once
#include "cuda_testing.h"

static const enum dtype float_types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};

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

static inline struct weights random_weights(uint64_t *seed, enum dtype type, int rows, int cols)
{
    struct weights w = {{NULL, type, rows, cols}, std::vector<double>((size_t)rows * cols)};
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
