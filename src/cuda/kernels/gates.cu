// Gates of some models, factors between 0 and 1: of attention's output, and of the shared expert's. And an activation without
// a gate, whose numbers are each layer's own.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum { GATE_THREADS = 256 };

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <class T> static __global__ void sigmoid_multiply_kernel(void *x, const float *gates, size_t n)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    T *to = static_cast<T *>(x);
    if (i < n)
        to[i] = from_float<T>(to_float(to[i]) * sigmoid(gates[i]));
}

yalm_status sigmoid_multiply(void *x, enum dtype type, const float *gates, size_t n, cudaStream_t stream, yalm_error *error)
{
    const unsigned blocks = (unsigned)((n + GATE_THREADS - 1) / GATE_THREADS);
    return LAUNCH_TYPE(type, error, sigmoid_multiply_kernel, blocks, GATE_THREADS, 0, stream, x, gates, n);
}

template <class T> static __global__ void xielu_kernel(void *y, const float *x, const float *parameters, size_t n)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const float p = parameters[0], below = parameters[1], b = parameters[2];
    static_cast<T *>(y)[i] = from_float<T>(b * x[i] + (x[i] > 0 ? p * x[i] * x[i] : below * (expm1f(x[i]) - x[i])));
}

yalm_status xielu(void *y, enum dtype type, const float *x, const float *parameters, size_t n, cudaStream_t stream,
                  yalm_error *error)
{
    const unsigned blocks = (unsigned)((n + GATE_THREADS - 1) / GATE_THREADS);
    return LAUNCH_TYPE(type, error, xielu_kernel, blocks, GATE_THREADS, 0, stream, y, x, parameters, n);
}

// Block t.
template <class T>
static __global__ void weigh_units_kernel(void *units, int n_units, const float *router, const float *x, const float *norm,
                                          float eps, int dim)
{
    SHARED_ARRAY(float, sums, 32);
    SHARED_ARRAY(float, other_sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const float *from = x + (size_t)blockIdx.x * dim;
    T *to = static_cast<T *>(units) + (size_t)blockIdx.x * n_units;
    float squares = 0, logit = 0;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        squares = fmaf(from[i], from[i], squares);
        logit = fmaf(norm ? from[i] * norm[i] : from[i], router[i], logit);
    }
    squares = block_sum(squares, sums);
    logit = block_sum(logit, other_sums);
    const float weight = sigmoid(norm ? logit / sqrtf(squares / (float)dim + eps) : logit);
    for (int i = (int)threadIdx.x; i < n_units; i += (int)blockDim.x)
        to[i] = from_float<T>(to_float(to[i]) * weight);
}

yalm_status weigh_units(void *units, enum dtype type, int n_units, const struct matrix *router, const float *x,
                        const float *norm, float eps, int n, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH_TYPE(type, error, weigh_units_kernel, n, GATE_THREADS, 0, stream, units, n_units,
                       static_cast<const float *>(router->data), x, norm, eps, router->cols);
}
