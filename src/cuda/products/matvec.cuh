// y = W x for one vector: decode's products, bound by reading W once.
//
// Blocks of 16 warps, one for each multiprocessor, which take about as many rows as all others; where shared memory is too
// small for these, two of 8 warps. A row is cut into segments of up to DEPTH steps, a step being one 16-byte pack for each lane
// of a warp: 512 bytes. A row's segment is a tile. The block's warps take its tiles in turn, whatever row they belong to, so
// few long rows keep them as busy as many short ones.
//
// A warp always has DEPTH steps on their way from memory (cp.async). As soon as one has been used, its place in shared memory
// waits for the same step of the warp's next tile. By Little's law an H200 needs about 4.3 TB/s * 0.7 us / 132 = 23 KB in
// flight on each multiprocessor; WARPS * 32 lanes * DEPTH * 16 bytes are 64 KB. (Loads to registers would do without shared
// memory, but the compiler waits for loads by six counters only, and shares them: a wait for the oldest load then is one for
// the youngest, too.)
//
// x lies in shared memory as floats, in the order in which lanes read it without conflicts, zeros beyond its end. Its
// normalisation is one factor, which the results get: W rmsnorm(x) = 1 / rms(x) * W (x ∘ norm).
//
// The weights depend on no earlier kernel: the first tiles are asked for before the dependency is waited for, and arrive
// meanwhile. For that a block comes to its multiprocessor while the kernel before still runs there; blocks are so large that
// there is room for exactly one.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum {
    MATVEC_WARPS = 16, // of a block, at most
    MATVEC_DEPTH = 8,
    MATVEC_RING = MATVEC_DEPTH * 512, // bytes, of a warp
    MATVEC_MAX_TILES = 4096,          // of a block
    MATVEC_AHEAD = 64 << 10,          // bytes of the next product for each block (prefetch_next)
};

// What a product does with its sums.
enum matvec_kind {
    MATVEC_STORE, // y = w x + bias, of up to three matrices, one below the other
    MATVEC_ADD,   // y += (w x + bias), times the expert's weight where there is one
    MATVEC_GATED, // y = activation(w[0] x + bias[0]) ∘ (w[1] x + bias[1]); rows of the two alternate
    // y = activation(y) ∘ (w[0] x + bias[0]): the latter half of MATVEC_GATED, where the two matrices are of different types
    MATVEC_UP,
};

struct expert_choice {
    int32_t expert;
    float weight;
};

// Whether an expert's product of this kind has matrices of `type`. STORE: gate alone, where up has another.
template <enum matvec_kind KIND>
__host__ __device__ __forceinline__ bool expert_has(const struct expert_weights *e, enum dtype type)
{
    if (KIND == MATVEC_ADD)
        return e->down.dtype == type;
    if (KIND == MATVEC_GATED)
        return e->gate.dtype == type && e->up.dtype == type;
    return e->gate.dtype != e->up.dtype && (KIND == MATVEC_UP ? e->up.dtype : e->gate.dtype) == type;
}

struct matvec {
    const void *w[3];            // (rows[i], stride)
    const float *bias[3];        // (rows[i]); NULL: none; added with the first columns
    float *y[3];                 // (rows[i])
    int rows[3], n_rows;         // in all
    int first_col, cols, stride; // columns [first_col, first_col + cols) of rows `stride` elements apart
    const float *x;              // (cols)
    const float *norm;           // (cols), of a launch of whole rows; NULL: x as it is
    float eps;
    enum activation activation; // of GATED and UP
    int segments, steps;        // of a row, of a segment
    struct upcoming next;
    int tokens;  // more than 1: of so many vectors (several.cu), x (tokens, pitch), y (tokens, rows[i])
    int x_pitch; // floats from a token's x to the next one's

    // Only of EXPERT kernels: which expert's matrices these are is known on the device only.
    const struct expert_choice *choice;
    const struct expert_weights *table;
    enum dtype type; // nothing is done where expert_has() no such product
};

// Floats of x in shared memory, zeros beyond its columns.
template <class T> __host__ __device__ __forceinline__ int padded_cols(const struct matvec &m)
{
    return m.segments * m.steps * 32 * PACK<T>;
}

// Where column c lies in shared memory: lane l's packs are read as float4s, number h of all lanes side by side.
template <class T> __device__ __forceinline__ int x_index(int col)
{
    constexpr int step = 32 * PACK<T>;
    const int in_step = col % step;
    return col - in_step + in_step % PACK<T> / 4 * 128 + in_step / PACK<T> * 4 + col % 4;
}

// A lane's part of a tile: packs at `at`, `at` + a step, …, as far as there are elements left.
template <class T> struct tile {
    const T *at;
    int left;
};

template <class T, enum matvec_kind KIND>
__device__ __forceinline__ struct tile<T> tile_of(const struct matvec &m, int number, int n_tiles, int first_row) {
    if (number >= n_tiles)
        return {static_cast<const T *>(m.w[0]), 0};
    int row = first_row + number / m.segments;
    const void *w = m.w[0];
    if (KIND == MATVEC_GATED) {
        w = row % 2 == 0 ? m.w[0] : m.w[1];
        row /= 2;
    } else if (KIND == MATVEC_STORE && row >= m.rows[0]) {
        row -= m.rows[0];
        w = row < m.rows[1] ? m.w[1] : m.w[2];
        row -= row < m.rows[1] ? 0 : m.rows[1];
    }
    const int width = m.steps * 32 * PACK<T>, segment = number % m.segments * width,
              col = segment + (int)threadIdx.x % 32 * PACK<T>;
    return {static_cast<const T *>(w) + (size_t)row * m.stride + m.first_col + col, min(m.cols, segment + width) - col};
}

// The L2 cache is asked for this block's first bytes of what the next product reads. Between two products memory would rest:
// for the end of one, the launch, and until the other has x in shared memory. (On an H100 q4 was 2 to 3 % faster with it, with
// 16 bits it made no difference.)
__device__ __forceinline__ void
prefetch_next(const struct matvec &m)
{
    if (!m.next.data[0])
        return;
    const size_t block = blockIdx.x, n_blocks = gridDim.x;
    if (m.next.side_by_side) {
        const size_t from = m.next.bytes[0] * block / n_blocks, left = m.next.bytes[0] - from;
        for (size_t at = 128 * threadIdx.x; at < MATVEC_AHEAD / 2 && at < left; at += 128 * blockDim.x) {
            prefetch_l2(static_cast<const char *>(m.next.data[0]) + from + at);
            prefetch_l2(static_cast<const char *>(m.next.data[1]) + from + at);
        }
        return;
    }
    size_t from = (m.next.bytes[0] + m.next.bytes[1] + m.next.bytes[2]) * block / n_blocks;
    const bool first = from < m.next.bytes[0];
    from -= first ? 0 : m.next.bytes[0];
    const bool third = !first && from >= m.next.bytes[1];
    from -= third ? m.next.bytes[1] : 0;
    const void *data = first ? m.next.data[0] : third ? m.next.data[2] : m.next.data[1];
    const size_t left = (first ? m.next.bytes[0] : third ? m.next.bytes[2] : m.next.bytes[1]) - from;
    for (size_t at = 128 * threadIdx.x; at < MATVEC_AHEAD && at < left; at += 128 * blockDim.x)
        prefetch_l2(static_cast<const char *>(data) + from + at);
}

// Pack j of a tile sets out for this lane's place in the ring.
template <class T, bool ALIGNED> __device__ __forceinline__ void fetch(uint4 *ring, const struct tile<T> &tile, int j)
{
    constexpr int step = 32 * PACK<T>;
    if (ALIGNED)
        copy_async16(ring + 32 * j, tile.at + j * step, tile.left > j * step);
    else
        ring[32 * j] = load_pack<T, false>(tile.at + j * step, tile.left - j * step);
}

// x (∘ norm) to shared memory, this thread's share; returns its sum of squares. The norm, a weight, is fetched before the wait;
// x by way of the L2 cache, since an earlier kernel may have left an older x in this multiprocessor's L1.
template <class T, bool ALIGNED> __device__ __forceinline__ float stage_x(float *xs, const struct matvec &m)
{
    const int padded = padded_cols<T>(m);
    float squares = 0;
    if (ALIGNED) {
        for (int c = 4 * (int)threadIdx.x; c < padded; c += 4 * (int)blockDim.x) {
            float4 factor = {1.0f, 1.0f, 1.0f, 1.0f};
            if (m.norm && c < m.cols)
                factor = *reinterpret_cast<const float4 *>(m.norm + c);
            *reinterpret_cast<float4 *>(xs + x_index<T>(c)) = factor;
        }
        grid_dependency_wait();
#pragma unroll 4
        for (int c = 4 * (int)threadIdx.x; c < padded; c += 4 * (int)blockDim.x) {
            float4 x = {0, 0, 0, 0};
            if (c < m.cols)
                x = __ldcg(reinterpret_cast<const float4 *>(m.x + c));
            float4 *to = reinterpret_cast<float4 *>(xs + x_index<T>(c));
            squares = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, squares))));
            *to = {x.x * to->x, x.y * to->y, x.z * to->z, x.w * to->w};
        }
        return squares;
    }
    grid_dependency_wait();
    for (int c = (int)threadIdx.x; c < padded; c += (int)blockDim.x) {
        const float x = c < m.cols ? __ldcg(m.x + c) : 0.0f;
        squares = fmaf(x, x, squares);
        xs[x_index<T>(c)] = m.norm && c < m.cols ? x * m.norm[c] : x;
    }
    return squares;
}

// sum += pack · x, where x points to this lane's first float4 of the step.
template <class T> __device__ __forceinline__ void add_products(float (&sum)[2], uint4 pack, const float *x)
{
    float w[PACK<T>];
    unpack<T>(w, pack);
#pragma unroll
    for (int h = 0; h < PACK<T> / 4; h++) {
        const float4 with = *reinterpret_cast<const float4 *>(x + 128 * h);
        sum[0] = fmaf(w[4 * h], with.x, sum[0]);
        sum[1] = fmaf(w[4 * h + 1], with.y, sum[1]);
        sum[0] = fmaf(w[4 * h + 2], with.z, sum[0]);
        sum[1] = fmaf(w[4 * h + 3], with.w, sum[1]);
    }
}

// One result, or of MATVEC_GATED two become one. sums: (rows of the block, segments), of token `token`. What could be rounded
// once or twice is spelled out, so that all kernels that end here have the same bits.
template <enum matvec_kind KIND>
__device__ __forceinline__ void finish_row(const struct matvec &m, int row, const float *sums, float scale, float weight,
                                           int token = 0)
{
    const int n_sums = KIND == MATVEC_GATED ? 2 : 1;
    float value[2] = {0, 0};
    for (int i = 0; i < n_sums; i++)
        for (int s = 0; s < m.segments; s++)
            value[i] += sums[i * m.segments + s];
    if (KIND == MATVEC_GATED) {
        const float gate = fmaf(value[0], scale, m.bias[0] ? m.bias[0][row] : 0.0f),
                    up = fmaf(value[1], scale, m.bias[1] ? m.bias[1][row] : 0.0f);
        m.y[0][(size_t)token * m.rows[0] + row] = gated_unit(m.activation, gate, up);
        return;
    }
    const float *bias = m.bias[0];
    float *y = m.y[0] + (size_t)token * m.rows[0] + row;
    if (KIND == MATVEC_STORE && row >= m.rows[0]) {
        row -= m.rows[0];
        const bool second = row < m.rows[1];
        bias = second ? m.bias[1] : m.bias[2];
        row -= second ? 0 : m.rows[1];
        y = (second ? m.y[1] : m.y[2]) + (size_t)token * (second ? m.rows[1] : m.rows[2]) + row;
    }
    value[0] = fmaf(value[0], scale, bias && m.first_col == 0 ? bias[row] : 0.0f);
    if (KIND == MATVEC_STORE)
        *y = value[0];
    else
        *y = KIND == MATVEC_ADD ? fmaf(weight, value[0], __ldcg(y)) : gated_unit(m.activation, __ldcg(y), value[0]);
}

// Puts the chosen expert's matrices in the places of the dense ones. False where this launch is not for their types.
template <enum matvec_kind KIND> __device__ static inline bool resolve_expert(struct matvec &m, float *weight)
{
    const struct expert_weights *e = m.table + m.choice->expert;
    *weight = m.choice->weight;
    const bool up = KIND == MATVEC_UP;
    m.w[0] = KIND == MATVEC_ADD ? e->down.data : up ? e->up.data : e->gate.data;
    m.bias[0] = KIND == MATVEC_ADD ? e->down_bias : up ? e->up_bias : e->gate_bias;
    m.w[1] = e->up.data;
    m.bias[1] = e->up_bias;
    return expert_has<KIND>(e, m.type);
}

// Blocks that registers leave room for on a multiprocessor: the next kernel's should fit beside this one's where kernels
// overlap. For the GPUs other than Hopper the compiler wants a few registers more, and gets them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
enum { MATVEC_RESIDENTS = 1 };
#else
enum { MATVEC_RESIDENTS = 2 };
#endif
template <class T, bool ALIGNED> constexpr int matvec_residents = ALIGNED && sizeof(T) < sizeof(float) ? MATVEC_RESIDENTS : 1;

// Dynamic shared memory: the ring, x, the tiles' sums.
template <class T, bool ALIGNED, enum matvec_kind KIND, bool EXPERT>
static __global__ void __launch_bounds__(32 * MATVEC_WARPS, matvec_residents<T, ALIGNED>) matvec_kernel(struct matvec m)
{
    SHARED_DYNAMIC(uint4, rings); // (WARPS, DEPTH, 32)
    SHARED_ARRAY(float, squares, MATVEC_WARPS);
    constexpr int step = 32 * PACK<T>;
    constexpr int together = KIND == MATVEC_GATED ? 2 : 1; // rows that stay in one block
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    float weight = 1;
    grid_dependency_launch();
    if (EXPERT) {
        grid_dependency_wait();
        if (!resolve_expert<KIND>(m, &weight))
            return;
    }

    const int64_t units = m.n_rows / together;
    const int first_row = (int)(units * blockIdx.x / gridDim.x) * together;
    const int last_row = (int)(units * (blockIdx.x + 1) / gridDim.x) * together;
    const int n_tiles = (last_row - first_row) * m.segments;
    float *xs = reinterpret_cast<float *>(rings + n_warps * (MATVEC_RING / sizeof(uint4))), *sums = xs + padded_cols<T>(m);
    uint4 *ring = rings + warp * MATVEC_DEPTH * 32 + lane; // this lane's place of step 0

    struct tile<T> tile = tile_of<T, KIND>(m, warp, n_tiles, first_row);
#pragma unroll
    for (int j = 0; j < MATVEC_DEPTH; j++) {
        if (j < m.steps)
            fetch<T, ALIGNED>(ring, tile, j);
        copy_async_commit();
    }

    const float own_squares = warp_sum(stage_x<T, ALIGNED>(xs, m));
    if (lane == 0)
        squares[warp] = own_squares;
    __syncthreads();

    for (int number = warp; number < n_tiles; number += n_warps) {
        const float *x = xs + number % m.segments * m.steps * step + 4 * lane;
        tile = tile_of<T, KIND>(m, number + n_warps, n_tiles, first_row);
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < MATVEC_DEPTH; j++) {
            copy_async_wait<MATVEC_DEPTH - 1>();
            if (j < m.steps) {
                add_products<T>(sum, ring[32 * j], x + j * step);
                fetch<T, ALIGNED>(ring, tile, j);
            }
            copy_async_commit();
        }
        const float total = warp_sum(sum[0] + sum[1]);
        if (lane == 0)
            sums[number] = total;
    }
    if (!EXPERT)
        prefetch_next(m);
    __syncthreads();

    float scale = 1;
    if (m.norm) {
        float all = 0;
        for (int w = 0; w < n_warps; w++)
            all += squares[w];
        scale = 1.0f / sqrtf(all / (float)m.cols + m.eps);
    }
    for (int row = first_row / together + (int)threadIdx.x; row < last_row / together; row += (int)blockDim.x)
        finish_row<KIND>(m, row, sums + (row * together - first_row) * m.segments, scale, weight);
}

// What a device has room for, of a launch and of a block.
struct matvec_room {
    int blocks, warps, most_tiles; // of a launch, at least where there are rows enough; of a block
    size_t bytes;                  // of a block's dynamic shared memory
    int most_cols;                 // floats of x in that, in whole tiles of every type
};

static inline yalm_status matvec_room(struct matvec_room *room, yalm_error *error)
{
    int device = 0, bytes = 0, n_multiprocessors = 0;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device));
    TRY_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    const bool large = bytes >= 200 << 10;
    room->warps = large ? MATVEC_WARPS : MATVEC_WARPS / 2;
    room->blocks = large ? n_multiprocessors : 2 * n_multiprocessors;
    room->most_tiles = MATVEC_MAX_TILES / (large ? 1 : 2);
    room->bytes = bytes - 512; // the rest is static
    const int widest = MATVEC_DEPTH * 32 * PACK<half>,
              others = room->warps * MATVEC_RING + (int)sizeof(float) * room->most_tiles;
    room->most_cols = ((int)room->bytes - others) / (int)sizeof(float) / widest * widest;
    return YALM_OK;
}

// Of quantised matrices (matvec_quant.cu).
yalm_status quant_matvec_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream,
                             yalm_error *error);

// Of m->tokens vectors at once (several.cu).
yalm_status several_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream, yalm_error *error);

// Plans and launches. `type` is that of all of m->w; m->n_rows, segments and steps are set here.
template <class T, enum matvec_kind KIND, bool EXPERT>
static yalm_status matvec_launch(struct matvec m, cudaStream_t stream, yalm_error *error)
{
    struct matvec_room room;
    TRY(matvec_room(&room, error));
    if (m.cols > room.most_cols)
        return error_set(error, YALM_FAILED, "CUDA: found a product of %d columns, expected at most %d", m.cols,
                         room.most_cols);
    const int step = 32 * PACK<T>, all_steps = (m.cols + step - 1) / step;
    m.segments = (all_steps + MATVEC_DEPTH - 1) / MATVEC_DEPTH;
    m.steps = (all_steps + m.segments - 1) / m.segments;
    m.n_rows = m.rows[0] + m.rows[1] + m.rows[2];
    const int together = KIND == MATVEC_GATED ? 2 : 1, units = m.n_rows / together;
    const int most_units = room.most_tiles / (together * m.segments), needed = (units + most_units - 1) / most_units;
    int blocks = room.blocks < units ? room.blocks : units;
    blocks = blocks > needed ? blocks : needed;
    const size_t tiles = (size_t)(units + blocks - 1) / blocks * together * m.segments;
    const size_t shared = room.warps * MATVEC_RING + sizeof(float) * (padded_cols<T>(m) + tiles);

    bool aligned = m.stride * sizeof(T) % 16 == 0 && m.cols * sizeof(T) % 16 == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
    for (int i = 0; i < 3; i++)
        aligned = aligned && reinterpret_cast<uintptr_t>(m.w[i]) % 16 == 0;
    if (aligned)
        return LAUNCH_PRODUCT(error, (matvec_kernel<T, true, KIND, EXPERT>), blocks, 32 * room.warps, shared, stream, m);
    return LAUNCH_PRODUCT(error, (matvec_kernel<T, false, KIND, EXPERT>), blocks, 32 * room.warps, shared, stream, m);
}

template <enum matvec_kind KIND, bool EXPERT>
static yalm_status matvec_run(const struct matvec *m, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    if (!EXPERT && m->tokens > 1)
        return several_run(m, KIND, type, stream, error);
    switch (type) {
    case DTYPE_FP32:
        return matvec_launch<float, KIND, EXPERT>(*m, stream, error);
    case DTYPE_FP16:
        return matvec_launch<half, KIND, EXPERT>(*m, stream, error);
    case DTYPE_BF16:
        return matvec_launch<__nv_bfloat16, KIND, EXPERT>(*m, stream, error);
    default:
        return quant_matvec_run(m, KIND, type, stream, error);
    }
}

// y += (w x + bias), wide matrices some columns at a time.
template <bool EXPERT>
static yalm_status matvec_add(const struct matvec *whole, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    struct matvec_room room;
    TRY(matvec_room(&room, error));
    for (int col = 0; col < whole->cols; col += room.most_cols) {
        struct matvec m = *whole;
        m.first_col = col;
        m.cols = whole->cols - col < room.most_cols ? whole->cols - col : room.most_cols;
        m.x = whole->x + col;
        TRY((matvec_run<MATVEC_ADD, EXPERT>(&m, type, stream, error)));
    }
    return YALM_OK;
}
