// A step's attention (step.cuh): rotates the token's queries and key, puts key and value into the cache, attends to all that
// the token sees.
//
// A unit is some query heads of one KV head and a split of its keys; a block takes one at a time, and each of its warps one
// head and a share of the keys. LANES lanes share a key, each with eight of its components, so that a warp reads 512 bytes at a
// time. Its few instructions count: with few keys the time goes by how many there are one after the other. Parts of a softmax
// are merged in shared memory, those of splits by the one that has the token's own key. Bytes: K and V of the visible keys once
// for each unit, from the L2 cache (step_prefetch_keys).
#pragma once
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/kernels/rotation.cuh"
#include "cuda/step/step.cuh"

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
    int heads, group;        // of a unit at most, a power of two; of a KV head
    int n_numbers, n_splits; // units are as many as their product
};

__device__ __forceinline__ struct step_cut step_cut_of(const struct step_heads &l, int64_t position)
{
    struct step_cut cut;
    cut.first_key = policy_first_visible(l.policy, position);
    cut.n_keys = (int)(position - cut.first_key);
    cut.group = l.n_heads / l.n_kv_heads;
    for (cut.heads = 1; cut.heads < STEP_HEADS && cut.heads < cut.group;)
        cut.heads *= 2;
    cut.n_numbers = l.n_kv_heads * ((cut.group + cut.heads - 1) / cut.heads);
    cut.n_splits = max(1, min((int)gridDim.x / cut.n_numbers, cut.n_keys / STEP_KEYS));
    return cut;
}

__device__ __forceinline__ struct step_unit step_unit_of(const struct step_heads &l, const struct step_cut &cut, int number)
{
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
__device__ __forceinline__ int step_slot(const struct step_heads &l, int first_slot, int key)
{
    const int slot = first_slot + key;
    return slot < l.policy.capacity ? slot : slot - (l.policy.capacity - l.policy.n_sinks);
}

// The block's first keys and values set out for the L2 cache, by a warp: they depend on no product of this step.
__device__ __forceinline__ void step_prefetch_keys(const struct step_phase &p, const struct step_heads &l, int64_t position)
{
    enum { MOST = 256 }; // keys: a third of the cache, for all blocks together
    const struct step_cut cut = step_cut_of(l, position);
    if ((int)blockIdx.x >= cut.n_numbers * cut.n_splits)
        return;
    const struct step_unit u = step_unit_of(l, cut, (int)blockIdx.x);
    const int64_t base = ((int64_t)p.place * l.n_kv_heads + u.kv_head) * l.policy.capacity;
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
struct step_attention {
    float *acc;    // (STEP_WARPS, head_dim)
    float2 *state; // (STEP_WARPS): max, sum
    float *q;      // (STEP_HEADS, head_dim), rotated and scaled
    half *k, *v;   // (head_dim): the token's own, as the cache has them
};

__device__ __forceinline__ struct step_attention step_attention_of(float *work, int head_dim)
{
    struct step_attention a;
    a.acc = work;
    a.q = a.acc + STEP_WARPS * head_dim;
    a.k = reinterpret_cast<half *>(a.q + STEP_HEADS * head_dim);
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

// What a thread makes of a head: components [i, i + 4) and their partners in the other half.
struct step_head {
    bool query, value, there; // neither of the first two: a key
    int i;
    const float *from;
    float4 x[2];
};

// Head `head` of the unit; beyond its queries the newest key and value.
__device__ __forceinline__ struct step_head step_head_of(const struct step_heads &l, const struct step_unit &u, int heads,
                                                         int head, int i)
{
    struct step_head h;
    const int group = l.n_heads / l.n_kv_heads;
    h.i = i;
    h.query = head < heads;
    h.value = head == heads + 1;
    h.there = h.query ? head < u.n_heads : head < heads + 2 && u.newest;
    h.from = h.query   ? l.q + (int64_t)(u.kv_head * group + u.first_head + head) * l.head_dim
             : h.value ? l.v + (int64_t)u.kv_head * l.head_dim
                       : l.k + (int64_t)u.kv_head * l.head_dim;
    return h;
}

// Of models that have such norms: x = rmsnorm(x) * norm over the head, whose components neighbouring lanes have. All lanes call
// it.
template <bool ALL>
__device__ __forceinline__ void step_normalise_head(struct step_head &h, const struct step_phase &p, int head_dim)
{
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 2; j++)
        squares =
            fmaf(h.x[j].x, h.x[j].x, fmaf(h.x[j].y, h.x[j].y, fmaf(h.x[j].z, h.x[j].z, fmaf(h.x[j].w, h.x[j].w, squares))));
    for (int step = head_dim / 16; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    const float *weights = p.head_norms[h.query ? 0 : ALL && h.value ? 2 : 1];
    if (!h.there || (ALL ? !weights : h.value))
        return;
    const float scale = 1.0f / sqrtf(squares / (float)head_dim + p.eps);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float4 norm = __ldg(reinterpret_cast<const float4 *>(weights + h.i + j * (head_dim / 2)));
        h.x[j] = {h.x[j].x * scale * norm.x, h.x[j].y * scale * norm.y, h.x[j].z * scale * norm.z, h.x[j].w * scale * norm.w};
    }
}

// Rotates queries, which get the scores' scale, and keys.
__device__ __forceinline__ void step_rotate_head(struct step_head &h, const float2 *turns, float scale, bool still)
{
    const float by = h.query ? scale : 1.0f;
    if (still) {
        for (int j = 0; j < 2; j++)
            h.x[j] = {by * h.x[j].x, by * h.x[j].y, by * h.x[j].z, by * h.x[j].w};
        return;
    }
    const float4 re = step_turn(h.x[0], h.x[1], turns + h.i, by, false);
    h.x[1] = step_turn(h.x[0], h.x[1], turns + h.i, by, true);
    h.x[0] = re;
}

// Queries, and the newest key and value, to shared memory; the latter to the cache, too, by the unit of the group's first
// heads.
template <bool ALL>
__device__ __forceinline__ void step_prepare(const struct step_heads &l, const struct step_unit &u,
                                             const struct step_attention &a, const float2 *turns, const struct step_phase &p,
                                             int64_t row, int heads, float growth)
{
    const int quarter = l.head_dim / 8, half_dim = l.head_dim / 2;
    for (int first = 0; first < (heads + 2) * quarter; first += STEP_THREADS) {
        const int job = first + (int)threadIdx.x, head = job / quarter;
        struct step_head h = step_head_of(l, u, heads, head, job % quarter * 4);
        const float *const both[2] = {h.there ? h.from + h.i : NULL, h.there ? h.from + h.i + half_dim : NULL};
        const enum step_words words = !ALL || h.query ? p.x_words : h.value ? p.v_words : p.k_words;
        told_wait_fours(h.x, both, step_parity(words, p.launch));
        if (ALL ? p.head_norms[0] || p.head_norms[1] || p.head_norms[2] : p.head_norms[0] != NULL)
            step_normalise_head<ALL>(h, p, l.head_dim);
        if (!h.there)
            continue;
        if (!h.value)
            step_rotate_head(h, turns, ALL ? l.scale * growth : l.scale, p.still);
        half *cache = u.first_head == 0 ? (h.value ? l.values : l.keys) + row * l.head_dim + h.i : NULL;
        half *own = h.value ? a.v : a.k;
        for (int j = 0; j < 2; j++) {
            if (h.query)
                *reinterpret_cast<float4 *>(a.q + head * l.head_dim + h.i + j * half_dim) = h.x[j];
            else
                step_store_halves(own + h.i + j * half_dim, cache ? cache + j * half_dim : NULL, h.x[j]);
        }
    }
}

// A softmax's part: the largest score, the sum of weights, and of weighted values one component.
struct step_part {
    float y, max, sum;
};
__device__ __forceinline__ void step_merge(struct step_part &all, const struct step_part &more)
{
    const float max = fmaxf(all.max, more.max);
    const float own = all.max == max ? 1.0f : __expf(all.max - max), other = more.max == max ? 1.0f : __expf(more.max - max);
    all = {own * all.y + other * more.y, max, own * all.sum + other * more.sum};
}

// A lane's part of its warp's softmax.
struct step_softmax {
    float q[8], acc[8];
    float max, sum;
};

// Some keys and values on their way to registers: one of each for LANES lanes and step.
enum { STEP_AHEAD_KEYS = 4 };
struct step_keys {
    uint4 k[STEP_AHEAD_KEYS], v[STEP_AHEAD_KEYS];
    bool there[STEP_AHEAD_KEYS];
};

// Those from key number `first` of the split on.
template <int LANES>
__device__ __forceinline__ void step_fetch_keys(struct step_keys &to, const struct step_heads &l, const struct step_unit &u,
                                                int64_t base, int first_slot, int first)
{
    const int lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
    const half *keys = l.keys + base * l.head_dim + part, *values = l.values + base * l.head_dim + part;
#pragma unroll
    for (int j = 0; j < STEP_AHEAD_KEYS; j++) {
        const int key = first + j * (32 / LANES) + lane / LANES;
        to.there[j] = key < u.last;
        to.k[j] = to.v[j] = {0, 0, 0, 0};
        if (to.there[j] && part < l.head_dim) {
            const int64_t at = (int64_t)step_slot(l, first_slot, key) * l.head_dim;
            to.k[j] = __ldg(reinterpret_cast<const uint4 *>(keys + at));
            to.v[j] = __ldg(reinterpret_cast<const uint4 *>(values + at));
        }
    }
}

// Those that are not there count nothing.
template <bool ALL, int LANES, int N>
__device__ __forceinline__ void step_add_keys(struct step_softmax &s, const uint4 (&k)[N], const uint4 (&v)[N],
                                              const bool (&there)[N], float softcap)
{
    float score[N], max = s.max;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float key[8];
        unpack<half>(key, k[j]);
        score[j] = 0;
#pragma unroll
        for (int c = 0; c < 8; c++)
            score[j] = fmaf(s.q[c], key[c], score[j]);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < N; j++)
            score[j] += __shfl_xor_sync(0xffffffffu, score[j], step);
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (ALL && softcap > 0)
            score[j] = capped(score[j], softcap);
        score[j] = there[j] ? score[j] : -INFINITY;
        max = fmaxf(max, score[j]);
    }
    const float shrink = s.max == max ? 1.0f : __expf(s.max - max), base = max == -INFINITY ? 0.0f : max;
    s.max = max;
    s.sum *= shrink;
#pragma unroll
    for (int c = 0; c < 8; c++)
        s.acc[c] *= shrink;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float value[8];
        unpack<half>(value, v[j]);
        const float weight = __expf(score[j] - base);
        s.sum += weight;
#pragma unroll
        for (int c = 0; c < 8; c++)
            s.acc[c] = fmaf(weight, value[c], s.acc[c]);
    }
}

// The warp's lanes that had different keys become one, and leave it in shared memory.
template <int LANES>
__device__ __forceinline__ void step_leave(struct step_softmax &s, const struct step_attention &a, int head_dim)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = lane % LANES * 8;
    const float max = warp_max<16, LANES>(s.max);
    const float shrink = s.max == max ? 1.0f : __expf(s.max - max);
    s.sum = warp_sum<16, LANES>(s.sum * shrink);
#pragma unroll
    for (int c = 0; c < 8; c++)
        s.acc[c] = warp_sum<16, LANES>(s.acc[c] * shrink);
    if (lane < LANES && part < head_dim) {
        float *to = a.acc + warp * head_dim + part;
        *reinterpret_cast<float4 *>(to) = {s.acc[0], s.acc[1], s.acc[2], s.acc[3]};
        *reinterpret_cast<float4 *>(to + 4) = {s.acc[4], s.acc[5], s.acc[6], s.acc[7]};
    }
    if (lane == 0)
        a.state[warp] = {max, s.sum};
}

// A head's warps become one. Where there are several splits the one with the newest key waits for the others', and merges them.
template <bool ALL>
__device__ __forceinline__ void step_finish_unit(const struct step_heads &l, const struct step_unit &u,
                                                 const struct step_attention &a, const struct step_phase &p, float4 *all_parts,
                                                 int heads)
{
    enum { AT_ONCE = 8 };
    const int group = l.n_heads / l.n_kv_heads, row = STEP_HEADS * l.head_dim, first_head = u.kv_head * group + u.first_head;
    for (int i = (int)threadIdx.x; i < u.n_heads * l.head_dim; i += STEP_THREADS) {
        const int head = i / l.head_dim, c = i % l.head_dim;
        struct step_part all = {0, -INFINITY, 0};
        for (int w = head; w < STEP_WARPS; w += heads)
            step_merge(all, {a.acc[w * l.head_dim + c], a.state[w].x, a.state[w].y});
        float4 *parts = all_parts + (int64_t)u.number * u.n_splits * row + i;
        if (!u.newest) {
            told_store_part(parts + u.split * row, all.y, all.max, all.sum, p.turn + 1);
            continue;
        }
        for (int split = 0; split < u.n_splits - 1; split += AT_ONCE) {
            float4 others[AT_ONCE];
            told_wait_parts(others, parts + split * row, row, u.n_splits - 1 - split, p.turn + 1);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (split + j < u.n_splits - 1)
                    step_merge(all, {others[j].x, others[j].y, others[j].z});
        }
        if (ALL && p.sink_logits)
            step_merge(all, {0, __ldg(p.sink_logits + first_head + head), 1});
        const int64_t at = (int64_t)first_head * l.head_dim + i;
        float y = all.y / all.sum;
        if (ALL && p.gates)
            y /= 1.0f + expf(-told_wait(p.gates + at, step_parity(p.more_words, p.launch)));
        told_store(p.y[0] + at, y, step_parity(p.y_words[0], p.launch));
    }
}

// A unit: warp w has head w % heads, and of every `heads`-th share of the keys one.
template <bool ALL, int LANES>
__device__ __forceinline__ void step_attend_unit(const struct step_heads &l, const struct step_memory &m, float4 *parts,
                                                 const struct step_cut &cut, const struct step_phase &p, int number,
                                                 const struct step_now &now)
{
    constexpr int keys_each = STEP_AHEAD_KEYS * 32 / LANES;
    const struct step_attention a = step_attention_of(m.attention, l.head_dim);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, part = lane % LANES * 8;
    const int head = warp % cut.heads, stride = STEP_WARPS / cut.heads * keys_each,
              first_slot = policy_slot(l.policy, cut.first_key);
    const struct step_unit u = step_unit_of(l, cut, number);
    const int64_t base = ((int64_t)p.place * l.n_kv_heads + u.kv_head) * l.policy.capacity;
    const int last = head < u.n_heads ? u.last : u.first;
    int key = u.first + warp / cut.heads * keys_each;
    struct step_keys keys;
    step_fetch_keys<LANES>(keys, l, u, base, first_slot, key);
    barrier_sync(STEP_BARRIER, STEP_THREADS); // nobody reads any more what lies where attention has its own
    step_prepare<ALL>(l, u, a, m.turns + (ALL ? l.turns : 0), p, base + policy_slot(l.policy, now.position), cut.heads,
                      now.query_growth);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    struct step_softmax s = {};
    s.max = -INFINITY;
#pragma unroll
    for (int c = 0; c < 8; c++)
        s.q[c] = part < l.head_dim && head < u.n_heads ? a.q[head * l.head_dim + part + c] : 0.0f;
    while (key < last) {
        const struct step_keys these = keys;
        key += stride;
        if (key < last)
            step_fetch_keys<LANES>(keys, l, u, base, first_slot, key);
        step_add_keys<ALL, LANES>(s, these.k, these.v, these.there, l.softcap);
    }
    if (u.newest && warp < cut.heads) {
        const bool there[1] = {lane < LANES && part < l.head_dim};
        uint4 k[1] = {{0, 0, 0, 0}}, v[1] = {{0, 0, 0, 0}};
        if (there[0]) {
            k[0] = *reinterpret_cast<const uint4 *>(a.k + part);
            v[0] = *reinterpret_cast<const uint4 *>(a.v + part);
        }
        const bool counts[1] = {lane < LANES};
        step_add_keys<ALL, LANES>(s, k, v, counts, l.softcap);
    }
    step_leave<LANES>(s, a, l.head_dim);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    step_finish_unit<ALL>(l, u, a, p, parts, cut.heads);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
}

// The block's units; where it has none it goes on.
template <bool ALL>
__device__ __forceinline__ void step_attend(const struct step_phase &p, const struct step_heads &l, const struct step_memory &m,
                                            float4 *parts, const struct step_cut &cut, const struct step_now &now)
{
    if (ALL && (int)blockIdx.x >= cut.n_numbers * cut.n_splits)
        step_pass();
    for (int number = (int)blockIdx.x; number < cut.n_numbers * cut.n_splits; number += (int)gridDim.x) {
        if (l.head_dim <= 64)
            step_attend_unit<ALL, 8>(l, m, parts, cut, p, number, now);
        else if (l.head_dim <= 128)
            step_attend_unit<ALL, 16>(l, m, parts, cut, p, number, now);
        else
            step_attend_unit<ALL, 32>(l, m, parts, cut, p, number, now);
    }
}
