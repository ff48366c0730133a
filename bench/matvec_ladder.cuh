// A ladder of products y = W x with one vector, from the plain one to the engine's, each step with one change
// (bench/cuda_matvec_ladder.cu times them). W is fp16, (rows, cols); x and y are fp32. What must be read once: 2 * rows *
// cols bytes.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum ladder_matvec_step {
    LADDER_THREAD_PER_ROW, // neighbouring lanes read different rows: each load of a lane is a sector of its own, for 2 bytes
    LADDER_WARP_PER_ROW,   // a warp's lanes side by side along the row, 2 bytes each: 64 bytes a load
    LADDER_PACKS,          // 16 bytes each: 512 bytes a load
    LADDER_IN_FLIGHT,      // the loads of several packs are issued, to registers, before the first is used
    LADDER_MATVEC_STEPS    // then the engine's (matvec.cuh), with copies to shared memory under way all the time
};
static const char *const ladder_matvec_names[LADDER_MATVEC_STEPS] = {"thread per row", "warp per row", "16-byte loads",
                                                                     "four in flight"};

enum { LADDER_ROW_THREADS = 256 };

struct ladder_matvec {
    const half *w;  // (rows, cols)
    const float *x; // (cols)
    float *y;       // (rows)
    int rows, cols;
};

static __global__ void ladder_thread_row_kernel(const struct ladder_matvec m)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int row = (int)(blockIdx.x * LADDER_ROW_THREADS + threadIdx.x);
    if (row >= m.rows)
        return;
    const half *w = m.w + (size_t)row * m.cols;
    float sum = 0;
    for (int c = 0; c < m.cols; c++)
        sum = fmaf(__half2float(w[c]), m.x[c], sum);
    m.y[row] = sum;
}

static __global__ void ladder_warp_row_kernel(const struct ladder_matvec m)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int row = (int)(blockIdx.x * LADDER_ROW_THREADS + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
    if (row >= m.rows)
        return;
    const half *w = m.w + (size_t)row * m.cols;
    float sum = 0;
    for (int c = lane; c < m.cols; c += 32)
        sum = fmaf(__half2float(w[c]), m.x[c], sum);
    sum = warp_sum(sum);
    if (lane == 0)
        m.y[row] = sum;
}

// PACKS packs of a lane are loaded before the first is used.
template <int PACKS> static __global__ void ladder_packs_kernel(const struct ladder_matvec m)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int row = (int)(blockIdx.x * LADDER_ROW_THREADS + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
    if (row >= m.rows)
        return;
    const half *w = m.w + (size_t)row * m.cols;
    float sum = 0;
#pragma unroll 1
    for (int first = 8 * lane; first < m.cols; first += 256 * PACKS) {
        uint4 packs[PACKS];
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            packs[i] = {0, 0, 0, 0};
            if (first + 256 * i < m.cols)
                packs[i] = load_stream(reinterpret_cast<const uint4 *>(w + first + 256 * i));
        }
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            if (first + 256 * i >= m.cols)
                break;
            float elements[8];
            unpack<half>(elements, packs[i]);
            const float4 *x = reinterpret_cast<const float4 *>(m.x + first + 256 * i);
            const float4 low = x[0], high = x[1];
            sum = fmaf(elements[0], low.x, fmaf(elements[1], low.y, fmaf(elements[2], low.z, fmaf(elements[3], low.w, sum))));
            sum =
                fmaf(elements[4], high.x, fmaf(elements[5], high.y, fmaf(elements[6], high.z, fmaf(elements[7], high.w, sum))));
        }
    }
    sum = warp_sum(sum);
    if (lane == 0)
        m.y[row] = sum;
}

// cols: a multiple of 8, w and x aligned to 16 bytes.
static inline yalm_status ladder_matvec_run(enum ladder_matvec_step step, const struct ladder_matvec *m, cudaStream_t stream,
                                            yalm_error *error)
{
    if (m->cols % 8 != 0)
        return error_set(error, YALM_USAGE, "columns: found %d, expected a multiple of 8", m->cols);
    const int warps = LADDER_ROW_THREADS / 32, blocks = (m->rows + warps - 1) / warps;
    if (step == LADDER_THREAD_PER_ROW)
        return LAUNCH(error, ladder_thread_row_kernel, (m->rows + LADDER_ROW_THREADS - 1) / LADDER_ROW_THREADS,
                      LADDER_ROW_THREADS, 0, stream, *m);
    if (step == LADDER_WARP_PER_ROW)
        return LAUNCH(error, ladder_warp_row_kernel, blocks, LADDER_ROW_THREADS, 0, stream, *m);
    if (step == LADDER_PACKS)
        return LAUNCH(error, (ladder_packs_kernel<1>), blocks, LADDER_ROW_THREADS, 0, stream, *m);
    return LAUNCH(error, (ladder_packs_kernel<4>), blocks, LADDER_ROW_THREADS, 0, stream, *m);
}
