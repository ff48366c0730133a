// Products head by head, of models that keep latents: queries are brought to the latents, and what attention finds there to
// each head's values. Inputs are floats, of many tokens, too: rounded to 16 bits they would move scores.
//
// A warp has HEADS_ROWS rows of a head and up to SEVERAL tokens; its lanes take the columns by turns. A token's sums have one
// order, however many come along. Bytes: the matrix once for SEVERAL tokens, for most of them from the L2 cache; operations:
// 2 * rows * cols a token.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum { HEADS_WARPS = 4, HEADS_ROWS = 4, HEADS_BLOCK = HEADS_WARPS * HEADS_ROWS };

struct heads {
    void *y;
    enum dtype type;
    const float *x; // (n, heads, x_dim)
    const void *w;  // (heads, rows, cols)
    int x_dim, rows, cols, kept, n;
};

// grid: (ceil(rows / HEADS_BLOCK), heads, ceil(n / TOKENS)). T: w's elements.
template <class T, int TOKENS> static __global__ void __launch_bounds__(HEADS_WARPS * 32) heads_kernel(const struct heads h)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int lane = threadIdx.x % 32, head = blockIdx.y, heads = gridDim.y, y_dim = h.rows + h.kept;
    const int first = blockIdx.x * HEADS_BLOCK + threadIdx.x / 32 * HEADS_ROWS, t0 = blockIdx.z * TOKENS;
    const T *w[HEADS_ROWS];
    const float *x[TOKENS];
    float sums[TOKENS][HEADS_ROWS] = {};
#pragma unroll
    for (int r = 0; r < HEADS_ROWS; r++) // behind the last row: that one, for nothing
        w[r] = static_cast<const T *>(h.w) + ((size_t)head * h.rows + min(first + r, h.rows - 1)) * h.cols;
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        x[t] = h.x + ((size_t)min(t0 + t, h.n - 1) * heads + head) * h.x_dim;
    for (int c = lane; c < h.cols; c += 32) {
        float of_w[HEADS_ROWS];
#pragma unroll
        for (int r = 0; r < HEADS_ROWS; r++)
            of_w[r] = to_float(w[r][c]);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            const float of_x = x[t][c];
#pragma unroll
            for (int r = 0; r < HEADS_ROWS; r++)
                sums[t][r] = fmaf(of_w[r], of_x, sums[t][r]);
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        const size_t to = ((size_t)(t0 + t) * heads + head) * y_dim;
#pragma unroll
        for (int r = 0; r < HEADS_ROWS; r++) {
            const float sum = warp_sum(sums[t][r]);
            if (lane == 0 && t0 + t < h.n && first + r < h.rows)
                store_as(h.y, h.type, to + first + r, sum);
        }
        for (int i = threadIdx.x; blockIdx.x == 0 && t0 + t < h.n && i < h.kept; i += HEADS_WARPS * 32)
            store_as(h.y, h.type, to + h.rows + i, x[t][h.x_dim - h.kept + i]);
    }
}

template <class T> static yalm_status launch(const struct heads &h, int heads, cudaStream_t stream, yalm_error *error)
{
    const unsigned blocks = (h.rows + HEADS_BLOCK - 1) / HEADS_BLOCK;
    const dim3 one(blocks, heads), several(blocks, heads, (h.n + SEVERAL - 1) / SEVERAL);
    return h.n == 1 ? LAUNCH(error, (heads_kernel<T, 1>), one, HEADS_WARPS * 32, 0, stream, h)
                    : LAUNCH(error, (heads_kernel<T, SEVERAL>), several, HEADS_WARPS * 32, 0, stream, h);
}

yalm_status multiply_heads(void *y, enum dtype type, const float *x, int x_dim, const struct matrix *w, int heads, int kept,
                           int n, cudaStream_t stream, yalm_error *error)
{
    const struct heads h = {y, type, x, w->data, x_dim, w->rows / heads, w->cols, kept, n};
    return w->dtype == DTYPE_FP32   ? launch<float>(h, heads, stream, error)
           : w->dtype == DTYPE_FP16 ? launch<half>(h, heads, stream, error)
           : w->dtype == DTYPE_BF16 ? launch<__nv_bfloat16>(h, heads, stream, error)
                                    : no_kernel(w->dtype, error);
}
