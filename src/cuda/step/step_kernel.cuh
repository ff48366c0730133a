// One token's step as one kernel (step.cuh): the kernel, in two forms (plain.cu, whole.cu).
#pragma once
#include "cuda/step/plan.h"
#include "cuda/step/step_attention.cuh"
#include "cuda/step/step_delta.cuh"
#include "cuda/step/step_experts.cuh"
#include "cuda/step/step_vectors.cuh"

// The kind of layers that a phase's attention is of.
template <bool ALL>
__device__ __forceinline__ const struct step_heads &step_heads_of(const struct step_launch &l, const struct step_phase &p)
{
    return l.kinds[ALL ? p.kind : 0];
}

// Whether the block needs the token's choice of experts, which the phase for their units makes: it has a part of that, or of
// the next phases. Others must not look at logits that may be the next layer's already.
__device__ __forceinline__ bool step_chooses(const struct step_phase &p, const struct step_launch &l, int number)
{
    return p.table && p.work == STEP_GATED &&
           (step_first_batch<true>(p).n > 0 || step_first_batch<true>(l.phases[number + 1]).n > 0);
}

// ------------------------------------------------------------------------------------------ the reader

// Sets out for the L2 cache what a phase reads besides: the block's share of a norm, and of narrow matrices, which need no
// ring.
template <bool ALL> __device__ __forceinline__ void step_prefetch(const struct step_phase &p)
{
    const int first = (int)blockIdx.x + (int)gridDim.x * ((int)threadIdx.x % 32), stride = 32 * (int)gridDim.x;
    for (int line = first; p.norm && 32 * line < p.cols; line += stride)
        prefetch_l2(p.norm + 32 * line);
    for (int part = 0; ALL && p.work == STEP_NARROW && part < 3; part++)
        for (int line = first; 32 * (int64_t)line < (int64_t)p.rows[part] * p.cols; line += stride)
            prefetch_l2(p.w[part] + 128 * (int64_t)line);
}

// The warp that copies weights, one thread of it.
template <bool ALL>
__device__ __forceinline__ void step_reader(const struct step_launch &l, const struct step_now &now,
                                            const struct step_memory &m)
{
    struct step_reading reading = {{0, 0}, {0, 0}, 0};
    for (int i = 0; i < l.n_phases; i++) {
        const struct step_phase &p = l.phases[i];
        if (p.work == STEP_ATTEND) {
            step_prefetch_keys(p, step_heads_of<ALL>(l, p), now.position);
            continue;
        }
        if (ALL && p.work == STEP_RECUR) {
            step_prefetch_state(p.delta, now);
            continue;
        }
        step_prefetch<ALL>(p);
        if (ALL && (p.work == STEP_NORM || p.work == STEP_NARROW))
            continue;
        if (ALL && step_chooses(p, l, i))
            step_choose(m.chosen + STEP_MOST_ACTIVE, m.ratings + l.sizes.n_experts, p.router, now.launch);
        if (threadIdx.x % 32 == 0)
            step_read<ALL>(p, reading, l, m);
        __syncwarp();
    }
}

// ------------------------------------------------------------------------------------------ the computing warps

// The token's embedding, this block's share.
__device__ __forceinline__ void step_embed(const struct step_launch &l, const struct step_now &now)
{
    const struct matrix &e = l.embedding;
    for (int col = (int)(blockIdx.x + gridDim.x * threadIdx.x); col < e.cols; col += (int)gridDim.x * STEP_THREADS) {
        const size_t at = (size_t)now.token * e.cols + col;
        const float x = e.dtype == DTYPE_FP32   ? static_cast<const float *>(e.data)[at]
                        : e.dtype == DTYPE_FP16 ? to_float(static_cast<const half *>(e.data)[at])
                        : e.dtype == DTYPE_BF16
                            ? to_float(static_cast<const __nv_bfloat16 *>(e.data)[at])
                            : QUANT_CALL(e.dtype, 0.0f, quant_value, e.data, e.rows, e.cols, now.token, col);
        told_store(l.embedded + col, l.embedding_scale * x, step_parity(l.embedded_words, now.launch));
    }
}

// The angles of the token's position, of each kind of layers.
template <bool ALL>
__device__ __forceinline__ void step_turns(const struct step_launch &l, const struct step_now &now, const struct step_memory &m)
{
    for (int kind = 0; kind < (ALL ? l.n_kinds : 1); kind++) {
        const struct step_heads &of = l.kinds[kind];
        for (int i = (int)threadIdx.x; i < of.head_dim / 2; i += STEP_THREADS)
            m.turns[(ALL ? of.turns : 0) + i] = rotation_of(now.position, of.rope.inverse_frequency[i], of.rope.scale);
    }
}

template <bool ALL>
__device__ __forceinline__ void step_do(const struct step_phase &p, struct step_progress &at, const struct step_launch &l,
                                        const struct step_memory &m, const struct step_cut &cut, const struct step_now &now)
{
    if (p.work == STEP_ATTEND) {
        const struct step_heads &heads = step_heads_of<ALL>(l, p);
        step_attend<ALL>(p, heads, m, l.parts, ALL ? step_cut_of(heads, now.position) : cut, now);
        return;
    }
    if (ALL && p.work == STEP_RECUR)
        return step_recur(p, m, now);
    if (ALL && p.work == STEP_NORM)
        return step_norm(p, at, m);
    if (ALL && p.work == STEP_NARROW)
        return step_narrow(p);
    if (ALL && step_chooses(p, l, at.phase)) {
        step_pass();
        if (threadIdx.x < 32)
            step_choose(m.chosen, m.ratings, p.router, p.launch);
        step_pass();
    }
    step_product<ALL>(p, at, l, m);
}

template <bool ALL>
__device__ __forceinline__ void step_compute(const struct step_launch &l, const struct step_now &now,
                                             const struct step_memory &m)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const struct step_cut cut = step_cut_of(l.kinds[0], now.position);
    struct step_progress at = {{0, 0}, 0, 0};
    step_embed(l, now);
    step_turns<ALL>(l, now, m);
    // Each warp has a copy of the phase that it is at, and the next one on its way to registers.
    constexpr int words = sizeof(struct step_phase) / 16;
    static_assert(sizeof(struct step_phase) % 16 == 0 && words <= 32, "16 bytes for each lane");
    struct step_phase &p = m.phases[warp];
    uint4 next = {0, 0, 0, 0};
    if (lane < words)
        next = __ldg(reinterpret_cast<const uint4 *>(l.phases) + lane);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    for (; at.phase < l.n_phases; at.phase++) {
        __syncwarp();
        if (lane < words) {
            reinterpret_cast<uint4 *>(&p)[lane] = next;
            if (at.phase + 1 < l.n_phases)
                next = __ldg(reinterpret_cast<const uint4 *>(l.phases + at.phase + 1) + lane);
        }
        __syncwarp();
        if (lane == 0) {
            p.turn = now.launch * l.n_layers + p.layer;
            p.launch = now.launch;
        }
        __syncwarp();
        step_do<ALL>(p, at, l, m, cut, now);
    }
}

template <bool ALL>
static __global__ void __launch_bounds__(STEP_THREADS + 32, 1)
    step_kernel(const __grid_constant__ struct step_launch l, const struct step_now now)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    SHARED_DYNAMIC(uint8_t, shared);
    grid_dependency_wait();
    const struct step_memory m = step_memory_of(shared, l);
    if (threadIdx.x == 0)
        for (int i = 0; i < l.n_slots; i++) {
            arrivals_init(m.full + i, 1);
            arrivals_init(m.empty + i, STEP_WARPS);
        }
    __syncthreads();
    if (threadIdx.x >= STEP_THREADS)
        step_reader<ALL>(l, now, m);
    else
        step_compute<ALL>(l, now, m);
#endif
}

// ------------------------------------------------------------------------------------------ for the host

// struct step_form of one of them.
template <bool ALL> static yalm_status step_fits(size_t shared_bytes, int *blocks, yalm_error *error)
{
    TRY_CUDA(cudaFuncSetAttribute(step_kernel<ALL>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
    TRY_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, step_kernel<ALL>, STEP_THREADS + 32, shared_bytes));
    return YALM_OK;
}

template <bool ALL>
static yalm_status step_start(const struct step_launch *launch, const struct step_now *now, int n_blocks, size_t shared_bytes,
                              cudaStream_t stream, yalm_error *error)
{
    return LAUNCH_TOGETHER(error, step_kernel<ALL>, n_blocks, STEP_THREADS + 32, shared_bytes, stream, *launch, *now);
}
