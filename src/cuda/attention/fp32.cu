// Attention with a cache of fp32, in fp32 throughout: for decode (one token, keys split) and prefill alike. It is the exact
// form; a cache of fp16 has the fast ones (decode.cu, prefill.cu). But heads longer than ATTENTION_MAX_DIM, and latents, whose
// keys are the values, have no other form, whatever the cache's type.
//
// LANES lanes share a key: eight, or all for long heads. Each keeps every LANES-th group of four components, of ROWS queries,
// the key and the value, in registers. With eight a warp thus reads four keys at a time, each load 128 bytes in a row. Those
// that share keys run a softmax of their own; the block's end merges all. Bytes: 8 * head_dim for each visible key of a KV
// head, half of that for a latent, for every ROWS queries; operations: 4 * head_dim * ROWS.
#include <type_traits>

#include "cuda/attention/fp32.cuh"

enum { FP32_WARPS = 4, FP32_KEYS = 16 };

template <int D> struct fp32_shape {
    static constexpr int LANES = D > ATTENTION_MAX_DIM ? 32 : 8, FOURS = D / 4 / LANES;
    static constexpr int PARTS = FP32_WARPS * 32 / LANES; // of a block's keys
    static constexpr bool LATENT = D == ATTENTION_LATENT_DIM;
};

// Components c … c + 3 of a row; 0 from head_dim on. head_dim is even; where it is a multiple of 4, rows are aligned to 16
// bytes.
__device__ static inline float4 load_four(const float *row, int c, int head_dim)
{
    if (c >= head_dim) {
        return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    if (head_dim % 4 == 0) {
        return *reinterpret_cast<const float4 *>(row + c);
    }
    const float2 low = *reinterpret_cast<const float2 *>(row + c);
    float2 high = {0.0f, 0.0f};
    if (c + 2 < head_dim) {
        high = *reinterpret_cast<const float2 *>(row + c + 2);
    }
    return make_float4(low.x, low.y, high.x, high.y);
}
__device__ static inline float2 load_pair(const half *row)
{
    return __half22float2(*reinterpret_cast<const half2 *>(row));
}
__device__ static inline float2 load_pair(const int8_t *row)
{
    const char2 x = *reinterpret_cast<const char2 *>(row);
    return make_float2(x.x, x.y);
}
template <class T> __device__ static inline float4 load_four(const T *row, int c, int head_dim)
{
    const float2 low = c < head_dim ? load_pair(row + c) : float2{0.0f, 0.0f},
                 high = c + 2 < head_dim ? load_pair(row + c + 2) : float2{0.0f, 0.0f};
    return make_float4(low.x, low.y, high.x, high.y);
}

// What a lane keeps.
template <int D, int ROWS> struct lane_rows {
    float4 q[ROWS][fp32_shape<D>::FOURS], acc[ROWS][fp32_shape<D>::FOURS];
    float max[ROWS], sum[ROWS];
};

// The rows' queries, of those in `wanted`; the others get 0.
template <int D, int ROWS>
__device__ static inline void load_rows(struct lane_rows<D, ROWS> &rows, const struct attend &a, const float *q, int kv_head,
                                        int first_row, int n_rows, const bool (&wanted)[ROWS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float *row = q + row_offset(a, kv_head, first_row + min(r, n_rows - 1));
#pragma unroll
        for (int i = 0; i < fp32_shape<D>::FOURS; i++) {
            const int c = (i * fp32_shape<D>::LANES + threadIdx.x % fp32_shape<D>::LANES) * 4;
            rows.q[r][i] = load_four(row, wanted[r] ? c : a.head_dim, a.head_dim);
        }
    }
}

// Adds the key of a slot to each row that sees it. All lanes of the warp come along, since those that share a key sum together.
// bias: what is added to the key's scores.
template <class T, int D, int ROWS>
__device__ static inline void attend_key(struct lane_rows<D, ROWS> &rows, const struct kv_rows<T> &keys,
                                         const struct kv_rows<T> &values, int slot, float softcap, float bias,
                                         const bool (&sees)[ROWS])
{
    constexpr int LANES = fp32_shape<D>::LANES, FOURS = fp32_shape<D>::FOURS;
    const int part = threadIdx.x % LANES, head_dim = keys.head_dim;
    const T *k = keys.data + (int64_t)slot * head_dim, *v = values.data + (int64_t)slot * head_dim;
    float4 key[FOURS], value[FOURS];
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        key[i] = load_four(k, (i * LANES + part) * 4, head_dim);
        value[i] = fp32_shape<D>::LATENT ? key[i] : load_four(v, (i * LANES + part) * 4, head_dim);
    }
    const float k_scale = kv_scale(keys, slot), v_scale = kv_scale(values, slot);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            const float4 q = rows.q[r][i];
            score = fmaf(q.x, key[i].x, fmaf(q.y, key[i].y, fmaf(q.z, key[i].z, fmaf(q.w, key[i].w, score))));
        }
#pragma unroll
        for (int step = 1; step < LANES; step *= 2) {
            score += __shfl_xor_sync(0xffffffff, score, step);
        }
        if (!sees[r]) {
            continue;
        }
        score *= k_scale;
        if (softcap > 0.0f) {
            score = capped(score, softcap);
        }
        if (bias != 0.0f) {
            score += bias;
        }
        const float max = fmaxf(rows.max[r], score);
        const float scale = softmax_weight(rows.max[r], max), p = softmax_weight(score, max);
        rows.max[r] = max;
        rows.sum[r] = fmaf(rows.sum[r], scale, p);
        const float weight = p * v_scale;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            float4 &acc = rows.acc[r][i];
            acc.x = fmaf(weight, value[i].x, acc.x * scale);
            acc.y = fmaf(weight, value[i].y, acc.y * scale);
            acc.z = fmaf(weight, value[i].z, acc.z * scale);
            acc.w = fmaf(weight, value[i].w, acc.w * scale);
        }
    }
}

template <int D, int ROWS>
__device__ static inline void leave_lane_rows(const struct lane_rows<D, ROWS> &rows,
                                              const struct block_parts<fp32_shape<D>::PARTS, ROWS> &parts, int head_dim)
{
    constexpr int LANES = fp32_shape<D>::LANES;
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (lane == 0) {
            parts.state[part * ROWS + r] = make_float2(rows.max[r], rows.sum[r]);
        }
#pragma unroll
        for (int i = 0; i < fp32_shape<D>::FOURS; i++) {
            const float x[4] = {rows.acc[r][i].x, rows.acc[r][i].y, rows.acc[r][i].z, rows.acc[r][i].w};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int at = (i * LANES + lane) * 4 + c;
                if (at < head_dim) {
                    parts.acc[(part * ROWS + r) * head_dim + at] = x[c];
                }
            }
        }
    }
}

// grid: (ceil(rows / ROWS), n_splits, n_kv_heads), rows = n * group. D: head_dim or the next larger instance. SEEN: seen or,
// where one token attends to selected keys only, seen_rows. T: the cache's elements.
template <int D, int ROWS, class SEEN, class T = float>
__global__ void __launch_bounds__(FP32_WARPS * 32, SEEN::LEAST_BLOCKS) attend_fp32(const struct attend a, int n)
{
    constexpr int PARTS = fp32_shape<D>::PARTS, LANES = fp32_shape<D>::LANES;
    SHARED_ARRAY(float, acc, PARTS *ROWS *D);
    SHARED_ARRAY(float2, states, PARTS * ROWS);
    grid_dependency_wait();
    grid_dependency_launch();
    const int split = blockIdx.y, kv_head = blockIdx.z, first_row = blockIdx.x * ROWS,
              n_rows = min(ROWS, n * a.group - first_row);
    const SEEN seen =
        seen_of<SEEN>(a, kv_head, sight_of(a, first_row / a.group), sight_of(a, (first_row + n_rows - 1) / a.group), FP32_KEYS);
    const int n_splits = seen_splits(seen, a.n_splits, 2 * FP32_WARPS);
    if (split >= n_splits) {
        return;
    }
    const int first = (int)((int64_t)seen.n_tiles * split / n_splits),
              last = (int)((int64_t)seen.n_tiles * (split + 1) / n_splits);
    constexpr bool SELECTED = std::is_same_v<SEEN, struct seen_rows>;
    const float *biases = SELECTED && a.gathered.bias ? a.gathered.bias + (int64_t)kv_head * a.gathered.ld : NULL;
    const struct kv_rows<T> keys = kv_rows_of<T>(a.keys, a.key_scales, kv_head, a.policy.capacity, a.head_dim),
                            values = kv_rows_of<T>(a.values, a.value_scales, kv_head, a.policy.capacity, a.head_dim);

    struct lane_rows<D, ROWS> rows = {
    };
    struct sight sights[ROWS];
    bool apart[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        rows.max[r] = -INFINITY;
        sights[r] = sight_of(a, (first_row + min(r, n_rows - 1)) / a.group);
        apart[r] = policy_sinks_apart(a.policy, sights[r].last);
    }
    const float *loaded = NULL;
    for (int i = first + threadIdx.x / 32; i < last; i += FP32_WARPS) {
        const struct key_tile tile = seen_tile(seen, i, FP32_KEYS);
        const float *q = tile.sinks ? a.sink_q : a.q;
        if (q != loaded) {
            bool wanted[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                wanted[r] = !tile.sinks || apart[r]; // other rows of sink_q were never written
            }
            load_rows(rows, a, q, kv_head, first_row, n_rows, wanted);
            loaded = q;
        }
#pragma unroll 2
        for (int j = threadIdx.x % 32 / LANES; j < FP32_KEYS; j += 32 / LANES) {
            const int64_t key_position = seen.first + tile.first + j;
            bool sees[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                sees[r] =
                    j < tile.n &&
                    (tile.sinks ? apart[r] : SELECTED || (sights[r].first <= key_position && key_position <= sights[r].last));
            }
            float bias = biases && !tile.sinks && j < tile.n ? biases[tile.first + j] : 0.0f;
            if (!SELECTED && a.slopes) {
                bias = slope_bias(a.slopes[kv_head], seen, tile.first + j);
            }
            attend_key(rows, keys, values, tile_slot(seen, tile, j), a.softcap, bias, sees);
        }
    }
    const struct block_parts<PARTS, ROWS> parts = {
        acc, states
    };
    leave_lane_rows(rows, parts, a.head_dim);
    part_alphas_of<ROWS>(a, seen, kv_head, kv_head * gridDim.x + blockIdx.x, first_row, n_rows, split, first, last, FP32_KEYS);
    finish_rows<SEEN, (D > ATTENTION_MAX_DIM ? D : ATTENTION_MAX_DIM)>(a, parts, kv_head, kv_head * gridDim.x + blockIdx.x,
                                                                       first_row, n_rows, split, n_splits);
}

int attend_fp32_rows(const struct kv_cache *cache)
{
    return !cache->latent && cache->head_dim > 128 && cache->head_dim <= ATTENTION_MAX_DIM ? 2 : 4;
}

// Of long heads and of latents, which no method selects keys of.
template <int D>
static yalm_status launch_long(const struct attend *a, yalm_kv type, dim3 grid, int n, cudaStream_t stream, yalm_error *error)
{
    if (type == YALM_KV_FP32) {
        return LAUNCH(error, (attend_fp32<D, 4, struct seen, float>), grid, FP32_WARPS * 32, 0, stream, *a, n);
    }
    if (type == YALM_KV_FP16) {
        return LAUNCH(error, (attend_fp32<D, 4, struct seen, half>), grid, FP32_WARPS * 32, 0, stream, *a, n);
    }
    if constexpr (!fp32_shape<D>::LATENT) {
        return LAUNCH(error, (attend_fp32<D, 4, struct seen, int8_t>), grid, FP32_WARPS * 32, 0, stream, *a, n);
    }
    return error_set(error, YALM_FAILED, "attention on the GPU: latents of int8, expected fp16 or fp32");
}

template <class SEEN>
static yalm_status launch(const struct attend *a, dim3 grid, int n, cudaStream_t stream, yalm_error *error)
{
    if (a->head_dim <= 64) {
        return LAUNCH(error, (attend_fp32<64, 4, SEEN>), grid, FP32_WARPS * 32, 0, stream, *a, n);
    }
    if (a->head_dim <= 128) {
        return LAUNCH(error, (attend_fp32<128, 4, SEEN>), grid, FP32_WARPS * 32, 0, stream, *a, n);
    }
    return LAUNCH(error, (attend_fp32<256, 2, SEEN>), grid, FP32_WARPS * 32, 0, stream, *a, n);
}

yalm_status attend_fp32_launch(const struct attend *a, const struct kv_cache *cache, int n, cudaStream_t stream,
                               yalm_error *error)
{
    const int rows = attend_fp32_rows(cache);
    const dim3 grid((n * a->group + rows - 1) / rows, a->n_splits, cache->n_kv_heads);
    if (cache->latent) {
        return launch_long<ATTENTION_LATENT_DIM>(a, cache->type, grid, n, stream, error);
    }
    if (a->head_dim > ATTENTION_MAX_DIM) {
        return launch_long<ATTENTION_LONG_DIM>(a, cache->type, grid, n, stream, error);
    }
    return a->gathered.rows ? launch<struct seen_rows>(a, grid, n, stream, error)
                            : launch<struct seen>(a, grid, n, stream, error);
}
