// A ladder of decode attentions, from the plain one to the engine's, each step with one change, so that
// bench/cuda_attention_ladder.cu shows what each is worth.
//
//     attended_h = Σ_j softmax(q_h · k_j)_j v_j      for each query head h over the keys j of its KV head
//
// K and V are fp16, (n_kv_heads, capacity, head_dim) as the engine's cache has them. What must be read once: 4 * head_dim *
// n_kv_heads bytes a key. The first four steps have one block for each query head, as the CUDA engine of Andrew Chan's "Fast
// LLM inference from scratch" (2024). Its mixing of values with loads issued ahead ("att_mix") is the fourth.
#pragma once
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum ladder_attention_step {
    // Scores: a thread for each key. Mix: a warp for each component. Neighbouring lanes read different rows.
    LADDER_BLOCK_PER_HEAD,
    LADDER_COALESCED_MIX,  // mix: a warp for each key, its lanes side by side along the row
    LADDER_WARP_SCORES,    // scores likewise, summed over the warp
    LADDER_PREFETCHED_MIX, // mix: loads of several keys are issued before the first is used
    LADDER_SPLIT_KEYS, // many blocks for a head, each with a range of keys, in one pass with a running softmax; 16-byte loads
    LADDER_ATTENTION_STEPS // then the engine's, attention_decode(), which reads a KV head once for all query heads of its group
};
static const char *const ladder_attention_names[LADDER_ATTENTION_STEPS] = {"block per head", "coalesced mix", "warp scores",
                                                                           "prefetched mix", "split keys"};

enum { LADDER_THREADS = 1024, SPLIT_THREADS = 128, LADDER_MAX_DIM = 256 };

struct ladder_attention {
    const half *keys, *values; // (n_kv_heads, capacity, head_dim)
    const float *q;            // (n_heads, head_dim), times 1 / sqrt(head_dim)
    float *attended;           // (n_heads, head_dim)
    int n_heads, group, head_dim, capacity, n_keys;
    float *scores;      // (n_heads, n_keys): of the first four steps
    int n_splits;       // of the fifth, and what its blocks leave:
    float *part_acc;    // (n_heads, n_splits, head_dim)
    float2 *part_state; // (n_heads, n_splits): max, sum
};

// ------------------------------------------------------------------------------------------ a block for each head

template <bool BY_WARPS>
__device__ static inline void ladder_scores(const struct ladder_attention &a, const float *q, const half *keys, float *scores)
{
    [[maybe_unused]] const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if constexpr (BY_WARPS) {
        for (int j = warp; j < a.n_keys; j += LADDER_THREADS / 32) {
            float sum = 0;
            for (int c = lane; c < a.head_dim; c += 32)
                sum = fmaf(q[c], __half2float(keys[(size_t)j * a.head_dim + c]), sum);
            sum = warp_sum(sum);
            if (lane == 0)
                scores[j] = sum;
        }
    } else {
        for (int j = (int)threadIdx.x; j < a.n_keys; j += LADDER_THREADS) {
            float sum = 0;
            for (int c = 0; c < a.head_dim; c++)
                sum = fmaf(q[c], __half2float(keys[(size_t)j * a.head_dim + c]), sum);
            scores[j] = sum;
        }
    }
}

// scores become e^(score - max); returns 1 / their sum. Moves 12 bytes a key, mostly within the L2 cache.
__device__ static inline float ladder_softmax(float *scores, int n_keys, float *shared)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float max = -INFINITY, sum = 0;
    for (int j = (int)threadIdx.x; j < n_keys; j += LADDER_THREADS)
        max = fmaxf(max, scores[j]);
    max = warp_max(max);
    if (lane == 0)
        shared[warp] = max;
    __syncthreads();
    max = warp_max(shared[lane]);
    __syncthreads();
    for (int j = (int)threadIdx.x; j < n_keys; j += LADDER_THREADS) {
        const float p = expf(scores[j] - max);
        scores[j] = p;
        sum += p;
    }
    sum = block_sum(sum, shared);
    __syncthreads(); // all have read `shared`; and all scores are written
    return 1.0f / sum;
}

// A warp for each component, its lanes at different keys: each load of a lane is a sector of its own, for 2 bytes.
__device__ static inline void mix_by_components(const struct ladder_attention &a, const half *values, const float *p,
                                                float scale, float *attended)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int c = warp; c < a.head_dim; c += LADDER_THREADS / 32) {
        float sum = 0;
        for (int j = lane; j < a.n_keys; j += 32)
            sum = fmaf(p[j], __half2float(values[(size_t)j * a.head_dim + c]), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            attended[c] = scale * sum;
    }
}

// A warp for each key, lanes at neighbouring pairs of components; AHEAD keys of a warp are loaded before the first is used.
// partial: (warps, head_dim).
template <int PAIRS, int AHEAD>
__device__ static inline void mix_by_keys(const struct ladder_attention &a, const half *values, const float *p, float scale,
                                          float *attended, float *partial)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = LADDER_THREADS / 32;
    float2 acc[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        acc[i] = {0, 0};
#pragma unroll 1
    for (int first = warp; first < a.n_keys; first += AHEAD * n_warps) {
        half2 loaded[AHEAD][PAIRS];
        float weight[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int j = first + k * n_warps;
            weight[k] = j < a.n_keys ? p[j] : 0.0f;
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                const int c = 64 * i + 2 * lane;
                loaded[k][i] = __float2half2_rn(0.0f);
                if (j < a.n_keys && c < a.head_dim)
                    loaded[k][i] = *reinterpret_cast<const half2 *>(values + (size_t)j * a.head_dim + c);
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                const float2 v = __half22float2(loaded[k][i]);
                acc[i].x = fmaf(weight[k], v.x, acc[i].x);
                acc[i].y = fmaf(weight[k], v.y, acc[i].y);
            }
    }
    for (int i = 0; i < PAIRS; i++)
        if (64 * i + 2 * lane < a.head_dim)
            *reinterpret_cast<float2 *>(partial + warp * a.head_dim + 64 * i + 2 * lane) = acc[i];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < a.head_dim; c += LADDER_THREADS) {
        float sum = 0;
        for (int w = 0; w < n_warps; w++)
            sum += partial[w * a.head_dim + c];
        attended[c] = scale * sum;
    }
}

// grid: (n_heads). Reads K and V once for each query head, so `group` times, of which the L2 cache serves what it can.
template <enum ladder_attention_step STEP, int PAIRS>
static __global__ void __launch_bounds__(LADDER_THREADS) ladder_head_kernel(const struct ladder_attention a)
{
    SHARED_DYNAMIC(float, partial); // (warps, head_dim), where the step mixes by keys
    SHARED_ARRAY(float, q, LADDER_MAX_DIM);
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const int head = (int)blockIdx.x;
    const size_t kv = (size_t)(head / a.group) * a.capacity * a.head_dim;
    float *scores = a.scores + (size_t)head * a.n_keys, *attended = a.attended + head * a.head_dim;
    for (int c = (int)threadIdx.x; c < a.head_dim; c += LADDER_THREADS)
        q[c] = a.q[head * a.head_dim + c];
    __syncthreads();
    ladder_scores<(STEP >= LADDER_WARP_SCORES)>(a, q, a.keys + kv, scores);
    __syncthreads();
    const float scale = ladder_softmax(scores, a.n_keys, sums);
    if (STEP == LADDER_BLOCK_PER_HEAD)
        mix_by_components(a, a.values + kv, scores, scale, attended);
    else
        mix_by_keys<PAIRS, (STEP == LADDER_PREFETCHED_MIX ? 16 / PAIRS : 1)>(a, a.values + kv, scores, scale, attended,
                                                                             partial);
}

// ------------------------------------------------------------------------------------------ many blocks for each head

// sum of a 16-byte pack's 8 products
__device__ static inline float pack_dot(const float (&q)[8], uint4 pack)
{
    float k[8], sum = 0;
    unpack<half>(k, pack);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf(q[i], k[i], sum);
    return sum;
}

// What LANES lanes, one after the other along a row, have of their keys' running softmax.
struct split_row {
    float max, sum, acc[8];
};

__device__ static inline void split_add(struct split_row *row, float score, uint4 pack)
{
    float v[8];
    unpack<half>(v, pack);
    const float max = fmaxf(row->max, score), base = max == -INFINITY ? 0.0f : max;
    const float shrink = __expf(row->max - base), p = __expf(score - base);
    row->max = max;
    row->sum = fmaf(row->sum, shrink, p);
#pragma unroll
    for (int i = 0; i < 8; i++)
        row->acc[i] = fmaf(row->acc[i], shrink, p * v[i]);
}

// grid: (n_splits, n_heads). LANES lanes take a key, 8 components each; 4 keys' packs of K and of V are on their way at once.
template <int LANES>
static __global__ void __launch_bounds__(SPLIT_THREADS) ladder_split_kernel(const struct ladder_attention a)
{
    enum { ROWS = SPLIT_THREADS / LANES, AHEAD = 4 };
    SHARED_ARRAY(float, acc, ROWS *LANES * 8); // (ROWS, head_dim)
    SHARED_ARRAY(float2, states, ROWS);
    grid_dependency_launch();
    grid_dependency_wait();
    const int own = (int)threadIdx.x / LANES, c = (int)threadIdx.x % LANES * 8, split = (int)blockIdx.x, head = (int)blockIdx.y;
    const int first = (int)((int64_t)a.n_keys * split / a.n_splits), last = (int)((int64_t)a.n_keys * (split + 1) / a.n_splits);
    const size_t kv = (size_t)(head / a.group) * a.capacity * a.head_dim;
    float q[8] = {};
    if (c < a.head_dim)
        for (int i = 0; i < 8; i++)
            q[i] = a.q[head * a.head_dim + c + i];
    struct split_row row = {-INFINITY, 0, {}};
    for (int base = first; base < last; base += ROWS * AHEAD) {
        uint4 k[AHEAD], v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int j = base + i * ROWS + own;
            const size_t at = kv + (size_t)j * a.head_dim + c;
            k[i] = v[i] = {0, 0, 0, 0};
            if (j < last && c < a.head_dim) {
                k[i] = *reinterpret_cast<const uint4 *>(a.keys + at);
                v[i] = *reinterpret_cast<const uint4 *>(a.values + at);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float score = pack_dot(q, k[i]);
#pragma unroll
            for (int step = LANES / 2; step > 0; step /= 2)
                score += __shfl_xor_sync(0xffffffffu, score, step);
            split_add(&row, base + i * ROWS + own < last ? score : -INFINITY, v[i]);
        }
    }
    if (c == 0)
        states[own] = {row.max, row.sum};
    if (c < a.head_dim)
        for (int i = 0; i < 8; i++)
            acc[own * a.head_dim + c + i] = row.acc[i];
    __syncthreads();
    const int part = head * a.n_splits + split;
    float max = -INFINITY;
    for (int r = 0; r < ROWS; r++)
        max = fmaxf(max, states[r].x);
    for (int i = (int)threadIdx.x; i < a.head_dim; i += SPLIT_THREADS) {
        float total = 0, sum = 0;
        for (int r = 0; r < ROWS; r++) {
            const float weight = states[r].x == -INFINITY ? 0.0f : expf(states[r].x - max);
            total = fmaf(weight, acc[r * a.head_dim + i], total);
            sum = fmaf(weight, states[r].y, sum);
        }
        a.part_acc[(size_t)part * a.head_dim + i] = total;
        if (i == 0)
            a.part_state[part] = {max, sum};
    }
}

// grid: (n_heads). attended = Σ_s e^(max_s - max) acc_s / Σ_s e^(max_s - max) sum_s.
static __global__ void ladder_merge_kernel(const struct ladder_attention a)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int head = (int)blockIdx.x;
    const float2 *states = a.part_state + head * a.n_splits;
    const float *acc = a.part_acc + (size_t)head * a.n_splits * a.head_dim;
    float max = -INFINITY;
    for (int s = 0; s < a.n_splits; s++)
        max = fmaxf(max, states[s].x);
    for (int c = (int)threadIdx.x; c < a.head_dim; c += (int)blockDim.x) {
        float total = 0, sum = 0;
        for (int s = 0; s < a.n_splits; s++) {
            const float weight = states[s].x == -INFINITY ? 0.0f : expf(states[s].x - max);
            total = fmaf(weight, acc[(size_t)s * a.head_dim + c], total);
            sum = fmaf(weight, states[s].y, sum);
        }
        a.attended[head * a.head_dim + c] = total / sum;
    }
}

// ------------------------------------------------------------------------------------------ host

// Four blocks for each multiprocessor, each with at least 64 keys.
static inline int ladder_splits(int n_heads, int n_keys, int n_sms)
{
    const int wanted = 4 * n_sms / n_heads, most = (n_keys + 63) / 64;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

template <int PAIRS>
static yalm_status ladder_head_launch(enum ladder_attention_step step, const struct ladder_attention *a, cudaStream_t stream,
                                      yalm_error *error)
{
    const size_t shared = sizeof(float) * LADDER_THREADS / 32 * a->head_dim;
    if (step == LADDER_BLOCK_PER_HEAD)
        return LAUNCH(error, (ladder_head_kernel<LADDER_BLOCK_PER_HEAD, PAIRS>), a->n_heads, LADDER_THREADS, shared, stream,
                      *a);
    if (step == LADDER_COALESCED_MIX)
        return LAUNCH(error, (ladder_head_kernel<LADDER_COALESCED_MIX, PAIRS>), a->n_heads, LADDER_THREADS, shared, stream, *a);
    if (step == LADDER_WARP_SCORES)
        return LAUNCH(error, (ladder_head_kernel<LADDER_WARP_SCORES, PAIRS>), a->n_heads, LADDER_THREADS, shared, stream, *a);
    return LAUNCH(error, (ladder_head_kernel<LADDER_PREFETCHED_MIX, PAIRS>), a->n_heads, LADDER_THREADS, shared, stream, *a);
}

// head_dim: a multiple of 8, at most 256.
static inline yalm_status ladder_attention_run(enum ladder_attention_step step, const struct ladder_attention *a,
                                               cudaStream_t stream, yalm_error *error)
{
    const int d = a->head_dim;
    if (d % 8 != 0 || d > LADDER_MAX_DIM)
        return error_set(error, YALM_USAGE, "head_dim: found %d, expected a multiple of 8 of at most %d", d,
                         (int)LADDER_MAX_DIM);
    if (step < LADDER_SPLIT_KEYS)
        return d <= 64    ? ladder_head_launch<1>(step, a, stream, error)
               : d <= 128 ? ladder_head_launch<2>(step, a, stream, error)
                          : ladder_head_launch<4>(step, a, stream, error);
    const dim3 grid(a->n_splits, a->n_heads);
    if (d <= 64)
        TRY(LAUNCH(error, (ladder_split_kernel<8>), grid, SPLIT_THREADS, 0, stream, *a));
    else if (d <= 128)
        TRY(LAUNCH(error, (ladder_split_kernel<16>), grid, SPLIT_THREADS, 0, stream, *a));
    else
        TRY(LAUNCH(error, (ladder_split_kernel<32>), grid, SPLIT_THREADS, 0, stream, *a));
    return LAUNCH(error, ladder_merge_kernel, a->n_heads, 128, 0, stream, *a);
}
