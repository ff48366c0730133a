// Decode attention: one token's queries against the whole cache (flash decoding: Dao et al., "Flash-Decoding for long-context
// inference", 2023). The keys are cut into splits, so that every multiprocessor has some; the last split to end merges them
// (attention.cuh).
//
// Bytes: K and V of the visible keys once, 4 * head_dim * n_kv_heads bytes a key in fp16, for all heads of a group at once (up
// to HEADS). Operations: 4 * head_dim * n_heads a key. Bound by reading, so what counts is bytes in flight. Each warp goes
// through tiles of its own, copying some ahead into its own shared memory (cp.async), with no barrier until the block's end.
//
// The products run on the tensor cores, whose 16 rows a group's heads do not fill. So each head has two of them: q = q_hi +
// q_lo in rows i and i + 8, both fp16, and likewise the weights p. Their products are added at the end: as exact as with fp32 q
// and p, at no cost.
#include <type_traits>

#include "cuda/attention/fp32.cuh"
#include "cuda/attention/int8.cuh"
#include "cuda/attention/tiles.cuh"

enum { DECODE_KEYS = 16 }; // in a tile

template <int D> using decode_tile = std::conditional_t<D % 64 == 0, exchanged_rows<D>, padded_rows<D>>;

// Sizes of an instance. Its shared memory is 64 to 96 KiB, so that two blocks share a multiprocessor of 228 KiB, and one fits
// 99 KiB.
template <int D> struct decode_shape {
    static constexpr int WARPS = D > 128 ? 2 : 4;
    static constexpr int STAGES = D > 80 ? 3 : 4;
    static constexpr int TILE = DECODE_KEYS * decode_tile<D>::LENGTH * 8; // halves of a tile of K or V
    static constexpr size_t TILES_BYTES = sizeof(half) * WARPS * STAGES * 2 * TILE;
    static constexpr size_t SHARED_BYTES = TILES_BYTES + sizeof(float) * WARPS * STAGES * DECODE_KEYS; // biases of drawn rows
};

// What a warp keeps in registers; fragments as mma_m16n8k16 wants them.
template <int D, int TILES> struct decode_rows {
    unsigned q[TILES][D / 16][4];
    float acc[TILES][D / 8][4];
    float max[TILES], sum[TILES]; // of row lane / 4; sum: of this lane's keys
};

// q: the first head's. Rows of absent heads, and components beyond head_dim, are 0.
template <int D, int TILES>
__device__ static inline void load_queries(struct decode_rows<D, TILES> &rows, const float *q, int n_heads, int head_dim)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int head = t * 8 + lane / 4;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = k * 16 + i * 8 + lane % 4 * 2;
                float2 x = {0.0f, 0.0f};
                if (head < n_heads && c < head_dim) {
                    x = *reinterpret_cast<const float2 *>(q + (int64_t)head * head_dim + c);
                }
                split_halves(x, &rows.q[t][k][2 * i], &rows.q[t][k][2 * i + 1]);
            }
        }
    }
}

// Scores of 8 heads with the tile's keys become weights, fragments of the second product; a larger maximum shrinks what was
// there. biases: of the tile's keys, or NULL.
template <int D, int TILES>
__device__ static inline void softmax_tile(struct decode_rows<D, TILES> &rows, int t, float (&scores)[2][4], int n_keys,
                                           float softcap, const float *biases, unsigned (&p)[4])
{
    const int key = threadIdx.x % 4 * 2;
    float2 s[2];
    float max = rows.max[t];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s[i] = {scores[i][0] + scores[i][2], scores[i][1] + scores[i][3]};
        if (softcap > 0.0f) {
            s[i] = {capped(s[i].x, softcap), capped(s[i].y, softcap)};
        }
        if (biases) {
            const float2 bias = *reinterpret_cast<const float2 *>(biases + i * 8 + key);
            s[i] = {s[i].x + bias.x, s[i].y + bias.y};
        }
        s[i].x = i * 8 + key < n_keys ? s[i].x : -INFINITY;
        s[i].y = i * 8 + key + 1 < n_keys ? s[i].y : -INFINITY;
        max = fmaxf(max, fmaxf(s[i].x, s[i].y));
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 2));
    if (__any_sync(0xffffffff, max > rows.max[t])) {
        const float scale = max > rows.max[t] ? __expf(rows.max[t] - max) : 1.0f;
        rows.sum[t] *= scale;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                rows.acc[t][n][i] *= scale;
            }
        }
        rows.max[t] = max;
    }
    const float base = max == -INFINITY ? 0.0f : max;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 x = {__expf(s[i].x - base), __expf(s[i].y - base)};
        rows.sum[t] += x.x + x.y;
        split_halves(x, &p[2 * i], &p[2 * i + 1]);
    }
}

// Adds a tile's keys to the rows.
template <int D, int TILES>
__device__ static inline void attend_tile(struct decode_rows<D, TILES> &rows, const half *k, const half *v, int n_keys,
                                          float softcap, const float *biases)
{
    const int lane = threadIdx.x % 32;
    float scores[TILES][2][4] = {};
    const int key = lane % 8 + lane / 16 * 8, half_step = lane / 8 % 2;
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        unsigned b[4];
        ldmatrix_x4(b, k + decode_tile<D>::at(key, step * 2 + half_step));
        const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            mma_m16n8k16<half>(scores[t][0], rows.q[t][step], low);
            mma_m16n8k16<half>(scores[t][1], rows.q[t][step], high);
        }
    }
    unsigned p[TILES][4];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        softmax_tile(rows, t, scores[t], n_keys, softcap, biases, p[t]);
    }
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        unsigned b[4];
        ldmatrix_x4_trans(b, v + decode_tile<D>::at(lane % 16, step * 2 + lane / 16));
        const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            mma_m16n8k16<half>(rows.acc[t][2 * step], p[t], low);
            mma_m16n8k16<half>(rows.acc[t][2 * step + 1], p[t], high);
        }
    }
}

// The warp's rows into the block's parts.
template <int D, int TILES, int WARPS>
__device__ static inline void leave_rows(struct decode_rows<D, TILES> &rows, const struct block_parts<WARPS, TILES * 8> &parts,
                                         int head_dim)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int row = warp * TILES * 8 + t * 8 + lane / 4;
        float sum = rows.sum[t];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (lane % 4 == 0) {
            parts.state[row] = make_float2(rows.max[t], sum);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const int c = n * 8 + lane % 4 * 2;
            if (c < head_dim) {
                parts.acc[row * head_dim + c] = rows.acc[t][n][0] + rows.acc[t][n][2];
                parts.acc[row * head_dim + c + 1] = rows.acc[t][n][1] + rows.acc[t][n][3];
            }
        }
    }
}

// grid: (ceil(group / HEADS), n_splits, n_kv_heads). D: head_dim or the next larger instance. HEADS: 8 or 16. SEEN: seen or, to
// attend to selected keys only, seen_rows.
template <int D, int HEADS, class SEEN>
__global__ void __launch_bounds__(decode_shape<D>::WARPS * 32, SEEN::LEAST_BLOCKS) attend_decode_fp16(const struct attend a)
{
    constexpr int WARPS = decode_shape<D>::WARPS, STAGES = decode_shape<D>::STAGES, TILE = decode_shape<D>::TILE;
    SHARED_DYNAMIC(half, shared);
    SHARED_ARRAY(float2, states, WARPS * HEADS);
    grid_dependency_wait();
    grid_dependency_launch();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.y, kv_head = blockIdx.z;
    const int first_head = blockIdx.x * HEADS, n_heads = min(HEADS, a.group - first_head);
    const struct sight sight = sight_alone(a.policy, a.step->position);
    const int64_t q_offset = row_offset(a, kv_head, first_head);
    const SEEN seen = seen_of<SEEN>(a, kv_head, sight, sight, DECODE_KEYS);
    const int n_splits = seen_splits(seen, a.n_splits, 2 * WARPS);
    if (split >= n_splits) {
        return;
    }
    const int first = (int)((int64_t)seen.n_tiles * split / n_splits),
              last = (int)((int64_t)seen.n_tiles * (split + 1) / n_splits);

    half *stages = shared + warp * STAGES * 2 * TILE; // (STAGES, 2, TILE)
    float *biases =
        reinterpret_cast<float *>(shared + WARPS * STAGES * 2 * TILE) + warp * STAGES * DECODE_KEYS; // (STAGES, DECODE_KEYS)
    clear_tiles<D, 32>(stages, STAGES * 2 * TILE, a.head_dim, lane);
    __syncwarp();
    for (int s = 0; s < STAGES - 1; s++) {
        const int tile = first + warp + s * WARPS;
        if (tile < last) {
            copy_tile<decode_tile<D>, DECODE_KEYS, 32>(stages + s * 2 * TILE, stages + (s * 2 + 1) * TILE, a, kv_head, seen,
                                                       tile, lane);
            copy_biases<DECODE_KEYS>(biases + s * DECODE_KEYS, a, seen, kv_head, tile, lane);
        }
        copy_async_commit();
    }
    struct decode_rows<D, HEADS / 8> rows;
#pragma unroll
    for (int t = 0; t < HEADS / 8; t++) {
        rows.max[t] = -INFINITY;
        rows.sum[t] = 0.0f;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                rows.acc[t][n][i] = 0.0f;
            }
        }
    }
    const float *loaded = NULL;
    int stage = 0;
    for (int tile = first + warp; tile < last; tile += WARPS) {
        const struct key_tile keys = seen_tile(seen, tile, DECODE_KEYS);
        const float *q = keys.sinks ? a.sink_q : a.q;
        if (q != loaded) {
            load_queries(rows, q + q_offset, n_heads, a.head_dim);
            loaded = q;
        }
        copy_async_wait<STAGES - 2>();
        __syncwarp(); // all lanes' copies have come, and all have read the stage that is filled next
        const int ahead = tile + (STAGES - 1) * WARPS, free_stage = stage == 0 ? STAGES - 1 : stage - 1;
        if (ahead < last) {
            copy_tile<decode_tile<D>, DECODE_KEYS, 32>(stages + free_stage * 2 * TILE, stages + (free_stage * 2 + 1) * TILE, a,
                                                       kv_head, seen, ahead, lane);
            copy_biases<DECODE_KEYS>(biases + free_stage * DECODE_KEYS, a, seen, kv_head, ahead, lane);
        }
        copy_async_commit();
        attend_tile(rows, stages + stage * 2 * TILE, stages + (stage * 2 + 1) * TILE, keys.n, a.softcap,
                    has_biases(a, seen, keys) ? biases + stage * DECODE_KEYS : NULL);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    __syncthreads(); // the tiles' memory becomes the parts'
    const struct block_parts<WARPS, HEADS> parts = {
        reinterpret_cast<float *>(shared), states
    };
    leave_rows(rows, parts, a.head_dim);
    part_alphas_of<HEADS>(a, seen, kv_head, kv_head * gridDim.x + blockIdx.x, first_head, n_heads, split, first, last,
                          DECODE_KEYS);
    finish_rows<SEEN>(a, parts, kv_head, kv_head * gridDim.x + blockIdx.x, first_head, n_heads, split, n_splits);
}

// ------------------------------------------------------------------------------------------ host

// Heads of a group that share one read of K and V: 16 where the registers suffice for them.
static int heads_together(int head_dim, int group)
{
    return group > 8 && head_dim <= 128 ? 16 : 8;
}

// How a cache's attention is cut into units, and where a unit's partial results lie in the scratch.
struct decode_units {
    int rows, units;
    size_t state_at, alpha_at, acc_at, bytes;
};

static struct decode_units units_make(const struct kv_cache *cache, int n_heads, int n_splits)
{
    struct decode_units u;
    const int group = n_heads / cache->n_kv_heads;
    u.rows = attend_fp32_does(cache) ? attend_fp32_rows(cache) : heads_together(cache->head_dim, group);
    u.units = (group + u.rows - 1) / u.rows * cache->n_kv_heads;
    const size_t parts = (size_t)u.units * u.rows * n_splits;
    u.state_at = round_up(u.units * sizeof(unsigned), 256);
    u.alpha_at = u.state_at + round_up(parts * sizeof(float2), 256);
    u.acc_at = u.alpha_at + round_up(parts * sizeof(float), 256);
    u.bytes = u.acc_at + parts * cache->head_dim * sizeof(float);
    return u;
}

// Two blocks for each multiprocessor, of an int8 cache three, all of them resident at once; but no more splits than the longest
// run of keys has work for. (Registers are made of integers there, which takes time that another block fills.)
struct decode_plan attention_decode_plan(const struct kv_cache *cache, int n_heads, int n_sms)
{
    const int keys_each = 2 * 4 * DECODE_KEYS, most = (cache->policy.span + keys_each - 1) / keys_each;
    const int wanted = (cache->type == YALM_KV_INT8 ? 3 : 2) * n_sms / units_make(cache, n_heads, 1).units;
    struct decode_plan plan;
    plan.n_splits = wanted < 1 || most < 1 ? 1 : wanted < most ? wanted : most;
    plan.scratch_bytes = units_make(cache, n_heads, plan.n_splits).bytes;
    return plan;
}

template <int D, class SEEN>
static yalm_status launch_fp16(const struct attend *a, int rows, dim3 grid, cudaStream_t stream, yalm_error *error)
{
    const unsigned threads = decode_shape<D>::WARPS * 32;
    if constexpr (D <= 128) {
        if (rows == 16) {
            return LAUNCH(error, (attend_decode_fp16<D, 16, SEEN>), grid, threads, decode_shape<D>::SHARED_BYTES, stream, *a);
        }
    }
    return LAUNCH(error, (attend_decode_fp16<D, 8, SEEN>), grid, threads, decode_shape<D>::SHARED_BYTES, stream, *a);
}

// a: complete but for how the work is split.
template <class SEEN>
static yalm_status launch_decode(struct attend *a, const struct kv_cache *cache, const struct decode_plan *plan, void *scratch,
                                 cudaStream_t stream, yalm_error *error)
{
    const struct decode_units u = units_make(cache, a->n_heads, plan->n_splits);
    a->n_splits = plan->n_splits;
    a->tickets = static_cast<unsigned *>(scratch);
    a->part_state = reinterpret_cast<float2 *>(static_cast<char *>(scratch) + u.state_at);
    a->part_acc = reinterpret_cast<float *>(static_cast<char *>(scratch) + u.acc_at);
    a->part_alpha = reinterpret_cast<float *>(static_cast<char *>(scratch) + u.alpha_at);
    if (attend_fp32_does(cache)) {
        return attend_fp32_launch(a, cache, 1, stream, error);
    }
    const dim3 grid(u.units / cache->n_kv_heads, plan->n_splits, cache->n_kv_heads);
    if (cache->type == YALM_KV_INT8) {
        return attend_decode_int8_launch(a, u.rows, grid, stream, error);
    }
    return a->head_dim <= 64    ? launch_fp16<64, SEEN>(a, u.rows, grid, stream, error)
           : a->head_dim <= 80  ? launch_fp16<80, SEEN>(a, u.rows, grid, stream, error)
           : a->head_dim <= 96  ? launch_fp16<96, SEEN>(a, u.rows, grid, stream, error)
           : a->head_dim <= 128 ? launch_fp16<128, SEEN>(a, u.rows, grid, stream, error)
                                : launch_fp16<256, SEEN>(a, u.rows, grid, stream, error);
}

yalm_status attention_decode(const struct attention *attention, const struct decode_plan *plan, float *attended, void *scratch,
                             cudaStream_t stream, yalm_error *error)
{
    struct attend a;
    TRY(attend_make(&a, attention, attended, DTYPE_FP32, error));
    return launch_decode<struct seen>(&a, attention->cache, plan, scratch, stream, error);
}

// Attends to the rows that were selected. Bytes: 4 * head_dim * k in fp16 for a KV head with k rows, in pieces of 2 * head_dim.
// With a tail, 4 * k for each query head come from the L2 cache.
yalm_status attention_gather(const struct attention *attention, const struct gathered *keys, const struct decode_plan *plan,
                             float *attended, void *scratch, cudaStream_t stream, yalm_error *error)
{
    const struct kv_cache *cache = attention->cache;
    struct attend a;
    TRY(attend_make(&a, attention, attended, DTYPE_FP32, error));
    a.gathered = *keys;
    a.cache_type = cache->type;
    return launch_decode<struct seen_rows>(&a, cache, plan, scratch, stream, error);
}
