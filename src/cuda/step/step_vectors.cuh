// What a step does besides products and attention (step.cuh): norms of whole vectors, and products of float32 with few rows,
// such as a router's. Bytes: what they read, once for each block that has a part of it, from the L2 cache.
#pragma once
#include "cuda/step/step_products.cuh"

// y = [old +] rmsnorm(x), the block's share of it: all blocks read all of x.
__device__ __forceinline__ void step_norm(const struct step_phase &p, const struct step_progress &now,
                                          const struct step_memory &m)
{
    enum { AT_ONCE = 4 };
    const struct step_batch b = step_first_batch<true>(p);
    if (b.n <= 0)
        return step_pass();
    const int warp = (int)threadIdx.x / 32;
    float *squares = m.squares + now.phase % 2 * STEP_WARPS, own = 0;
    for (int first = 4 * (int)threadIdx.x; first < p.cols; first += AT_ONCE * 4 * STEP_THREADS) {
        const float *from[AT_ONCE];
        float4 x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            from[i] = first + i * 4 * STEP_THREADS < p.cols ? p.x + first + i * 4 * STEP_THREADS : NULL;
        told_wait_fours(x, from, step_parity(p.x_words, p.launch));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            own = fmaf(x[i].x, x[i].x, fmaf(x[i].y, x[i].y, fmaf(x[i].z, x[i].z, fmaf(x[i].w, x[i].w, own))));
    }
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0)
        squares[warp] = own;
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    const float scale = step_norm_scale(p, squares);
    for (int i = b.first + (int)threadIdx.x; i < b.last; i += STEP_THREADS) {
        float y = told_wait(p.x + i, step_parity(p.x_words, p.launch)) * scale * __ldg(p.norm + i);
        if (p.old)
            y += told_wait(p.old + i, step_parity(p.old_words, p.launch));
        told_store(p.y[0] + i, p.scale ? y * __ldg(p.scale) : y, step_parity(p.y_words[0], p.launch));
    }
}

// y = w h + bias, of float32: each warp has rows of its own.
__device__ __forceinline__ void step_narrow(const struct step_phase &p)
{
    enum { AT_ONCE = 4 };
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int unit = (int)blockIdx.x + (int)gridDim.x * warp; unit < p.units; unit += (int)gridDim.x * STEP_WARPS) {
        int part, row;
        step_find_row(p, unit, &part, &row);
        const float *w = reinterpret_cast<const float *>(p.w[part]) + (int64_t)row * p.cols;
        float sum = 0, squares = 0;
        for (int first = 4 * lane; first < p.cols; first += AT_ONCE * 128) {
            float4 x[AT_ONCE], norm[AT_ONCE], weights[AT_ONCE];
            int col[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                col[i] = first + i * 128;
                weights[i] = col[i] < p.cols ? __ldg(reinterpret_cast<const float4 *>(w + col[i])) : float4{0, 0, 0, 0};
            }
            step_fetch_x(x, norm, p, col);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float4 h = step_normalise(x[i], norm[i], squares), &v = weights[i];
                sum = fmaf(h.x, v.x, fmaf(h.y, v.y, fmaf(h.z, v.z, fmaf(h.w, v.w, sum))));
            }
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            squares += __shfl_xor_sync(0xffffffffu, squares, step);
        }
        const float scale = p.norm ? 1.0f / sqrtf(squares / (float)p.cols + p.eps) : 1.0f;
        if (lane == 0)
            told_store(p.y[part] + row, sum * scale + (p.bias[part] ? __ldg(p.bias[part] + row) : 0.0f),
                       step_parity(p.y_words[part], p.launch));
    }
    step_pass();
}
