// Prefill attention on the tensor cores: many tokens against the cache, the score matrix never stored (FlashAttention-2: Dao,
// arXiv 2307.08691, with its split of rows over warps).
//
// A block has ROWS queries of one KV head: row = token * group + head. So a group shares each read of K and V. It takes the
// keys that any of them sees in tiles of KEYS; while one is multiplied the next comes from memory (cp.async). A warp passes
// over tiles that none of its rows sees, and masks those that they see in part.
//
// Queries are q = q_hi + q_lo, both fp16: rounded to 11 bits they would move large scores by so much that other keys win. The
// weights are rounded to fp16: the outputs' error is about 2^-12 of the values' range.
//
// Operations: 6 * head_dim for each row and visible key. Shared memory is read at 128 bytes a clock, and mma_m16n8k16 runs once
// in one to two. So each warp takes 32 rows (16 where head_dim > 128): a fragment of K serves four products and one of V two,
// some 140 bytes for each. From memory: the visible part of the cache once for each block of rows, mostly from the L2 cache,
// since the blocks of a KV head run side by side.
//
// Of a cache of int8, tiles come as integers, half the bytes, and become halves between two barriers while the next one comes;
// another block's products fill that time. Shared memory: 16 bytes read and 32 written for 16 elements, a fifth of what the
// products read of a tile.
#include <type_traits>

#include "cuda/attention/fp32.cuh"
#include "cuda/attention/int8.cuh"
#include "cuda/attention/tiles.cuh"

enum { PREFILL_WARPS = 4, PREFILL_THREADS = PREFILL_WARPS * 32 };

template <int D> using prefill_tile = std::conditional_t<D % 128 == 0, exchanged_rows<D>, padded_rows<D>>;

// Sizes of an instance. Its shared memory fits 99 KiB, and twice into 228 KiB.
template <int D> struct prefill_shape {
    static constexpr int TILES = D > 128 ? 1 : 2; // of 16 rows, of each warp
    static constexpr int ROWS = PREFILL_WARPS * TILES * 16;
    static constexpr int KEYS = D > 128 ? 16 : D > 80 ? 32 : 64;
    static constexpr int ROW = prefill_tile<D>::LENGTH * 8; // halves of a row of Q, K or V
    static constexpr int Q = ROWS * ROW, TILE = KEYS * ROW;
    static constexpr size_t SHARED_BYTES = sizeof(half) * (2 * Q + 2 * 2 * TILE);
};

// Behind the queries, where the cache is of int8: a tile as halves, its scales, and the next tile as it comes.
template <int D> struct alignas(16) prefill_int8 {
    half tile[2 * prefill_shape<D>::TILE];
    float scales[2 * prefill_shape<D>::KEYS];
    struct int8_staging<D, prefill_shape<D>::KEYS> next;
};

// What a warp keeps in registers, as fragments of mma_m16n8k16: row lane / 4 of a tile has elements 0 and 1, row lane / 4 + 8
// has 2 and 3.
template <int D> struct prefill_rows {
    float acc[prefill_shape<D>::TILES][D / 8][4];
    float max[prefill_shape<D>::TILES][2],
        sum[prefill_shape<D>::TILES][2]; // max: of scores times log2(e); sum: of this lane's keys
};

// Which of the run's keys a row sees: from first to last. They lie in shared memory, since registers are scarce.
struct row_view {
    int first, last;
    bool apart; // from the sinks
};

// A block's keys and rows; rows beyond the last are like it.
template <int D> struct prefill_views {
    struct seen seen;
    struct row_view rows[prefill_shape<D>::ROWS];
};

template <int D>
__device__ static inline void view_rows(struct prefill_views<D> *views, const struct attend &a, int first_row, int n_rows)
{
    const int last_row = min(first_row + prefill_shape<D>::ROWS, n_rows) - 1;
    const struct seen seen =
        seen_by(a.policy, sight_of(a, first_row / a.group), sight_of(a, last_row / a.group), prefill_shape<D>::KEYS);
    if (threadIdx.x == 0) {
        views->seen = seen;
    }
    for (int row = threadIdx.x; row < prefill_shape<D>::ROWS; row += PREFILL_THREADS) {
        const struct sight sight = sight_of(a, min(first_row + row, last_row) / a.group);
        views->rows[row].first = (int)(sight.first - seen.first);
        views->rows[row].last = (int)(sight.last - seen.first);
        views->rows[row].apart = policy_sinks_apart(a.policy, sight.last);
    }
}

// Queries into shared memory, the high parts of all before the low ones, times log2(e), so that 2^x serves for e^x. Where
// `sinks`, rows that do not have the sinks apart are 0. AT_ONCE: loads under way together.
template <int D, int AT_ONCE>
__device__ static inline void load_queries(half *to, const struct attend &a, const struct prefill_views<D> &views, bool sinks,
                                           int kv_head, int first_row, int n_rows)
{
    const float *q = sinks ? a.sink_q : a.q;
#pragma unroll AT_ONCE
    for (int i = threadIdx.x; i < prefill_shape<D>::ROWS * D / 2; i += PREFILL_THREADS) {
        const int row = i / (D / 2), c = i % (D / 2) * 2;
        float2 x = {0.0f, 0.0f};
        if (first_row + row < n_rows && c < a.head_dim && (!sinks || views.rows[row].apart)) {
            x = *reinterpret_cast<const float2 *>(q + row_offset(a, kv_head, first_row + row) + c);
        }
        const float log2_e = 1.44269504f;
        unsigned hi, lo;
        split_halves({x.x * log2_e, x.y * log2_e}, &hi, &lo);
        half *at = to + prefill_tile<D>::at(row, c / 8) + c % 8;
        *reinterpret_cast<unsigned *>(at) = hi;
        *reinterpret_cast<unsigned *>(at + prefill_shape<D>::Q) = lo;
    }
}

// scores = Q Kᵀ of a warp's rows. q: its first row.
template <int D, int TILES, int KEYS>
__device__ static inline void score_tile(float (&scores)[TILES][KEYS / 8][4], const half *q, int first_row, const half *k)
{
    const int lane = threadIdx.x % 32, key = lane % 8 + lane / 16 * 8, half_step = lane / 8 % 2;
    // More steps together would take more registers than there are.
    [[maybe_unused]] constexpr int STEPS = D > 96 ? 4 : D / 16;
    constexpr int FRAGMENTS = KEYS % 32 == 0 ? 2 : 1;
#pragma unroll STEPS
    for (int step = 0; step < D / 16; step++) {
        unsigned rows[2][TILES][4]; // high parts, low parts
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const half *at = q + prefill_tile<D>::at(first_row + t * 16 + lane % 16, step * 2 + lane / 16);
            ldmatrix_x4(rows[0][t], at);
            ldmatrix_x4(rows[1][t], at + prefill_shape<D>::Q);
        }
        // Takes two fragments of K at a time, and high parts before low ones. A product waits for the one before it that added
        // to the same sums, so as many others as registers allow come between.
#pragma unroll
        for (int first = 0; first < KEYS / 16; first += FRAGMENTS) {
            unsigned b[FRAGMENTS][4];
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++)
                ldmatrix_x4(b[f], k + prefill_tile<D>::at((first + f) * 16 + key, step * 2 + half_step));
#pragma unroll
            for (int part = 0; part < 2; part++) {
#pragma unroll
                for (int f = 0; f < FRAGMENTS; f++) {
                    const unsigned low[2] = {b[f][0], b[f][1]}, high[2] = {b[f][2], b[f][3]};
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        mma_m16n8k16<half>(scores[t][2 * (first + f)], rows[part][t], low);
                        mma_m16n8k16<half>(scores[t][2 * (first + f) + 1], rows[part][t], high);
                    }
                }
            }
        }
    }
}

// Scores, which are in units of log2(e) here, of models that cap them.
template <int TILES, int KEYS> __device__ static inline void cap_tile(float (&scores)[TILES][KEYS / 8][4], float softcap)
{
    const float log2_e = 1.44269504f;
    if (softcap == 0.0f) {
        return;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[t][n][i] = capped(scores[t][n][i], softcap * log2_e);
            }
        }
    }
}

// Adds the slope's biases, times log2 e as the scores are. They are alike for all rows (slope_bias()). first: the tile's first
// key.
template <int TILES, int KEYS>
__device__ static inline void slope_tile(float (&scores)[TILES][KEYS / 8][4], const float *slope, const struct seen &seen,
                                         int first)
{
    const float log2_e = 1.44269504f;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float bias = slope_bias(*slope * log2_e, seen, first + n * 8 + (int)threadIdx.x % 4 * 2 + i % 2);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                scores[t][n][i] += bias;
            }
        }
    }
}

// Scores that a row does not see become -INFINITY. views: of the warp's rows.
template <int TILES, int KEYS>
__device__ static inline void mask_tile(float (&scores)[TILES][KEYS / 8][4], const struct row_view *views,
                                        const struct key_tile &keys)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const struct row_view view = views[t * 16 + h * 8 + lane / 4];
            const int first = keys.sinks ? (view.apart ? 0 : keys.n) : view.first - keys.first;
            const int last = min(keys.n - 1, keys.sinks ? keys.n : view.last - keys.first);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int j = n * 8 + lane % 4 * 2 + i;
                    scores[t][n][2 * h + i] = first <= j && j <= last ? scores[t][n][2 * h + i] : -INFINITY;
                }
            }
        }
    }
}

// Scores become weights 2^(score - max); a larger maximum shrinks what was there.
template <int D, int TILES, int KEYS>
__device__ static inline void softmax_tile(struct prefill_rows<D> &rows, float (&scores)[TILES][KEYS / 8][4])
{
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float max = rows.max[t][h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                max = fmaxf(max, fmaxf(scores[t][n][2 * h], scores[t][n][2 * h + 1]));
            }
            max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 1));
            max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 2));
            if (__any_sync(0xffffffff, max > rows.max[t][h])) {
                const float scale = max > rows.max[t][h] ? exp2f(rows.max[t][h] - max) : 1.0f;
                rows.sum[t][h] *= scale;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    rows.acc[t][n][2 * h] *= scale;
                    rows.acc[t][n][2 * h + 1] *= scale;
                }
                rows.max[t][h] = max;
            }
            const float base = max == -INFINITY ? 0.0f : max;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                scores[t][n][2 * h] = exp2f(scores[t][n][2 * h] - base);
                scores[t][n][2 * h + 1] = exp2f(scores[t][n][2 * h + 1] - base);
                rows.sum[t][h] += scores[t][n][2 * h] + scores[t][n][2 * h + 1];
            }
        }
    }
}

__device__ static inline unsigned pack_halves(float x, float y)
{
    const half2 both = __float22half2_rn(make_float2(x, y));
    unsigned bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

// acc += P V.
template <int D, int TILES, int KEYS>
__device__ static inline void add_values(struct prefill_rows<D> &rows, const float (&p)[TILES][KEYS / 8][4], const half *v)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        unsigned weights[TILES][4];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                weights[t][i] = pack_halves(p[t][2 * n + i / 2][i % 2 * 2], p[t][2 * n + i / 2][i % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
            unsigned b[4];
            ldmatrix_x4_trans(b, v + prefill_tile<D>::at(n * 16 + lane % 16, step * 2 + lane / 16));
            const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                mma_m16n8k16<half>(rows.acc[t][2 * step], weights[t], low);
                mma_m16n8k16<half>(rows.acc[t][2 * step + 1], weights[t], high);
            }
        }
    }
}

template <int D> __device__ static inline void multiply_sums(struct prefill_rows<D> &rows, float by)
{
#pragma unroll
    for (int t = 0; t < prefill_shape<D>::TILES; t++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                rows.acc[t][n][i] *= by;
            }
        }
    }
}

// Outputs acc * unit / sum of a warp's rows.
template <int D>
__device__ static inline void store_rows(const struct prefill_rows<D> &rows, float unit, const struct attend &a, int kv_head,
                                         int first_row, int n_rows)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < prefill_shape<D>::TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = first_row + t * 16 + h * 8 + lane / 4;
            float sum = rows.sum[t][h];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            sum = sum_with_sink(a, kv_head, row, rows.max[t][h] * 0.69314718f, sum); // max is in units of log2(e)
            const float scale = sum > 0.0f ? unit / sum : 0.0f;
            if (row < n_rows) {
                const int64_t to = row_offset(a, kv_head, row);
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    const int c = n * 8 + lane % 4 * 2;
                    if (c < a.head_dim) {
                        store_pair(a.attended, a.type, to + c, scale * rows.acc[t][n][2 * h],
                                   scale * rows.acc[t][n][2 * h + 1]);
                    }
                }
            }
        }
    }
}

// What a warp's rows see of a tile, from its first and its last row's views: a later row's view neither begins nor ends before.
enum tile_view { SEES_NONE, SEES_SOME, SEES_ALL };

template <int KEYS>
__device__ static inline enum tile_view view_tile(const struct row_view &low, const struct row_view &high,
                                                  const struct key_tile &keys)
{
    if (keys.sinks) {
        return SEES_SOME;
    }
    const int last = keys.first + keys.n - 1;
    if (keys.first > high.last || last < low.first) {
        return SEES_NONE;
    }
    return keys.n == KEYS && high.first <= keys.first && last <= low.last ? SEES_ALL : SEES_SOME;
}

// Begins to copy tile i, if there is one. tiles: (2, 2, TILE) halves, or struct prefill_int8.
template <int D, class T>
__device__ static inline void begin_tile(half *tiles, const struct attend &a, int kv_head, const struct seen &seen, int i)
{
    using shape = prefill_shape<D>;
    if (i < seen.n_tiles) {
        if constexpr (sizeof(T) == 1) {
            stage_tile<D, shape::KEYS, PREFILL_THREADS>(&reinterpret_cast<struct prefill_int8<D> *>(tiles)->next, a, kv_head,
                                                        seen, i, threadIdx.x);
        } else {
            half *tile = tiles + i % 2 * 2 * shape::TILE;
            copy_tile<prefill_tile<D>, shape::KEYS, PREFILL_THREADS>(tile, tile + shape::TILE, a, kv_head, seen, i,
                                                                     threadIdx.x);
        }
    }
    copy_async_commit();
}

// Tile i when it has come, keys before values; the next one is on its way. Of int8 it is made now, so all threads must meet
// before they read it.
template <int D, class T>
__device__ static inline const half *take_tile(half *tiles, const struct attend &a, int kv_head, const struct seen &seen, int i)
{
    using shape = prefill_shape<D>;
    const half *tile = tiles;
    copy_async_wait<0>();
    __syncthreads(); // tile i has come, and what held tile i - 1 is free, the queries as well
    if constexpr (sizeof(T) == 1) {
        struct prefill_int8<D> *both = reinterpret_cast<struct prefill_int8<D> *>(tiles);
        convert_tile<prefill_tile<D>, shape::KEYS, PREFILL_THREADS>(both->tile, both->tile + shape::TILE, both->scales,
                                                                    &both->next, a, kv_head, seen, i, threadIdx.x);
    } else {
        tile += i % 2 * 2 * shape::TILE;
    }
    begin_tile<D, T>(tiles, a, kv_head, seen, i + 1);
    return tile;
}

// grid: (ceil(n * group / ROWS), 1, n_kv_heads). D: head_dim or the next larger instance. T: the cache's elements, half or
// int8_t.
template <int D, class T> __global__ void __launch_bounds__(PREFILL_THREADS) attend_prefill_fp16(const struct attend a, int n)
{
    using shape = prefill_shape<D>;
    constexpr bool INT8 = sizeof(T) == 1;
    SHARED_DYNAMIC(half, q);
    half *const tiles = q + 2 * shape::Q;
    grid_dependency_wait();
    grid_dependency_launch();
    SHARED_ARRAY(struct prefill_views<D>, views, 1);
    // The last tokens see the most keys: their blocks come first.
    const int n_rows = n * a.group, block_row = (gridDim.x - 1 - blockIdx.x) * shape::ROWS, kv_head = blockIdx.z;
    const int warp_row = threadIdx.x / 32 * shape::TILES * 16;
    view_rows(views, a, block_row, n_rows);
    clear_tiles<D, PREFILL_THREADS>(tiles, (INT8 ? 2 : 4) * shape::TILE, a.head_dim, threadIdx.x);
    __syncthreads();
    const struct seen &seen = views[0].seen;
    const struct row_view *warp_views = views[0].rows + warp_row;
    const float *scales = reinterpret_cast<const struct prefill_int8<D> *>(tiles)->scales;
    float limit = LEAST_LIMIT;
    begin_tile<D, T>(tiles, a, kv_head, seen, 0);
    load_queries<D, 4>(q, a, views[0], seen.n_sink_tiles > 0, kv_head, block_row, n_rows);
    struct prefill_rows<D> rows = {
    };
#pragma unroll
    for (int t = 0; t < shape::TILES; t++) {
        rows.max[t][0] = rows.max[t][1] = -INFINITY;
    }
    for (int i = 0; i < seen.n_tiles; i++) {
        const half *k = take_tile<D, T>(tiles, a, kv_head, seen, i);
        const bool other_queries = i > 0 && i == seen.n_sink_tiles;
        if (other_queries) { // few registers are free for it by now
            load_queries<D, 1>(q, a, views[0], false, kv_head, block_row, n_rows);
        }
        if (INT8 || other_queries) {
            __syncthreads();
        }
        const struct key_tile keys = seen_tile(seen, i, shape::KEYS);
        const enum tile_view view = view_tile<shape::KEYS>(warp_views[0], warp_views[shape::TILES * 16 - 1], keys);
        if (view != SEES_NONE) {
            float scores[shape::TILES][shape::KEYS / 8][4] = {};
            score_tile<D, shape::TILES, shape::KEYS>(scores, q, warp_row, k);
            if constexpr (INT8) {
                scale_scores<shape::TILES, shape::KEYS>(scores, scales);
            }
            cap_tile<shape::TILES, shape::KEYS>(scores, a.softcap);
            if (a.slopes) {
                slope_tile<shape::TILES, shape::KEYS>(scores, a.slopes + kv_head, seen, keys.first);
            }
            if (view == SEES_SOME) {
                mask_tile<shape::TILES, shape::KEYS>(scores, warp_views, keys);
            }
            softmax_tile<D, shape::TILES, shape::KEYS>(rows, scores);
            if constexpr (INT8) {
                const float by = scale_weights<shape::TILES, shape::KEYS>(scores, scales + shape::KEYS, &limit);
                if (by != 1.0f) {
                    multiply_sums(rows, by);
                }
            }
            add_values<D, shape::TILES, shape::KEYS>(rows, scores, k + shape::TILE);
        }
    }
    store_rows(rows, INT8 ? scale_unit(limit) : 1.0f, a, kv_head, block_row + warp_row, n_rows);
}

// ------------------------------------------------------------------------------------------ host

template <int D>
static yalm_status launch_prefill(const struct attend *a, yalm_kv type, int n, int n_kv_heads, cudaStream_t stream,
                                  yalm_error *error)
{
    using shape = prefill_shape<D>;
    const dim3 grid((n * a->group + shape::ROWS - 1) / shape::ROWS, 1, n_kv_heads);
    if (type == YALM_KV_INT8) {
        const size_t bytes = sizeof(half) * 2 * shape::Q + sizeof(struct prefill_int8<D>);
        return LAUNCH(error, (attend_prefill_fp16<D, int8_t>), grid, PREFILL_THREADS, bytes, stream, *a, n);
    }
    return LAUNCH(error, (attend_prefill_fp16<D, half>), grid, PREFILL_THREADS, shape::SHARED_BYTES, stream, *a, n);
}

yalm_status attention_prefill(const struct attention *attention, int n, void *attended, enum dtype type, cudaStream_t stream,
                              yalm_error *error)
{
    const int n_kv_heads = attention->cache->n_kv_heads;
    const yalm_kv kv = attention->cache->type;
    struct attend a;
    TRY(attend_make(&a, attention, attended, type, error));
    if (attend_fp32_does(attention->cache)) {
        return attend_fp32_launch(&a, attention->cache, n, stream, error);
    }
    return a.head_dim <= 64    ? launch_prefill<64>(&a, kv, n, n_kv_heads, stream, error)
           : a.head_dim <= 80  ? launch_prefill<80>(&a, kv, n, n_kv_heads, stream, error)
           : a.head_dim <= 96  ? launch_prefill<96>(&a, kv, n, n_kv_heads, stream, error)
           : a.head_dim <= 128 ? launch_prefill<128>(&a, kv, n, n_kv_heads, stream, error)
                               : launch_prefill<256>(&a, kv, n, n_kv_heads, stream, error);
}
