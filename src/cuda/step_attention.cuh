// A step's attention (step.cuh): rotates the token's queries and key, puts key and value into the cache, attends to all that the token sees.
//
// A unit is up to STEP_HEADS query heads of one KV head and a split of its keys; a block takes one at a time. LANES lanes share a key, each with eight of
// its components, so that a warp reads 512 bytes at a time; each warp has softmaxes of its own, which are merged at the end: of the block's warps in
// shared memory, of the splits by the one that has the token's own key. Bytes: K and V of the visible keys once for each unit's heads.
#pragma once
#include "cuda/kv_rows.cuh"
#include "cuda/rotation.cuh"
#include "cuda/step.cuh"

struct step_unit {
    int kv_head, first_head, n_heads; // heads: of the KV head's group
    int number;                       // of the heads: what tickets count for
    int split, n_splits;
    int first, last; // keys of the split, numbers among those before the token's own
    bool newest;     // the split has the token's own key
};

// How a token's attention is cut.
struct step_cut {
    int64_t first_key;       // position of the first key
    int n_keys;              // before the token's own
    int heads, group;        // of a unit at most; of a KV head
    int n_numbers, n_splits; // units are as many as their product
};

__device__ __forceinline__ struct step_cut step_cut_of(const struct step_launch &l, int64_t position) {
    struct step_cut cut;
    cut.first_key = policy_first_visible(l.policy, position);
    cut.n_keys = (int)(position - cut.first_key);
    cut.heads = l.head_dim > 128 ? STEP_HEADS / 2 : STEP_HEADS;
    cut.group = l.n_heads / l.n_kv_heads;
    cut.n_numbers = l.n_kv_heads * ((cut.group + cut.heads - 1) / cut.heads);
    cut.n_splits = max(1, min((int)gridDim.x / cut.n_numbers, cut.n_keys / STEP_KEYS));
    return cut;
}

__device__ __forceinline__ struct step_unit step_unit_of(const struct step_launch &l, const struct step_cut &cut, int number) {
    struct step_unit u;
    const int n_groups = cut.n_numbers / l.n_kv_heads;
    u.number = number % cut.n_numbers;
    u.split = number / cut.n_numbers;
    u.n_splits = cut.n_splits;
    u.kv_head = u.number / n_groups;
    u.first_head = u.number % n_groups * cut.heads;
    u.n_heads = min(cut.heads, cut.group - u.first_head);
    u.first = (int)((int64_t)cut.n_keys * u.split / cut.n_splits);
    u.last = (int)((int64_t)cut.n_keys * (u.split + 1) / cut.n_splits);
    u.newest = u.split == cut.n_splits - 1;
    return u;
}

// Key number `key` of a split lies in this slot.
__device__ __forceinline__ int step_slot(const struct step_launch &l, int first_slot, int key)
{
    const int slot = first_slot + key;
    return slot < l.policy.capacity ? slot : slot - (l.policy.capacity - l.policy.n_sinks);
}

// The block's first keys and values set out for the L2 cache, by a warp: they depend on no product of this step.
__device__ __forceinline__ void step_prefetch_keys(const struct step_phase &p, const struct step_launch &l, int64_t position)
{
    enum { MOST = 256 }; // keys: a third of the cache, for all blocks together
    const struct step_cut cut = step_cut_of(l, position);
    if ((int)blockIdx.x >= cut.n_numbers * cut.n_splits)
        return;
    const struct step_unit u = step_unit_of(l, cut, (int)blockIdx.x);
    const int64_t base = ((int64_t)p.layer * l.n_kv_heads + u.kv_head) * l.policy.capacity;
    const int first_slot = policy_slot(l.policy, cut.first_key);
    for (int key = u.first + (int)threadIdx.x % 32; key < min(u.last, u.first + MOST); key += 32) {
        const int64_t row = (base + step_slot(l, first_slot, key)) * l.head_dim;
        for (int c = 0; c < l.head_dim; c += 64) {
            prefetch_l2(l.keys + row + c);
            prefetch_l2(l.values + row + c);
        }
    }
}

// What is in shared memory while a unit runs.
template <int HEADS> struct step_attention {
    float *acc;    // (STEP_WARPS, HEADS, head_dim)
    float2 *state; // (STEP_WARPS, HEADS): max, sum
    float *q;      // (HEADS, head_dim), rotated and scaled
    half *k, *v;   // (head_dim): the token's own, as the cache has them
};

template <int HEADS>
__device__ __forceinline__ struct step_attention<HEADS> step_attention_of(float *work, int head_dim) {
    struct step_attention<HEADS> a;
    a.acc = work;
    a.q = a.acc + STEP_WARPS * HEADS * head_dim;
    a.k = reinterpret_cast<half *>(a.q + HEADS * head_dim);
    a.v = a.k + head_dim;
    a.state = reinterpret_cast<float2 *>(a.v + head_dim);
    return a;
}

__device__ __forceinline__ float4 step_turn(float4 re, float4 im, const float2 *turns, float scale, bool imaginary)
{
    const float2 a = turns[0], b = turns[1], c = turns[2], d = turns[3];
    if (imaginary)
        return {scale * (re.x * a.y + im.x * a.x), scale * (re.y * b.y + im.y * b.x), scale * (re.z * c.y + im.z * c.x),
                scale * (re.w * d.y + im.w * d.x)};
    return {scale * (re.x * a.x - im.x * a.y), scale * (re.y * b.x - im.y * b.y), scale * (re.z * c.x - im.z * c.y),
            scale * (re.w * d.x - im.w * d.y)};
}

__device__ __forceinline__ void step_store_halves(half *shared, half *cache, float4 x)
{
    const half of[4] = {from_float<half>(x.x), from_float<half>(x.y), from_float<half>(x.z), from_float<half>(x.w)};
    uint2 words;
    memcpy(&words, of, sizeof words);
    *reinterpret_cast<uint2 *>(shared) = words;
    if (cache)
        *reinterpret_cast<uint2 *>(cache) = words;
}

// Queries, and the newest key and value, to shared memory; the latter to the cache, too, by the unit of the group's first heads. Each thread has eight
// components: four, and their partners of the rotation; of a value one four and the next.
template <int HEADS>
__device__ __forceinline__ void step_prepare(const struct step_launch &l, const struct step_unit &u,
                                             const struct step_attention<HEADS> &a, const float2 *turns, int layer, int64_t row)
{
    const int half_dim = l.head_dim / 2, quarter = half_dim / 4, group = l.n_heads / l.n_kv_heads;
    const int head = (int)threadIdx.x / quarter, i = (int)threadIdx.x % quarter * 4;
    const bool of_key = head == HEADS && u.newest, of_value = head == HEADS + 1 && u.newest;
    if (head >= HEADS && !of_key && !of_value)
        return;
    const float *from = of_key     ? l.k + (int64_t)u.kv_head * l.head_dim
                        : of_value ? l.v + (int64_t)u.kv_head * l.head_dim
                                   : l.q + (int64_t)(u.kv_head * group + u.first_head + head) * l.head_dim;
    const bool there = of_key || of_value || head < u.n_heads;
    const float *const both[2] = {there ? from + i : NULL, there ? from + i + half_dim : NULL};
    float4 x[2];
    told_wait_fours(x, both, step_parity(STEP_BY_LAYER, l, layer));
    const bool keep = u.first_head == 0;
    half *key = keep ? l.keys + row * l.head_dim + i : NULL, *value = keep ? l.values + row * l.head_dim + i : NULL;
    if (of_value) {
        step_store_halves(a.v + i, value, x[0]);
        step_store_halves(a.v + i + half_dim, value ? value + half_dim : NULL, x[1]);
        return;
    }
    const float scale = of_key ? 1.0f : 1.0f / sqrtf((float)l.head_dim);
    const float4 re = step_turn(x[0], x[1], turns + i, scale, false), im = step_turn(x[0], x[1], turns + i, scale, true);
    if (of_key) {
        step_store_halves(a.k + i, key, re);
        step_store_halves(a.k + i + half_dim, key ? key + half_dim : NULL, im);
    } else {
        *reinterpret_cast<float4 *>(a.q + head * l.head_dim + i) = re;
        *reinterpret_cast<float4 *>(a.q + head * l.head_dim + i + half_dim) = im;
    }
}

// A lane's part of its warp's softmaxes.
template <int HEADS> struct step_softmax {
    float q[HEADS][8], acc[HEADS][8];
    float max[HEADS], sum[HEADS];
};

// Some keys, one for each LANES lanes and step; those that are not there count nothing.
template <int LANES, int HEADS, int STEPS>
__device__ __forceinline__ void step_add_keys(struct step_softmax<HEADS> &s, const uint4 (&k)[STEPS], const uint4 (&v)[STEPS],
                                              const bool (&there)[STEPS])
{
    float score[STEPS][HEADS];
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        float key[8];
        unpack<half>(key, k[j]);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float dot = 0;
#pragma unroll
            for (int c = 0; c < 8; c++)
                dot = fmaf(s.q[h][c], key[c], dot);
#pragma unroll
            for (int step = LANES / 2; step > 0; step /= 2)
                dot += __shfl_xor_sync(0xffffffffu, dot, step);
            score[j][h] = there[j] ? dot : -INFINITY;
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float max = s.max[h];
#pragma unroll
        for (int j = 0; j < STEPS; j++)
            max = fmaxf(max, score[j][h]);
        const float shrink = softmax_weight(s.max[h], max);
        s.max[h] = max;
        s.sum[h] *= shrink;
#pragma unroll
        for (int c = 0; c < 8; c++)
            s.acc[h][c] *= shrink;
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            score[j][h] = score[j][h] == -INFINITY ? 0.0f : __expf(score[j][h] - max);
            s.sum[h] += score[j][h];
        }
    }
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        float value[8];
        unpack<half>(value, v[j]);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                s.acc[h][c] = fmaf(score[j][h], value[c], s.acc[h][c]);
    }
}

// Some keys and values on their way to registers: one of each for LANES lanes and step.
template <int LANES> struct step_keys {
    static constexpr int STEPS = 4, AT_ONCE = 32 / LANES;
    uint4 k[STEPS], v[STEPS];
    bool there[STEPS];
};

// Those from key number `first` of the split on.
template <int LANES>
__device__ __forceinline__ void step_fetch_keys(struct step_keys<LANES> &to, const struct step_launch &l,
                                                const struct step_unit &u, int64_t base, int first_slot, int first)
{
    const int lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
    const half *keys = l.keys + base * l.head_dim + part, *values = l.values + base * l.head_dim + part;
#pragma unroll
    for (int j = 0; j < to.STEPS; j++) {
        const int key = first + j * to.AT_ONCE + lane / LANES;
        to.there[j] = key < u.last;
        to.k[j] = to.v[j] = {0, 0, 0, 0};
        if (to.there[j] && part < l.head_dim) {
            const int64_t at = (int64_t)step_slot(l, first_slot, key) * l.head_dim;
            to.k[j] = __ldcg(reinterpret_cast<const uint4 *>(keys + at));
            to.v[j] = __ldcg(reinterpret_cast<const uint4 *>(values + at));
        }
    }
}

// The rest of the split's keys, this warp's share, of which the first are under way; and the newest one.
template <int LANES, int HEADS>
__device__ __forceinline__ void step_attend_keys(struct step_softmax<HEADS> &s, struct step_keys<LANES> &keys,
                                                 const struct step_launch &l, const struct step_unit &u,
                                                 const struct step_attention<HEADS> &a, int64_t base, int first_slot)
{
    constexpr int stride = STEP_WARPS * keys.AT_ONCE * keys.STEPS;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
    for (int i = u.first + warp * keys.AT_ONCE * keys.STEPS; i < u.last; i += stride) {
        const struct step_keys<LANES> now = keys;
        if (i + stride < u.last)
            step_fetch_keys(keys, l, u, base, first_slot, i + stride);
        step_add_keys<LANES, HEADS>(s, now.k, now.v, now.there);
    }
    if (u.newest && warp == STEP_WARPS - 1) {
        uint4 k[1] = {{0, 0, 0, 0}}, v[1] = {{0, 0, 0, 0}};
        const bool there[1] = {lane < LANES};
        if (there[0] && part < l.head_dim) {
            k[0] = *reinterpret_cast<const uint4 *>(a.k + part);
            v[0] = *reinterpret_cast<const uint4 *>(a.v + part);
        }
        step_add_keys<LANES, HEADS>(s, k, v, there);
    }
}

// The warp's lanes that had different keys become one, and leave it in shared memory.
template <int LANES, int HEADS>
__device__ __forceinline__ void step_leave(struct step_softmax<HEADS> &s, const struct step_attention<HEADS> &a, int head_dim)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float max = s.max[h];
#pragma unroll
        for (int step = 16; step >= LANES; step /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
        const float shrink = softmax_weight(s.max[h], max);
        s.sum[h] *= shrink;
#pragma unroll
        for (int step = 16; step >= LANES; step /= 2)
            s.sum[h] += __shfl_xor_sync(0xffffffffu, s.sum[h], step);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            s.acc[h][c] *= shrink;
#pragma unroll
            for (int step = 16; step >= LANES; step /= 2)
                s.acc[h][c] += __shfl_xor_sync(0xffffffffu, s.acc[h][c], step);
        }
        if (lane < LANES && part < head_dim) {
            float *to = a.acc + (warp * HEADS + h) * head_dim + part;
            *reinterpret_cast<float4 *>(to) = {s.acc[h][0], s.acc[h][1], s.acc[h][2], s.acc[h][3]};
            *reinterpret_cast<float4 *>(to + 4) = {s.acc[h][4], s.acc[h][5], s.acc[h][6], s.acc[h][7]};
        }
        if (lane == 0)
            a.state[warp * HEADS + h] = {max, s.sum[h]};
    }
}

// A softmax's part: the largest score, the sum of weights, and of weighted values one component.
struct step_part {
    float y, max, sum;
};
__device__ __forceinline__ void step_merge(struct step_part &all, const struct step_part &more)
{
    const float max = fmaxf(all.max, more.max), own = softmax_weight(all.max, max), other = softmax_weight(more.max, max);
    all = {own * all.y + other * more.y, max, own * all.sum + other * more.sum};
}

// The block's warps become one. Where there are several splits the one with the newest key waits for the others', and merges them.
template <int HEADS>
__device__ __forceinline__ void step_finish_unit(const struct step_launch &l, const struct step_unit &u,
                                                 const struct step_attention<HEADS> &a, int layer)
{
    enum { AT_ONCE = 8 };
    const int group = l.n_heads / l.n_kv_heads, row = HEADS * l.head_dim;
    const unsigned number = l.first_layer + layer + 1;
    float *to = l.attended + (int64_t)(u.kv_head * group + u.first_head) * l.head_dim;
    for (int i = (int)threadIdx.x; i < u.n_heads * l.head_dim; i += STEP_THREADS) {
        const int head = i / l.head_dim;
        float4 *parts = l.parts + (int64_t)u.number * u.n_splits * row + i;
        struct step_part all = {0, -INFINITY, 0};
#pragma unroll
        for (int w = 0; w < STEP_WARPS; w++) {
            const float2 state = a.state[w * HEADS + head];
            step_merge(all, {a.acc[w * row + i], state.x, state.y});
        }
        if (!u.newest) {
            told_store_part(parts + u.split * row, all.y, all.max, all.sum, number);
            continue;
        }
        for (int split = 0; split < u.n_splits - 1; split += AT_ONCE) {
            float4 others[AT_ONCE];
            told_wait_parts(others, parts + split * row, row, u.n_splits - 1 - split, number);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (split + j < u.n_splits - 1)
                    step_merge(all, {others[j].x, others[j].y, others[j].z});
        }
        told_store(to + i, all.y / all.sum, step_parity(STEP_BY_LAYER, l, layer));
    }
}

// The units of a block; where it has none it goes on.
template <int LANES, int HEADS>
__device__ __forceinline__ void step_attend_by(const struct step_phase &p, const struct step_launch &l,
                                               const struct step_memory &m, int64_t position)
{
    const struct step_attention<HEADS> a = step_attention_of<HEADS>(m.attention, l.head_dim);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const struct step_cut cut = step_cut_of(l, position);
    const int first_slot = policy_slot(l.policy, cut.first_key);
    for (int number = (int)blockIdx.x; number < cut.n_numbers * cut.n_splits; number += (int)gridDim.x) {
        const struct step_unit u = step_unit_of(l, cut, number);
        const int64_t base = ((int64_t)p.layer * l.n_kv_heads + u.kv_head) * l.policy.capacity;
        struct step_keys<LANES> keys;
        step_fetch_keys(keys, l, u, base, first_slot, u.first + warp * keys.AT_ONCE * keys.STEPS);
        barrier_sync(STEP_BARRIER, STEP_THREADS); // nobody reads what lies there any more
        step_prepare(l, u, a, m.turns, p.layer, base + policy_slot(l.policy, position));
        MARK(0);
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        MARK(1);
        struct step_softmax<HEADS> s = {};
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s.max[h] = -INFINITY;
#pragma unroll
            for (int c = 0; c < 8; c++)
                s.q[h][c] = lane % LANES * 8 < l.head_dim ? a.q[h * l.head_dim + lane % LANES * 8 + c] : 0.0f;
        }
        step_attend_keys<LANES>(s, keys, l, u, a, base, first_slot);
        MARK(2);
        step_leave<LANES>(s, a, l.head_dim);
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        MARK(3);
        step_finish_unit(l, u, a, p.layer);
        MARK(4);
        barrier_sync(STEP_BARRIER, STEP_THREADS);
    }
}

__device__ __forceinline__ void step_attend(const struct step_phase &p, const struct step_launch &l, const struct step_memory &m,
                                            int64_t position)
{
    if (l.head_dim <= 64)
        step_attend_by<8, STEP_HEADS>(p, l, m, position);
    else if (l.head_dim <= 128)
        step_attend_by<16, STEP_HEADS>(p, l, m, position);
    else
        step_attend_by<32, STEP_HEADS / 2>(p, l, m, position);
}
