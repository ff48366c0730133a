// What the attention kernels share: which keys a block's queries see, and how partial results become one.
//
// A block has some rows: queries of heads that share a KV head, of one token (decode) or of several (prefill). Row i of a KV
// head is query head i % group of token i / group. Each row keeps the running softmax's (max, sum, acc); see attend_args in
// cpu/kernels/kernels.h.
#pragma once
#include <type_traits>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/kv_policy.cuh"
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/kernels/reduce.cuh"

// Arguments of every attention kernel.
struct attend {
    const struct evaluation *step;
    const float *q, *sink_q;                // (n, n_heads, head_dim); sink_q NULL: no sinks
    const void *keys, *values;              // (n_kv_heads, capacity, head_dim)
    const float *key_scales, *value_scales; // (n_kv_heads, capacity) of int8, else NULL
    struct kv_policy policy;
    int n_heads, group, head_dim;
    float softcap;            // of scores; 0: none
    const float *sink_logits; // (n_heads); NULL: none
    const float *slopes;      // (n_heads), group 1; NULL: none
    void *attended;           // (n, n_heads, head_dim)
    enum dtype type;
    int n_splits;       // the grid's blocks for a unit, which is the rows of one block
    float *part_acc;    // (units, n_splits, rows, head_dim)
    float2 *part_state; // (units, n_splits, rows): max, sum
    unsigned *tickets;  // (units): splits that are done; 0 between launches
    struct gathered gathered;
    float *part_alpha; // (units, n_splits, rows): where it has a tail
    yalm_kv cache_type;
};

// The keys that a batch's tokens see, from the first one's first to the last one's last, in tiles. The sinks come first, where
// the last token has them apart; then a run of positions, never longer than the ring.
struct seen {
    int64_t first;                         // position of the run's first key
    int n_run, slot;                       // its length, and where it begins
    int n_sinks;                           // 0: none apart
    int n_sink_tiles, n_tiles;             // the latter counts both
    int capacity, ring;                    // slots; slots behind the sinks
    static constexpr int LEAST_BLOCKS = 0; // on a multiprocessor at a time, for __launch_bounds__: the compiler's choice
};

// The positions that a token sees, first to last, without the sinks apart.
struct sight {
    int64_t first, last;
};

// Of a token that is no text's of a batch: it sees itself and those before it.
__device__ static inline struct sight sight_alone(const struct kv_policy &policy, int64_t position)
{
    return {policy_first_visible(policy, position), position};
}

// Of the batch's token t; a later token's begins and ends no earlier. Where there are several texts, positions count from the
// batch's first token.
__device__ static inline struct sight sight_of(const struct attend &a, int t)
{
    const int64_t position = a.step->position + t;
    struct sight sight = sight_alone(a.policy, position);
    if (a.step->texts) {
        const struct text_token text = a.step->texts[t];
        sight.first = max(sight.first, (int64_t)text.first);
        sight.last = min((int64_t)text.last, position + a.policy.span) - 1;
    }
    return sight;
}

__device__ static inline struct seen seen_by(const struct kv_policy &policy, const struct sight &first,
                                             const struct sight &last, int tile)
{
    struct seen seen;
    seen.first = first.first;
    seen.n_run = (int)(last.last + 1 - seen.first);
    seen.slot = policy_slot(policy, seen.first);
    seen.n_sinks = policy_sinks_apart(policy, last.last) ? policy.n_sinks : 0;
    seen.n_sink_tiles = (seen.n_sinks + tile - 1) / tile;
    seen.n_tiles = seen.n_sink_tiles + (seen.n_run + tile - 1) / tile;
    seen.capacity = policy.capacity;
    seen.ring = policy.capacity - policy.n_sinks;
    return seen;
}

// Tile i: its first key's number among the sinks or in the run, and how many it has.
struct key_tile {
    bool sinks;
    int first, n;
};

__device__ static inline struct key_tile seen_tile(const struct seen &seen, int i, int tile)
{
    struct key_tile keys;
    keys.sinks = i < seen.n_sink_tiles;
    keys.first = (keys.sinks ? i : i - seen.n_sink_tiles) * tile;
    keys.n = min(tile, (keys.sinks ? seen.n_sinks : seen.n_run) - keys.first);
    return keys;
}

// Where key j of a tile lies. Beyond the tile's end: its last key, so that whatever is computed with it is finite, to be
// masked.
__device__ static inline int tile_slot(const struct seen &seen, const struct key_tile &keys, int j)
{
    const int slot = (keys.sinks ? 0 : seen.slot) + keys.first + min(j, keys.n - 1);
    return slot < seen.capacity ? slot : slot - seen.ring;
}

// The same of selected keys: number i of the run is rows[i].
struct seen_rows : seen {
    const int *rows;
    static constexpr int LEAST_BLOCKS = 1; // all registers that there are, lest it spills for the sake of more blocks
};

__device__ static inline int tile_slot(const struct seen_rows &seen, const struct key_tile &keys, int j)
{
    const int i = keys.first + min(j, keys.n - 1);
    return keys.sinks ? i : seen.rows[i];
}

// The keys in one KV head of tokens in a row, by what the first and the last of these see. SEEN = seen_rows: one token's
// selected keys.
template <class SEEN>
__device__ static inline SEEN seen_of(const struct attend &a, int kv_head, const struct sight &first, const struct sight &last,
                                      int tile);

template <>
__device__ inline struct seen seen_of<struct seen>(const struct attend &a, int, const struct sight &first,
                                                   const struct sight &last, int tile) {
    return seen_by(a.policy, first, last, tile);
}

template <>
__device__ inline struct seen_rows seen_of<struct seen_rows>(const struct attend &a, int kv_head, const struct sight &,
                                                             const struct sight &last, int tile) {
    struct seen_rows seen;
    seen.first = last.first;
    seen.n_run = a.gathered.n_rows[kv_head];
    seen.slot = 0;
    seen.n_sinks = policy_sinks_apart(a.policy, last.last) ? a.policy.n_sinks : 0;
    seen.n_sink_tiles = (seen.n_sinks + tile - 1) / tile;
    seen.n_tiles = seen.n_sink_tiles + (seen.n_run + tile - 1) / tile;
    seen.capacity = a.policy.capacity;
    seen.ring = a.policy.capacity - a.policy.n_sinks;
    seen.rows = a.gathered.rows + (int64_t)kv_head * a.gathered.ld;
    return seen;
}

// What is added to the score of the run's key i for its distance from the last token. For an earlier token all keys' biases are
// off by one constant, which softmax does not see.
__device__ static inline float
slope_bias(float slope, const struct seen &seen, int i)
{
    return slope * (float)(i + 1 - seen.n_run);
}

// The biases of a tile's rows set out for `to`, (KEYS) floats of shared memory, KEYS <= 32. Dense attention has none but those
// of slopes, sinks have none.
template <int KEYS>
__device__ static inline void copy_biases(void *to, const struct attend &a, const struct seen &seen, int kv_head, int tile,
                                          int lane)
{
    if (a.slopes && lane < KEYS) {
        static_cast<float *>(to)[lane] = slope_bias(a.slopes[kv_head], seen, seen_tile(seen, tile, KEYS).first + lane);
    }
}
template <int KEYS>
__device__ static inline void copy_biases(void *to, const struct attend &a, const struct seen_rows &seen, int kv_head, int tile,
                                          int lane)
{
    const struct key_tile keys = seen_tile(seen, tile, KEYS);
    if (a.gathered.bias && !keys.sinks && lane < keys.n) {
        copy_async_few<4>(static_cast<float *>(to) + lane,
                          a.gathered.bias + (int64_t)kv_head * a.gathered.ld + keys.first + lane);
    }
}

// Whether they are added to the tile's scores.
__device__ static inline bool has_biases(const struct attend &a, const struct seen &, const struct key_tile &)
{
    return a.slopes;
}
__device__ static inline bool has_biases(const struct attend &a, const struct seen_rows &, const struct key_tile &keys)
{
    return a.gathered.bias && !keys.sinks;
}

// Splits that have work: each has at least `least` tiles, and all have about the same number, whatever the length.
__device__ static inline int seen_splits(const struct seen &seen, int n_splits, int least)
{
    return min(n_splits, (seen.n_tiles + least - 1) / least);
}

// Number of the first element of a row's output, and of its query.
__device__ static inline int64_t row_offset(const struct attend &a, int kv_head, int row)
{
    return ((int64_t)(row / a.group) * a.n_heads + kv_head * a.group + row % a.group) * a.head_dim;
}

// The same of two neighbours; at is even, and so rows are.
__device__ static inline void store_pair(void *to, enum dtype type, int64_t at, float x, float y)
{
    if (type == DTYPE_FP16) {
        *reinterpret_cast<half2 *>(static_cast<half *>(to) + at) = __float22half2_rn(make_float2(x, y));
    } else if (type == DTYPE_BF16) {
        *reinterpret_cast<__nv_bfloat162 *>(static_cast<__nv_bfloat16 *>(to) + at) = __float22bfloat162_rn(make_float2(x, y));
    } else {
        *reinterpret_cast<float2 *>(static_cast<float *>(to) + at) = make_float2(x, y);
    }
}

// cap tanh(score / cap) = cap - 2 cap / (1 + e^(2 score / cap)). Who has scores in other units has cap in them too.
__device__ static inline float capped(float score, float cap)
{
    return cap - 2.0f * cap / (1.0f + expf(2.0f * score / cap));
}

// e^(max - total_max), 0 where nothing was seen.
__device__ static inline float softmax_weight(float max, float total_max)
{
    return max == -INFINITY ? 0.0f : expf(max - total_max);
}

// A row's sum of e^(score - max), and of e^(logit - max) where its head has a logit without a key.
__device__ static inline float sum_with_sink(const struct attend &a, int kv_head, int row, float max, float sum)
{
    return a.sink_logits ? sum + expf(a.sink_logits[kv_head * a.group + row % a.group] - max) : sum;
}

// ------------------------------------------------------------------------------------------ the tail of selected keys

// Σ e^(score - max) of the unit's heads over the split's rows, numbers [first, last). One warp takes one head at a time, at the
// block's end, where its registers are free.
template <int ROWS>
__device__ static inline void part_alphas(const struct attend &a, int kv_head, int unit, int first_row, int n_rows, int split,
                                          int first, int last)
{
    const int lane = threadIdx.x % 32;
    const int *rows = a.gathered.rows + (int64_t)kv_head * a.gathered.ld;
    for (int row = threadIdx.x / 32; row < n_rows; row += blockDim.x / 32) {
        const int head = kv_head * a.group + first_row + row;
        const float *scores = a.gathered.scores + (int64_t)head * a.gathered.ld;
        const float max = a.gathered.stats[head].x;
        float sum = 0.0f;
#pragma unroll 4
        for (int i = first + lane; i < last; i += 32) {
            sum += softmax_weight(scores[rows[i]], max);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            a.part_alpha[((int64_t)unit * a.n_splits + split) * ROWS + row] = sum;
        }
    }
}

// Of a split's tiles [first, last); dense attention has none.
template <int ROWS>
__device__ static inline void part_alphas_of(const struct attend &, const struct seen &, int, int, int, int, int, int, int, int)
{
}
template <int ROWS>
__device__ static inline void part_alphas_of(const struct attend &a, const struct seen_rows &seen, int kv_head, int unit,
                                             int first_row, int n_rows, int split, int first, int last, int tile)
{
    if (a.gathered.sums) {
        part_alphas<ROWS>(a, kv_head, unit, first_row, n_rows, split, max(first - seen.n_sink_tiles, 0) * tile,
                          min(max(last - seen.n_sink_tiles, 0) * tile, seen.n_run));
    }
}

// Which share of the scores' softmax the selected keys and the sinks have, of which the keys' is the splits' sum.
__device__ static inline float alpha_of(const struct attend &a, int head, float sum)
{
    const float2 stats = a.gathered.stats[head];
    if (policy_sinks_apart(a.policy, a.step->position)) {
        for (int i = 0; i < a.policy.n_sinks; i++) {
            sum += softmax_weight(a.gathered.sink_scores[(int64_t)head * a.policy.n_sinks + i], stats.x);
        }
    }
    return fminf(sum * stats.y, 1.0f);
}

// A row's sum of the splits [first, n_splits), every step-th.
template <int ROWS>
__device__ static inline float sum_of_alphas(const struct attend &a, int unit, int row, int n_splits, int first, int step)
{
    float sum = 0.0f;
    for (int s = first; s < n_splits; s += step) {
        sum += __ldcg(a.part_alpha + ((int64_t)unit * a.n_splits + s) * ROWS + row);
    }
    return sum;
}

__device__ static inline double value_at(const struct attend &a, int kv_head, int slot, int c)
{
    const int64_t row = (int64_t)kv_head * a.policy.capacity + slot;
    if (a.cache_type == YALM_KV_INT8) {
        return a.value_scales[row] * (float)static_cast<const int8_t *>(a.values)[row * a.head_dim + c];
    }
    const int64_t at = row * a.head_dim + c;
    return a.cache_type == YALM_KV_FP32 ? static_cast<const float *>(a.values)[at]
                                        : __half2float(static_cast<const half *>(a.values)[at]);
}

// Component c of α y + (1 - α) v̄: the running sums, the token's own value and the sinks'.
__device__ static inline float with_tail(const struct attend &a, int kv_head, int c, float y, float alpha)
{
    const int64_t position = a.step->position;
    double total =
        a.gathered.sums[(int64_t)kv_head * a.head_dim + c] + value_at(a, kv_head, policy_slot(a.policy, position), c);
    if (policy_sinks_apart(a.policy, position)) {
        for (int i = 0; i < a.policy.n_sinks; i++) {
            total += value_at(a, kv_head, i, c);
        }
    }
    const float mean = (float)(total / policy_n_visible(a.policy, position));
    return fmaf(alpha, y, (1.0f - alpha) * mean);
}

// ------------------------------------------------------------------------------------------ merging

// What a block's warps leave in shared memory: acc (PARTS, ROWS, head_dim), state (PARTS, ROWS).
template <int PARTS, int ROWS> struct block_parts {
    float *acc;
    float2 *state;
};

// Row `row` of the block from its parts: weights e^(max - total max), and (max, sum) of the whole.
template <int PARTS, int ROWS>
__device__ static inline float2 block_row_state(const struct block_parts<PARTS, ROWS> &parts, int row, float (&weights)[PARTS])
{
    float2 total = {-INFINITY, 0.0f};
#pragma unroll
    for (int w = 0; w < PARTS; w++) {
        total.x = fmaxf(total.x, parts.state[w * ROWS + row].x);
    }
#pragma unroll
    for (int w = 0; w < PARTS; w++) {
        const float2 state = parts.state[w * ROWS + row];
        weights[w] = softmax_weight(state.x, total.x);
        total.y = fmaf(weights[w], state.y, total.y);
    }
    return total;
}

// Merges a unit's splits, in their order: attended = Σ e^(max_s - max) acc_s / Σ e^(max_s - max) sum_s. One warp takes one row
// at a time; weights: (n_splits) floats of shared memory for each warp. Reads rows * n_splits * (head_dim + 2) * 4 bytes from
// the L2 cache.
template <int ROWS, bool TAIL, int MOST_DIM>
__device__ static void merge_splits(const struct attend &a, int kv_head, int unit, int first_row, int n_rows, int n_splits,
                                    float *weights)
{
    enum { PAIRS = MOST_DIM / 64 }; // that a lane takes
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    weights += warp * n_splits;
    for (int row = warp; row < n_rows; row += blockDim.x / 32) {
        const float2 *state = a.part_state + ((int64_t)unit * a.n_splits) * ROWS + row;
        float own_max = -INFINITY, sum = 0.0f;
#pragma unroll 4
        for (int s = lane; s < n_splits; s += 32) {
            const float2 part = __ldcg(state + s * ROWS);
            const float larger = fmaxf(own_max, part.x);
            weights[s] = part.x;
            sum = sum * softmax_weight(own_max, larger) + part.y * softmax_weight(part.x, larger);
            own_max = larger;
        }
        const float max = warp_max(own_max);
        sum *= softmax_weight(own_max, max);
        sum = warp_sum(sum);
        for (int s = lane; s < n_splits; s += 32) {
            weights[s] = softmax_weight(weights[s], max);
        }
        __syncwarp();
        const float *acc = a.part_acc + ((int64_t)unit * a.n_splits * ROWS + row) * a.head_dim;
        const int64_t stride = (int64_t)ROWS * a.head_dim, to = row_offset(a, kv_head, first_row + row);
        sum = sum_with_sink(a, kv_head, first_row + row, max, sum);
        const float scale = sum > 0.0f ? 1.0f / sum : 0.0f;
        float alpha = 1.0f;
        if (TAIL && a.gathered.sums) {
            float selected = sum_of_alphas<ROWS>(a, unit, row, n_splits, lane, 32);
            selected = warp_sum(selected);
            alpha = alpha_of(a, kv_head * a.group + first_row + row, selected);
        }
        float2 totals[PAIRS] = {};
#pragma unroll 16
        for (int s = 0; s < n_splits; s++) { // what counts is how many loads are on their way
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                const int c = k * 64 + lane * 2;
                if (c < a.head_dim) {
                    const float2 x = __ldcg(reinterpret_cast<const float2 *>(acc + s * stride + c));
                    totals[k].x = fmaf(weights[s], x.x, totals[k].x);
                    totals[k].y = fmaf(weights[s], x.y, totals[k].y);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int c = k * 64 + lane * 2;
            if (c < a.head_dim) {
                float2 total = {totals[k].x * scale, totals[k].y * scale};
                if (TAIL && a.gathered.sums) {
                    total.x = with_tail(a, kv_head, c, total.x, alpha);
                    total.y = with_tail(a, kv_head, c + 1, total.y, alpha);
                }
                store_as(a.attended, a.type, to + c, total.x);
                store_as(a.attended, a.type, to + c + 1, total.y);
            }
        }
        __syncwarp();
    }
}

// Ends a block, all threads together: merges its warps' parts. A single split writes the outputs; of several each writes a
// part, and the last to arrive merges them all. Only __threadfence() and the ticket order the blocks, so nobody waits.
template <class SEEN = struct seen, int MOST_DIM = ATTENTION_MAX_DIM, int PARTS, int ROWS>
__device__ static void finish_rows(const struct attend &a, const struct block_parts<PARTS, ROWS> &parts, int kv_head, int unit,
                                   int first_row, int n_rows, int split, int n_splits)
{
    constexpr bool TAIL = std::is_same_v<SEEN, struct seen_rows>;
    __syncthreads();
    const int64_t part = ((int64_t)unit * a.n_splits + split) * ROWS;
    for (int i = threadIdx.x; i < n_rows * a.head_dim; i += blockDim.x) {
        const int row = i / a.head_dim, c = i % a.head_dim;
        float weights[PARTS], total = 0.0f;
        const float2 state = block_row_state(parts, row, weights);
#pragma unroll
        for (int w = 0; w < PARTS; w++) {
            total = fmaf(weights[w], parts.acc[(w * ROWS + row) * a.head_dim + c], total);
        }
        if (n_splits == 1) {
            const float sum = sum_with_sink(a, kv_head, first_row + row, state.x, state.y);
            float y = sum > 0.0f ? total / sum : 0.0f;
            if (TAIL && a.gathered.sums) {
                y = with_tail(a, kv_head, c, y,
                              alpha_of(a, kv_head * a.group + first_row + row, sum_of_alphas<ROWS>(a, unit, row, 1, 0, 1)));
            }
            store_as(a.attended, a.type, row_offset(a, kv_head, first_row + row) + c, y);
        } else {
            a.part_acc[part * a.head_dim + i] = total;
            if (c == 0) {
                a.part_state[part + row] = state;
            }
        }
    }
    if (n_splits == 1) {
        return;
    }
    SHARED_ARRAY(unsigned, ticket, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        ticket[0] = atomicAdd(a.tickets + unit, 1u);
    }
    __syncthreads();
    if (ticket[0] != (unsigned)n_splits - 1) {
        return;
    }
    __threadfence();
    merge_splits<ROWS, TAIL, MOST_DIM>(a, kv_head, unit, first_row, n_rows, n_splits, parts.acc);
    if (threadIdx.x == 0) {
        a.tickets[unit] = 0;
    }
}

// Kernel arguments from a launcher's: no splits. Refuses what no kernel is for.
static inline yalm_status attend_make(struct attend *a, const struct attention *attention, void *attended, enum dtype type,
                                      yalm_error *error)
{
    const struct kv_cache *cache = attention->cache;
    if (cache->head_dim > attention_most_dim(cache->latent) || cache->head_dim % 2 != 0) {
        return error_set(error, YALM_BAD_MODEL, "attention on the GPU: head_dim is %d, expected an even number of at most %d",
                         cache->head_dim, attention_most_dim(cache->latent));
    }
    const struct kv_layer layer = kv_layer_of(cache, attention->layer);
    *a = {};
    a->step = attention->step;
    a->q = attention->q;
    a->sink_q = attention->sink_q;
    a->keys = layer.keys;
    a->values = layer.values;
    a->key_scales = layer.key_scales;
    a->value_scales = layer.value_scales;
    a->policy = cache->policy;
    a->n_heads = attention->row_heads ? attention->row_heads : attention->n_heads;
    a->group = attention->n_heads / cache->n_kv_heads;
    a->head_dim = cache->head_dim;
    a->softcap = attention->softcap;
    a->sink_logits = attention->sink_logits;
    a->slopes = attention->slopes;
    a->attended = attended;
    a->type = type;
    a->n_splits = 1;
    return YALM_OK;
}
