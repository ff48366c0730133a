// Further norms of some models: of single heads of queries and keys before rotation, or of all heads together; and of a block's
// output. Bound by reading and writing each once.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"

enum { HEAD_THREADS = 32, ROW_THREADS = 256 };

// Block (head, t), one warp: x = x / sqrt(mean(x²) + eps) * weight over the head's components.
static __global__ void rmsnorm_heads_kernel(float *x, int pitch, const float *weight, float eps, int head_dim)
{
    grid_dependency_launch();
    grid_dependency_wait();
    float *head = x + (size_t)blockIdx.y * pitch + (size_t)blockIdx.x * head_dim;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < head_dim; i += HEAD_THREADS)
        squares = fmaf(head[i], head[i], squares);
    const float scale = 1.0f / sqrtf(warp_sum(squares) / (float)head_dim + eps);
    for (int i = (int)threadIdx.x; i < head_dim; i += HEAD_THREADS)
        head[i] = head[i] * scale * weight[i];
}

// Block t: x[t] += y[t] / sqrt(mean(y[t]²) + eps) * weight; weight NULL: += y[t].
static __global__ void add_rmsnorm_kernel(float *x, const float *y, const float *weight, float eps, int dim)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const float *from = y + (size_t)blockIdx.x * dim;
    float *to = x + (size_t)blockIdx.x * dim, squares = 0;
    for (int i = (int)threadIdx.x; i < dim && weight; i += (int)blockDim.x)
        squares = fmaf(from[i], from[i], squares);
    const float scale = 1.0f / sqrtf(block_sum(squares, sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        to[i] += weight ? from[i] * scale * weight[i] : from[i];
}

yalm_status add_rmsnorm(float *x, const float *y, const float *weight, float eps, int n, int dim, cudaStream_t stream,
                        yalm_error *error)
{
    return LAUNCH(error, add_rmsnorm_kernel, n, ROW_THREADS, 0, stream, x, y, weight, eps, dim);
}

yalm_status rmsnorm_heads(float *x, int pitch, const float *weight, float eps, int n, int n_heads, int head_dim,
                          cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(n_heads, n);
    return LAUNCH(error, rmsnorm_heads_kernel, grid, HEAD_THREADS, 0, stream, x, pitch, weight, eps, head_dim);
}
