// Gemma 4's own steps of a layer: inputs of its own, experts with norms of their own, a factor of its output; and what a head
// that guesses reads. Bound by reading and writing each once.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"
#include "model/activation.h"

enum { INPUT_THREADS = 128, JOIN_THREADS = 256, SCALE_THREADS = 256 };

// Block (layer, t).
static __global__ void mix_inputs_kernel(float *inputs, const float *rows, const float *norm, float shrink, float eps,
                                         int width)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t at = ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * width;
    float *u = inputs + at, squares = 0;
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
        const float x = shrink * u[i];
        squares = fmaf(x, x, squares);
    }
    const float scale = shrink / sqrtf(block_sum(squares, sums) / (float)width + eps), half_root = sqrtf(0.5f);
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        u[i] = half_root * (u[i] * scale * norm[i] + rows[at + i]);
}

yalm_status mix_inputs(float *inputs, const float *rows, const float *norm, float shrink, float eps, int n, int n_layers,
                       int width, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(n_layers, n);
    return LAUNCH(error, mix_inputs_kernel, grid, INPUT_THREADS, 0, stream, inputs, rows, norm, shrink, eps, width);
}

// Block t.
template <class T>
static __global__ void gate_inputs_kernel(void *y, const float *gate, const float *inputs, size_t pitch, const float *x,
                                          float eps, int dim, int width, enum activation activation)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t t = blockIdx.x;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < dim && x; i += (int)blockDim.x) {
        const float value = x[t * dim + i];
        squares = fmaf(value, value, squares);
    }
    const float length = x ? sqrtf(block_sum(squares, sums) / (float)dim + eps) : 1.0f;
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        static_cast<T *>(y)[t * width + i] =
            from_float<T>(gated_unit(activation, length * gate[t * width + i], inputs[t * pitch + i]));
}

yalm_status gate_inputs(void *y, enum dtype type, const float *gate, const float *inputs, size_t pitch, const float *x,
                        float eps, int dim, int n, int width, enum activation activation, cudaStream_t stream,
                        yalm_error *error)
{
    return LAUNCH_TYPE(type, error, gate_inputs_kernel, n, JOIN_THREADS, 0, stream, y, gate, inputs, pitch, x, eps, dim, width,
                       activation);
}

// Block (half, t).
template <class T>
static __global__ void pair_norms_kernel(void *y, const float *x, const float *norm, const float *hidden,
                                         const float *hidden_norm, float eps, int dim)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t at = (size_t)blockIdx.y * dim;
    const float *row = (blockIdx.x ? hidden : x) + at, *weight = blockIdx.x ? hidden_norm : norm;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        squares = fmaf(row[i], row[i], squares);
    const float scale = 1.0f / sqrtf(block_sum(squares, sums) / (float)dim + eps);
    T *to = static_cast<T *>(y) + 2 * at + (size_t)blockIdx.x * dim;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        to[i] = from_float<T>(row[i] * scale * weight[i]);
}

yalm_status pair_norms(void *y, enum dtype type, const float *x, const float *norm, const float *hidden,
                       const float *hidden_norm, float eps, int n, int dim, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(2, n);
    return LAUNCH_TYPE(type, error, pair_norms_kernel, grid, JOIN_THREADS, 0, stream, y, x, norm, hidden, hidden_norm, eps,
                       dim);
}

static __global__ void scale_stream_kernel(float *x, const float *factor, size_t n)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= *factor;
}

yalm_status scale_stream(float *x, const float *factor, size_t n, cudaStream_t stream, yalm_error *error)
{
    const unsigned blocks = (unsigned)((n + SCALE_THREADS - 1) / SCALE_THREADS);
    return LAUNCH(error, scale_stream_kernel, blocks, SCALE_THREADS, 0, stream, x, factor, n);
}

// x, normalised by `factor` and weighted by `norm`; as it is where norm is NULL; 0 where x is NULL.
__device__ static inline float part_of(const float *x, size_t at, float factor, const float *norm, int i)
{
    return !x ? 0.0f : norm ? x[at + i] * factor * norm[i] : x[at + i];
}

// Block t.
static __global__ void join_experts_kernel(float *x, const float *shared, float *sum, const float *shared_norm,
                                           const float *sum_norm, const float *norm, float eps, int dim)
{
    SHARED_ARRAY(float, shared_sums, 32);
    SHARED_ARRAY(float, sum_sums, 32);
    SHARED_ARRAY(float, both_sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t at = (size_t)blockIdx.x * dim;
    float of_shared = 0, of_sum = 0, of_both = 0;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        of_shared = shared ? fmaf(shared[at + i], shared[at + i], of_shared) : 0.0f;
        of_sum = fmaf(sum[at + i], sum[at + i], of_sum);
    }
    const float shared_scale = 1.0f / sqrtf(block_sum(of_shared, shared_sums) / (float)dim + eps),
                sum_scale = 1.0f / sqrtf(block_sum(of_sum, sum_sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        const float both = part_of(shared, at, shared_scale, shared_norm, i) + part_of(sum, at, sum_scale, sum_norm, i);
        of_both = fmaf(both, both, of_both);
    }
    const float scale = 1.0f / sqrtf(block_sum(of_both, both_sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        const float both = part_of(shared, at, shared_scale, shared_norm, i) + part_of(sum, at, sum_scale, sum_norm, i);
        x[at + i] += both * scale * norm[i];
        sum[at + i] = 0;
    }
}

yalm_status join_experts(float *x, const float *shared, float *sum, const float *shared_norm, const float *sum_norm,
                         const float *norm, float eps, int n, int dim, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH(error, join_experts_kernel, n, JOIN_THREADS, 0, stream, x, shared, sum, shared_norm, sum_norm, norm, eps,
                  dim);
}
