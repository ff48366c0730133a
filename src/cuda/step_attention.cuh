// A step's attention (step.cuh): rotates the token's queries and key, puts key and value into the cache, attends to all that the token sees.
//
// A unit is up to STEP_HEADS query heads of one KV head and a split of its keys; a block takes one at a time. LANES lanes share a key, each with eight of
// its components, so that a warp reads 512 bytes at a time; each warp has softmaxes of its own, which are merged at the end: of the block's warps in
// shared memory, of the splits by the last one to arrive. Bytes: K and V of the visible keys once for each unit's heads.
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

// What is in shared memory while a unit runs.
template <int HEADS> struct step_attention {
    float *acc;    // (STEP_WARPS, HEADS, head_dim)
    float2 *state; // (STEP_WARPS, HEADS): max, sum
    float *q;      // (HEADS, head_dim), rotated and scaled
    half *k, *v;   // (head_dim): the token's own, as the cache has them
};

template <int HEADS>
__device__ static inline struct step_attention<HEADS> step_attention_of(float *work, int head_dim) {
    struct step_attention<HEADS> a;
    a.acc = work;
    a.q = a.acc + STEP_WARPS * HEADS * head_dim;
    a.k = reinterpret_cast<half *>(a.q + HEADS * head_dim);
    a.v = a.k + head_dim;
    a.state = reinterpret_cast<float2 *>(a.v + head_dim);
    return a;
}

// Queries, and the newest key and value, to shared memory; the latter to the cache, too, by the unit of the group's first heads.
template <int HEADS>
__device__ static inline void step_prepare(const struct step_launch &l, const struct step_unit &u,
                                           const struct step_attention<HEADS> &a, const float2 *turns, int64_t row)
{
    const int half_dim = l.head_dim / 2, group = l.n_heads / l.n_kv_heads;
    const float scale = 1.0f / sqrtf((float)l.head_dim);
    const float *q = l.q + (int64_t)(u.kv_head * group + u.first_head) * l.head_dim;
    for (int j = (int)threadIdx.x; j < HEADS * half_dim; j += STEP_THREADS) {
        const int head = j / half_dim, i = j % half_dim;
        float2 both = {0, 0};
        if (head < u.n_heads) {
            const float2 turn = turns[i];
            const float re = scale * __ldcg(q + head * l.head_dim + i), im = scale * __ldcg(q + head * l.head_dim + i + half_dim);
            both = {re * turn.x - im * turn.y, re * turn.y + im * turn.x};
        }
        a.q[head * l.head_dim + i] = both.x;
        a.q[head * l.head_dim + i + half_dim] = both.y;
    }
    if (!u.newest)
        return;
    const float *k = l.k + (int64_t)u.kv_head * l.head_dim, *v = l.v + (int64_t)u.kv_head * l.head_dim;
    for (int i = (int)threadIdx.x; i < half_dim; i += STEP_THREADS) {
        const float2 turn = turns[i];
        const float re = __ldcg(k + i), im = __ldcg(k + i + half_dim);
        const half of[4] = {from_float<half>(re * turn.x - im * turn.y), from_float<half>(re * turn.y + im * turn.x),
                            from_float<half>(__ldcg(v + i)), from_float<half>(__ldcg(v + i + half_dim))};
        a.k[i] = of[0];
        a.k[i + half_dim] = of[1];
        a.v[i] = of[2];
        a.v[i + half_dim] = of[3];
        if (u.first_head == 0) {
            l.keys[row * l.head_dim + i] = of[0];
            l.keys[row * l.head_dim + i + half_dim] = of[1];
            l.values[row * l.head_dim + i] = of[2];
            l.values[row * l.head_dim + i + half_dim] = of[3];
        }
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

// The split's keys from the cache, this warp's share, and the newest one.
template <int LANES, int HEADS>
__device__ static inline void step_attend_keys(struct step_softmax<HEADS> &s, const struct step_launch &l,
                                               const struct step_unit &u, const struct step_attention<HEADS> &a, int64_t base,
                                               int first_slot)
{
    constexpr int AT_ONCE = 32 / LANES, STEPS = 4;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
    const bool has = part < l.head_dim;
    const half *keys = l.keys + base * l.head_dim, *values = l.values + base * l.head_dim;
    for (int i = u.first + warp * AT_ONCE * STEPS; i < u.last; i += STEP_WARPS * AT_ONCE * STEPS) {
        uint4 k[STEPS], v[STEPS];
        bool there[STEPS];
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            const int key = i + j * AT_ONCE + lane / LANES;
            there[j] = key < u.last;
            int slot = first_slot + key;
            if (slot >= l.policy.capacity)
                slot -= l.policy.capacity - l.policy.n_sinks;
            k[j] = v[j] = {0, 0, 0, 0};
            if (there[j] && has) {
                k[j] = __ldcg(reinterpret_cast<const uint4 *>(keys + (int64_t)slot * l.head_dim + part));
                v[j] = __ldcg(reinterpret_cast<const uint4 *>(values + (int64_t)slot * l.head_dim + part));
            }
        }
        step_add_keys<LANES, HEADS, STEPS>(s, k, v, there);
    }
    if (u.newest && warp == STEP_WARPS - 1) {
        uint4 k[1] = {{0, 0, 0, 0}}, v[1] = {{0, 0, 0, 0}};
        const bool there[1] = {lane < LANES};
        if (there[0] && has) {
            k[0] = *reinterpret_cast<const uint4 *>(a.k + part);
            v[0] = *reinterpret_cast<const uint4 *>(a.v + part);
        }
        step_add_keys<LANES, HEADS, 1>(s, k, v, there);
    }
}

// The warp's lanes that had different keys become one, and leave it in shared memory.
template <int LANES, int HEADS>
__device__ static inline void step_leave(struct step_softmax<HEADS> &s, const struct step_attention<HEADS> &a, int head_dim)
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

// (max, sum) and component c of n parts, which lie `states` and `accs` apart.
struct step_merged {
    float max, sum, y;
};
template <bool SHARED>
__device__ static inline struct step_merged step_merge(const float2 *state, int states, const float *acc, int accs, int n) {
    struct step_merged all = {-INFINITY, 0, 0};
#pragma unroll 4
    for (int i = 0; i < n; i++)
        all.max = fmaxf(all.max, SHARED ? state[i * states].x : __ldcg(state + i * states).x);
#pragma unroll 4
    for (int i = 0; i < n; i++) {
        const float2 part = SHARED ? state[i * states] : __ldcg(state + i * states);
        const float weight = softmax_weight(part.x, all.max);
        all.sum = fmaf(weight, part.y, all.sum);
        all.y = fmaf(weight, SHARED ? acc[i * accs] : __ldcg(acc + i * accs), all.y);
    }
    return all;
}

// The block's warps become one; where there are several splits, the last one of them to come here merges all.
template <int HEADS>
__device__ static inline void step_finish_unit(const struct step_launch &l, const struct step_unit &u,
                                               const struct step_attention<HEADS> &a)
{
    SHARED_ARRAY(unsigned, ticket, 1);
    const int group = l.n_heads / l.n_kv_heads, n = u.n_heads * l.head_dim, row = HEADS * l.head_dim;
    float *to = l.attended + (int64_t)(u.kv_head * group + u.first_head) * l.head_dim;
    const int64_t part = (int64_t)(u.number * u.n_splits + u.split) * HEADS;
    for (int i = (int)threadIdx.x; i < n; i += STEP_THREADS) {
        const int head = i / l.head_dim;
        const struct step_merged all = step_merge<true>(a.state + head, HEADS, a.acc + i, row, STEP_WARPS);
        if (u.n_splits == 1) {
            to[i] = all.y / all.sum;
        } else {
            l.part_acc[part * l.head_dim + i] = all.y;
            if (i % l.head_dim == 0)
                l.part_state[part + head] = {all.max, all.sum};
        }
    }
    if (u.n_splits == 1)
        return;
    __threadfence();
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    if (threadIdx.x == 0)
        ticket[0] = atomicAdd(l.tickets + u.number, 1u);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    if (ticket[0] != (unsigned)u.n_splits - 1)
        return;
    __threadfence();
    const int64_t parts = (int64_t)u.number * u.n_splits * HEADS;
    for (int i = (int)threadIdx.x; i < n; i += STEP_THREADS) {
        const struct step_merged all = step_merge<false>(l.part_state + parts + i / l.head_dim, HEADS,
                                                         l.part_acc + parts * l.head_dim + i, row, u.n_splits);
        to[i] = all.y / all.sum;
    }
    if (threadIdx.x == 0)
        l.tickets[u.number] = 0;
}

template <int LANES, int HEADS>
__device__ static inline void step_attend_by(const struct step_phase &p, const struct step_launch &l,
                                             const struct step_memory &m)
{
    const struct step_attention<HEADS> a = step_attention_of<HEADS>(m.work, l.head_dim);
    const int64_t position = l.step->position, first_key = policy_first_visible(l.policy, position);
    const int n_keys = (int)(position - first_key), group = l.n_heads / l.n_kv_heads, lane = (int)threadIdx.x % 32;
    const int n_groups = (group + HEADS - 1) / HEADS, n_numbers = l.n_kv_heads * n_groups;
    const int n_splits = max(1, min((int)gridDim.x / n_numbers, n_keys / STEP_KEYS));
    for (int number = (int)blockIdx.x; number < n_numbers * n_splits; number += (int)gridDim.x) {
        struct step_unit u;
        u.number = number % n_numbers;
        u.split = number / n_numbers;
        u.n_splits = n_splits;
        u.kv_head = u.number / n_groups;
        u.first_head = u.number % n_groups * HEADS;
        u.n_heads = min(HEADS, group - u.first_head);
        u.first = (int)((int64_t)n_keys * u.split / n_splits);
        u.last = (int)((int64_t)n_keys * (u.split + 1) / n_splits);
        u.newest = u.split == n_splits - 1;
        const int64_t base = ((int64_t)p.layer * l.n_kv_heads + u.kv_head) * l.policy.capacity;
        step_prepare(l, u, a, m.turns, base + policy_slot(l.policy, position));
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        struct step_softmax<HEADS> s = {};
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s.max[h] = -INFINITY;
#pragma unroll
            for (int c = 0; c < 8; c++)
                s.q[h][c] = lane % LANES * 8 < l.head_dim ? a.q[h * l.head_dim + lane % LANES * 8 + c] : 0.0f;
        }
        step_attend_keys<LANES>(s, l, u, a, base, policy_slot(l.policy, first_key));
        step_leave<LANES>(s, a, l.head_dim);
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        step_finish_unit(l, u, a);
        barrier_sync(STEP_BARRIER, STEP_THREADS);
    }
}

__device__ static inline void step_attend(const struct step_phase &p, const struct step_launch &l, const struct step_memory &m)
{
    if (l.head_dim <= 64)
        step_attend_by<8, STEP_HEADS>(p, l, m);
    else if (l.head_dim <= 128)
        step_attend_by<16, STEP_HEADS>(p, l, m);
    else
        step_attend_by<32, STEP_HEADS / 2>(p, l, m);
}
