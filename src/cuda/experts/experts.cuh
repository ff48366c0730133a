// Products of many tokens with the experts that they have chosen: which tokens an expert has is known on the device only.
//
// Every launch has blocks for as many tokens as there could be; those without any end at once. A block computes ROWS rows of
// one expert's matrix (of two, gate and up, together) for TOKENS of its tokens: STEP columns at a time go through registers to
// shared memory while the step before is multiplied. Weights of 16 bits are multiplied on the tensor cores. fp32 weights are
// multiplied in fp32, each thread computing the same elements.
#pragma once
#include "cuda/products/matvec.cuh"

enum {
    GROUP_ROWS = 64,
    GROUP_TOKENS = 64,
    GROUP_STEP = 32,
    GROUP_THREADS = 128,          // 2 x 2 warps, each 32 rows x 32 tokens: 2 x 4 tiles of mma_m16n8k16
    GROUP_PITCH = GROUP_STEP + 8, // elements from row to row in shared memory: rows of a matrix tile in different banks
};

// A slot is (token, i): the i-th expert of a token.
struct group_product {
    const struct expert_weights *table;
    enum dtype type;       // experts without such a product have no part
    const int32_t *counts; // (n_experts): slots that chose the expert
    const int32_t *slots;  // (n_experts, n): which
    int n, n_active, rows, cols;
    const float *x; // (n, cols) for gate and up, (n * n_active, cols) for down
    float *y;       // (n * n_active, rows)
    enum activation activation;
};

// One thread's share of a step, on its way to shared memory.
template <class T, int MATRICES> struct group_step {
    static constexpr int PACKS = GROUP_ROWS * GROUP_STEP / PACK<T> / GROUP_THREADS;
    static constexpr int QUADS = GROUP_TOKENS * GROUP_STEP / 4 / GROUP_THREADS;
    uint4 w[MATRICES][PACKS];
    float4 x[QUADS];
};

template <class T> struct group_tiles {
    T w[2][GROUP_ROWS * GROUP_PITCH];
    T x[GROUP_TOKENS * GROUP_PITCH];
};

// sum[m][i][j]: of matrix m, rows 16 i and tokens 8 j of the warp's share on, by the layout of mma_m16n8k16's sums.
template <int MATRICES> struct group_sums {
    float at[MATRICES][2][4][4];
};

// Elements [col, col + 4) of a row of `cols`, zeros beyond its end.
template <bool ALIGNED> __device__ __forceinline__ float4 load_quad(const float *row, int col, int cols)
{
    if (ALIGNED)
        return col < cols ? *reinterpret_cast<const float4 *>(row + col) : float4{0, 0, 0, 0};
    return {col < cols ? row[col] : 0.0f, col + 1 < cols ? row[col + 1] : 0.0f, col + 2 < cols ? row[col + 2] : 0.0f,
            col + 3 < cols ? row[col + 3] : 0.0f};
}

template <class T, bool ALIGNED, int MATRICES>
__device__ __forceinline__ void load_step(struct group_step<T, MATRICES> &step, const T *const (&w)[MATRICES],
                                          const struct group_product &p, const int32_t *x_rows, int first_row, int col)
{
    constexpr int row_packs = GROUP_STEP / PACK<T>;
#pragma unroll
    for (int i = 0; i < group_step<T, MATRICES>::PACKS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS, row = first_row + at / row_packs;
        const int pack_col = col + at % row_packs * PACK<T>;
        const size_t from = row < p.rows ? (size_t)row * p.cols + pack_col : 0;
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
            step.w[m][i] = load_pack<T, ALIGNED>(w[m] + from, row < p.rows ? p.cols - pack_col : 0);
    }
#pragma unroll
    for (int i = 0; i < group_step<T, MATRICES>::QUADS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS, x_row = x_rows[at / (GROUP_STEP / 4)];
        const int x_col = col + at % (GROUP_STEP / 4) * 4;
        step.x[i] = x_row >= 0 ? load_quad<ALIGNED>(p.x + (size_t)x_row * p.cols, x_col, p.cols) : float4{0, 0, 0, 0};
    }
}

template <class T, int MATRICES>
__device__ __forceinline__ void store_step(struct group_tiles<T> *tiles, const struct group_step<T, MATRICES> &step)
{
    constexpr int row_packs = GROUP_STEP / PACK<T>;
#pragma unroll
    for (int i = 0; i < group_step<T, MATRICES>::PACKS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS;
        const int to = at / row_packs * GROUP_PITCH + at % row_packs * PACK<T>;
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
            *reinterpret_cast<uint4 *>(&tiles->w[m][to]) = step.w[m][i];
    }
#pragma unroll
    for (int i = 0; i < group_step<T, MATRICES>::QUADS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS;
        T *to = &tiles->x[at / (GROUP_STEP / 4) * GROUP_PITCH + at % (GROUP_STEP / 4) * 4];
        to[0] = from_float<T>(step.x[i].x);
        to[1] = from_float<T>(step.x[i].y);
        to[2] = from_float<T>(step.x[i].z);
        to[3] = from_float<T>(step.x[i].w);
    }
}

// sums += w xᵀ of the step in shared memory: on the tensor cores.
template <class T, int MATRICES>
__device__ __forceinline__ void multiply_step(struct group_sums<MATRICES> &sums, const struct group_tiles<T> *tiles,
                                              int warp_row, int warp_token, int lane)
{
#pragma unroll
    for (int k = 0; k < GROUP_STEP; k += 16) {
        unsigned b[2][4]; // two times two tiles of 8 tokens, each of 16 columns
#pragma unroll
        for (int j = 0; j < 2; j++)
            ldmatrix_x4(b[j], &tiles->x[(warp_token + 16 * j + lane % 8 + lane / 16 * 8) * GROUP_PITCH + k + lane / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                unsigned a[4];
                ldmatrix_x4(a, &tiles->w[m][(warp_row + 16 * i + lane % 16) * GROUP_PITCH + k + lane / 16 * 8]);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const unsigned columns[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    mma_m16n8k16<T>(sums.at[m][i][j], a, columns);
                }
            }
    }
}

// The same elements in fp32.
template <int MATRICES>
__device__ __forceinline__ void multiply_step(struct group_sums<MATRICES> &sums, const struct group_tiles<float> *tiles,
                                              int warp_row, int warp_token, int lane)
{
#pragma unroll 2
    for (int k = 0; k < GROUP_STEP; k++) {
        float x[4][2];
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[j / 2][j % 2] = tiles->x[(warp_token + 8 * (j / 2) + 2 * (lane % 4) + j % 2) * GROUP_PITCH + k];
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float w = tiles->w[m][(warp_row + 8 * i + lane / 4) * GROUP_PITCH + k];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    float *sum = &sums.at[m][i / 2][j / 2][i % 2 * 2 + j % 2];
                    *sum = fmaf(w, x[j / 2][j % 2], *sum);
                }
            }
    }
}

// Block (token tile, row tile, expert).
template <class T, bool ALIGNED, enum matvec_kind KIND>
static __global__ void __launch_bounds__(GROUP_THREADS, 2) group_kernel(struct group_product p)
{
    constexpr int matrices = KIND == MATVEC_GATED ? 2 : 1;
    SHARED_ARRAY(struct group_tiles<T>, tiles, 1);
    SHARED_ARRAY(int32_t, x_rows, GROUP_TOKENS);
    grid_dependency_launch();
    grid_dependency_wait();
    const struct expert_weights *e = p.table + blockIdx.z;
    const int first_row = (int)blockIdx.y * GROUP_ROWS, first_token = (int)blockIdx.x * GROUP_TOKENS;
    const int n_tokens = min(p.counts[blockIdx.z] - first_token, (int)GROUP_TOKENS);
    if (n_tokens <= 0 || !expert_has<KIND>(e, p.type))
        return;
    const int32_t *slots = p.slots + (size_t)blockIdx.z * p.n + first_token;
    if (threadIdx.x < GROUP_TOKENS)
        x_rows[threadIdx.x] = (int)threadIdx.x >= n_tokens ? -1
                              : KIND == MATVEC_ADD         ? slots[threadIdx.x]
                                                           : slots[threadIdx.x] / p.n_active;
    __syncthreads();

    const struct matrix *first = KIND == MATVEC_ADD ? &e->down : KIND == MATVEC_UP ? &e->up : &e->gate;
    const T *w[matrices] = {static_cast<const T *>(first->data)};
    if (matrices == 2)
        w[matrices - 1] = static_cast<const T *>(e->up.data);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warp_row = warp / 2 * 32, warp_token = warp % 2 * 32;
    struct group_sums<matrices> sums = {
    };
    struct group_step<T, matrices> step;
    load_step<T, ALIGNED>(step, w, p, x_rows, first_row, 0);
    for (int col = 0; col < p.cols; col += GROUP_STEP) {
        store_step(tiles, step);
        __syncthreads();
        if (col + GROUP_STEP < p.cols)
            load_step<T, ALIGNED>(step, w, p, x_rows, first_row, col + GROUP_STEP);
        multiply_step(sums, tiles, warp_row, warp_token, lane);
        __syncthreads();
    }

    const float *bias = KIND == MATVEC_ADD ? e->down_bias : KIND == MATVEC_UP ? e->up_bias : e->gate_bias;
#pragma unroll
    for (int at = 0; at < 32; at++) {
        const int i = at / 16, j = at / 4 % 4, q = at % 4;
        const int row = first_row + warp_row + 16 * i + q / 2 * 8 + lane / 4,
                  token = warp_token + 8 * j + 2 * (lane % 4) + q % 2;
        if (row >= p.rows || token >= n_tokens)
            continue;
        float value = sums.at[0][i][j][q] + (bias ? bias[row] : 0.0f);
        float *y = p.y + (size_t)slots[token] * p.rows + row;
        if (KIND == MATVEC_GATED)
            value = gated_unit(p.activation, value, sums.at[matrices - 1][i][j][q] + (e->up_bias ? e->up_bias[row] : 0.0f));
        else if (KIND == MATVEC_UP)
            value = gated_unit(p.activation, *y, value);
        *y = value;
    }
}

template <class T, enum matvec_kind KIND>
static yalm_status group_launch(const struct group_product *p, int n_experts, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid((p->n + GROUP_TOKENS - 1) / GROUP_TOKENS, (p->rows + GROUP_ROWS - 1) / GROUP_ROWS, n_experts);
    if (p->cols * sizeof(T) % 16 == 0) // a tensor begins at a multiple of 256 bytes
        return LAUNCH(error, (group_kernel<T, true, KIND>), grid, GROUP_THREADS, 0, stream, *p);
    return LAUNCH(error, (group_kernel<T, false, KIND>), grid, GROUP_THREADS, 0, stream, *p);
}

// The same of quantised experts (experts_quant.cu).
yalm_status quant_group_run(const struct group_product *p, enum matvec_kind kind, int n_experts, cudaStream_t stream,
                            yalm_error *error);

template <enum matvec_kind KIND>
static yalm_status group_run(const struct group_product *p, int n_experts, cudaStream_t stream, yalm_error *error)
{
    switch (p->type) {
    case DTYPE_FP32:
        return group_launch<float, KIND>(p, n_experts, stream, error);
    case DTYPE_FP16:
        return group_launch<half, KIND>(p, n_experts, stream, error);
    case DTYPE_BF16:
        return group_launch<__nv_bfloat16, KIND>(p, n_experts, stream, error);
    default:
        return quant_group_run(p, KIND, n_experts, stream, error);
    }
}
