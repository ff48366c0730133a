// Products of many tokens with quantised experts: as experts.cuh, on the tensor cores, with weights as fp16 that are exact. A
// step of its columns is a group of q8 and q4. A row's quants are integers, which fp16 holds; the step's sums are multiplied by
// the rows' scales in fp32 when they join the others. That takes 4 multiply-adds for each 2 mma of 16 x 8 x 16: one for 32
// products on each lane, beside the tensor cores' work. 8-bit floats are fp16 numbers as they are, and their rows' scales are
// multiplied with the results. So no weight is rounded, and none is too large; tokens are rounded to fp16.
//
// For each 64 rows x 64 tokens x 32 columns 2 KB (q4: 1 KB) of weights and 8 KB of x are read, mostly from the L2 cache.
#include "cuda/experts/experts.cuh"
#include "cuda/kernels/vec_quant.cuh"

static_assert((int)GROUP_STEP == (int)QUANT_GROUP, "a step is a group");

// One thread's share of a step, on its way to shared memory: 16 columns of one row of each matrix, and four times 4 columns of
// x.
template <int MATRICES> struct quant_step {
    static constexpr int QUADS = GROUP_TOKENS * GROUP_STEP / 4 / GROUP_THREADS;
    uint2 w[MATRICES][2];
    float scale[MATRICES];
    float4 x[QUADS];
};

template <int MATRICES> struct quant_tiles {
    half w[MATRICES][GROUP_ROWS * GROUP_PITCH];
    half x[GROUP_TOKENS * GROUP_PITCH];
    float scales[MATRICES][GROUP_ROWS];
};

static_assert(GROUP_ROWS * GROUP_STEP == 16 * GROUP_THREADS, "16 columns for each thread");

template <class T, int MATRICES>
__device__ __forceinline__ void load_quants(struct quant_step<MATRICES> &step, const void *const (&w)[MATRICES],
                                            const struct group_product &p, const int32_t *x_rows, int first_row, int col)
{
    const int row = first_row + (int)threadIdx.x / 2, w_col = col + (int)threadIdx.x % 2 * 16;
    const int stored = GROUPED<T> ? groups_of(p.cols) * QUANT_GROUP : p.cols; // columns of a row that are there
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
        step.scale[m] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++)
            step.w[m][i] =
                row < p.rows && w_col + 8 * i < stored ? load_eight<T>(w[m], p.cols, row, w_col + 8 * i) : uint2{0, 0};
        if (GROUPED<T> && row < p.rows)
            step.scale[m] = group_scale<T>(w[m], p.rows, p.cols, row, col / QUANT_GROUP);
    }
    const bool aligned = p.cols % 4 == 0;
#pragma unroll
    for (int i = 0; i < quant_step<MATRICES>::QUADS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS, x_row = x_rows[at / (GROUP_STEP / 4)];
        const int x_col = col + at % (GROUP_STEP / 4) * 4;
        const float *from = p.x + (size_t)(x_row >= 0 ? x_row : 0) * p.cols;
        const int cols = x_row >= 0 ? p.cols : 0;
        step.x[i] = aligned ? load_quad<true>(from, x_col, cols) : load_quad<false>(from, x_col, cols);
    }
}

template <class T, int MATRICES>
__device__ __forceinline__ void store_quants(struct quant_tiles<MATRICES> *tiles, const struct quant_step<MATRICES> &step)
{
    const int row = (int)threadIdx.x / 2, half_step = (int)threadIdx.x % 2;
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            *reinterpret_cast<uint4 *>(&tiles->w[m][row * GROUP_PITCH + 16 * half_step + 8 * i]) =
                as_halves<T>(step.w[m][i].x, step.w[m][i].y);
        if (GROUPED<T> && half_step == 0)
            tiles->scales[m][row] = step.scale[m];
    }
#pragma unroll
    for (int i = 0; i < quant_step<MATRICES>::QUADS; i++) {
        const int at = (int)threadIdx.x + i * GROUP_THREADS;
        half *to = &tiles->x[at / (GROUP_STEP / 4) * GROUP_PITCH + at % (GROUP_STEP / 4) * 4];
        to[0] = from_float<half>(step.x[i].x);
        to[1] = from_float<half>(step.x[i].y);
        to[2] = from_float<half>(step.x[i].z);
        to[3] = from_float<half>(step.x[i].w);
    }
}

// sums += scales ∘ (w xᵀ) of the step in shared memory.
template <class T, int MATRICES>
__device__ __forceinline__ void multiply_quants(struct group_sums<MATRICES> &sums, const struct quant_tiles<MATRICES> *tiles,
                                                int warp_row, int warp_token, int lane)
{
    unsigned b[2][2][4]; // for each 16 columns two times two tiles of 8 tokens
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            ldmatrix_x4(b[k][j],
                        &tiles->x[(warp_token + 16 * j + lane % 8 + lane / 16 * 8) * GROUP_PITCH + 16 * k + lane / 8 % 2 * 8]);
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unsigned a[2][4];
            const int row = warp_row + 16 * i;
#pragma unroll
            for (int k = 0; k < 2; k++)
                ldmatrix_x4(a[k], &tiles->w[m][(row + lane % 16) * GROUP_PITCH + 16 * k + lane / 16 * 8]);
            float scale[2] = {1, 1};
            if (GROUPED<T>) {
                scale[0] = tiles->scales[m][row + lane / 4];
                scale[1] = tiles->scales[m][row + lane / 4 + 8];
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float own[4] = {0, 0, 0, 0};
                float(&sum)[4] = GROUPED<T> ? own : sums.at[m][i][j];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const unsigned columns[2] = {b[k][j / 2][j % 2 * 2], b[k][j / 2][j % 2 * 2 + 1]};
                    mma_m16n8k16<half>(sum, a[k], columns);
                }
                if (GROUPED<T>)
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        sums.at[m][i][j][q] = fmaf(scale[q / 2], own[q], sums.at[m][i][j][q]);
            }
        }
}

// y[slot] of this lane's rows and tokens, as group_kernel's.
template <class T, int MATRICES>
__device__ __forceinline__ void finish_group(const struct group_sums<MATRICES> &sums, const struct group_product &p,
                                             enum matvec_kind kind, const void *const (&w)[MATRICES], const int32_t *slots,
                                             int first_row, int warp_row, int warp_token, int n_tokens, int lane)
{
    const struct expert_weights *e = p.table + blockIdx.z;
    const float *bias = kind == MATVEC_ADD ? e->down_bias : kind == MATVEC_UP ? e->up_bias : e->gate_bias;
#pragma unroll
    for (int of_row = 0; of_row < 4; of_row++) {
        const int i = of_row / 2, row = first_row + warp_row + 16 * i + of_row % 2 * 8 + lane / 4;
        if (row >= p.rows)
            continue;
        float factor[MATRICES];
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
            factor[m] = row_factor<T>(w[m], p.rows, p.cols, row);
        const float add = bias ? bias[row] : 0.0f, up_add = MATRICES == 2 && e->up_bias ? e->up_bias[row] : 0.0f;
#pragma unroll
        for (int at = 0; at < 8; at++) {
            const int j = at / 2, q = of_row % 2 * 2 + at % 2, token = warp_token + 8 * j + 2 * (lane % 4) + at % 2;
            if (token >= n_tokens)
                continue;
            float value = fmaf(sums.at[0][i][j][q], factor[0], add);
            float *y = p.y + (size_t)slots[token] * p.rows + row;
            if (MATRICES == 2)
                value = gated_unit(p.activation, value, fmaf(sums.at[MATRICES - 1][i][j][q], factor[MATRICES - 1], up_add));
            else if (kind == MATVEC_UP)
                value = gated_unit(p.activation, *y, value);
            *y = value;
        }
    }
}

__device__ static inline bool has_kind(enum matvec_kind kind, const struct expert_weights *e, enum dtype type)
{
    return kind == MATVEC_STORE ? expert_has<MATVEC_STORE>(e, type)
           : kind == MATVEC_ADD ? expert_has<MATVEC_ADD>(e, type)
           : kind == MATVEC_UP  ? expert_has<MATVEC_UP>(e, type)
                                : expert_has<MATVEC_GATED>(e, type);
}

// Block (tokens, rows, expert), as group_kernel. Two matrices: gate and up.
template <class T, int MATRICES>
static __global__ void __launch_bounds__(GROUP_THREADS, 2) quant_group_kernel(struct group_product p, enum matvec_kind kind)
{
    SHARED_ARRAY(struct quant_tiles<MATRICES>, tiles, 1);
    SHARED_ARRAY(int32_t, x_rows, GROUP_TOKENS);
    grid_dependency_launch();
    grid_dependency_wait();
    const struct expert_weights *e = p.table + blockIdx.z;
    const int first_row = (int)blockIdx.y * GROUP_ROWS, first_token = (int)blockIdx.x * GROUP_TOKENS;
    const int n_tokens = min(p.counts[blockIdx.z] - first_token, (int)GROUP_TOKENS);
    if (n_tokens <= 0 || !has_kind(kind, e, p.type))
        return;
    const int32_t *slots = p.slots + (size_t)blockIdx.z * p.n + first_token;
    if (threadIdx.x < GROUP_TOKENS)
        x_rows[threadIdx.x] = (int)threadIdx.x >= n_tokens ? -1
                              : kind == MATVEC_ADD         ? slots[threadIdx.x]
                                                           : slots[threadIdx.x] / p.n_active;
    __syncthreads();

    const void *w[MATRICES] = {kind == MATVEC_ADD ? e->down.data : kind == MATVEC_UP ? e->up.data : e->gate.data};
    if (MATRICES == 2)
        w[MATRICES - 1] = e->up.data;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warp_row = warp / 2 * 32, warp_token = warp % 2 * 32;
    struct group_sums<MATRICES> sums = {
    };
    struct quant_step<MATRICES> step;
    load_quants<T>(step, w, p, x_rows, first_row, 0);
    for (int col = 0; col < p.cols; col += GROUP_STEP) {
        store_quants<T>(tiles, step);
        __syncthreads();
        if (col + GROUP_STEP < p.cols)
            load_quants<T>(step, w, p, x_rows, first_row, col + GROUP_STEP);
        multiply_quants<T>(sums, tiles, warp_row, warp_token, lane);
        __syncthreads();
    }
    finish_group<T>(sums, p, kind, w, slots, first_row, warp_row, warp_token, n_tokens, lane);
}

template <class T>
static yalm_status quant_group_launch(const struct group_product *p, enum matvec_kind kind, int n_experts, cudaStream_t stream,
                                      yalm_error *error)
{
    const dim3 grid((p->n + GROUP_TOKENS - 1) / GROUP_TOKENS, (p->rows + GROUP_ROWS - 1) / GROUP_ROWS, n_experts);
    if (kind == MATVEC_GATED)
        return LAUNCH(error, (quant_group_kernel<T, 2>), grid, GROUP_THREADS, 0, stream, *p, kind);
    return LAUNCH(error, (quant_group_kernel<T, 1>), grid, GROUP_THREADS, 0, stream, *p, kind);
}

yalm_status quant_group_run(const struct group_product *p, enum matvec_kind kind, int n_experts, cudaStream_t stream,
                            yalm_error *error)
{
    switch (p->type) {
        QUANT_CASES(quant_group_launch, p, kind, n_experts, stream, error)
    default:
        return no_kernel(p->type, error);
    }
}
