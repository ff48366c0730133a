// From approximate scores to the selected keys, exactly: the k slots of a KV head with the largest weights, of equal ones those with the lower
// slot, ascending; as cpu/select.c. Nothing is sorted.
//
//     w_j = Σ_group ŝ_j = Σ_i e^(x_ij - max_i) / sum_i          over all visible slots j                     (weigh)
//     guess: a value that probably a few more than k weights reach, the one of that rank in a sample         (weigh's last block)
//     candidates = the slots with w_j >= guess, and those that always belong                                 (collect)
//     rows = the k best of them: the k-th value digit by digit of the floats' bits, then one compaction      (collect's last block)
//
// A KV head's slots are shared among blocks in parts of PART_KEYS; "last" is by a ticket, so nobody waits. Where the sample misled and there are fewer than
// k candidates, the last block takes all slots instead. Bytes, of a KV head with S keys and g queries: 4 g S read and 4 S written (weigh), 4 S read
// (collect), all of which the L2 cache holds; about 4 * 1.3 k for each of the search's three looks, from the L1 cache.
#include "cuda/selective.cuh"

enum {
    SELECT_THREADS = PART_KEYS / 4, // four neighbouring slots each
    SELECT_WARPS = SELECT_THREADS / 32,
    SAMPLES = 4096,  // of many keys, at least
    DIGIT_BITS = 10, // of a search's pass; the first has one more
    DIGIT_BINS = 2 << DIGIT_BITS,
    DIGIT_EACH = DIGIT_BINS / SELECT_THREADS,
};

// Weights are positive or 0, so that their bits are in their order.
enum { INFINITE_BITS = 0x7f800000 };
static constexpr unsigned SIGN_BIT = 0x80000000u; // of a weight or a candidate: it belongs whatever its weight

struct selecting {
    const struct step *step;
    struct kv_policy policy;
    struct selective t;
    int group;
};

// What a block works on: the keys that the token sees; of them the candidates proper are those with numbers [first, n - local).
struct wanted {
    struct visible v;
    int k, first, local; // clamped: first + local <= k <= v.n
};

__device__ static inline struct wanted wanted_of(const struct selecting &s)
{
    struct wanted w;
    const struct choice c = s.step->choice;
    w.v = visible_at(s.policy, s.step->position);
    w.k = min(c.k, w.v.n);
    w.local = min(c.local, w.k);
    w.first = min(c.first, w.k - w.local);
    return w;
}

__device__ static inline bool always_kept(const struct wanted &w, int number)
{
    return number < w.first || number >= w.v.n - w.local;
}

__device__ static inline int slot_of(const struct visible &v, int number)
{
    const int slot = v.slot + number;
    return slot < v.capacity ? slot : slot - v.ring;
}

// ------------------------------------------------------------------------------------------ of a block

// How many of the block's threads had `keep` before this one, and *total of all. counts: (SELECT_WARPS) in shared memory.
__device__ __forceinline__ int block_rank(bool keep, int *counts, int *total)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const unsigned votes = __ballot_sync(0xffffffffu, keep);
    __syncthreads();
    if (lane == 0)
        counts[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1));
    *total = 0;
#pragma unroll
    for (int w = 0; w < SELECT_WARPS; w++) {
        before += w < warp ? counts[w] : 0;
        *total += counts[w];
    }
    return before;
}

// The sum over threads with smaller numbers of x, and *total of all.
__device__ __forceinline__ int block_sum_before(int x, int *sums, int *total)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int through = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, through, step);
        through += lane >= step ? below : 0;
    }
    __syncthreads();
    if (lane == 31)
        sums[warp] = through;
    __syncthreads();
    int before = through - x;
    *total = 0;
#pragma unroll
    for (int w = 0; w < SELECT_WARPS; w++) {
        before += w < warp ? sums[w] : 0;
        *total += sums[w];
    }
    return before;
}

// Amounts of the values at or above three thresholds, over the whole block: how many, or what they sum to. Values with the sign bit do not take part.
template <class T> struct amounts {
    T of[3];
};

__device__ static inline void add_amount(int &amount, float)
{
    amount++;
}
__device__ static inline void add_amount(float &amount, float x)
{
    amount += x;
}

template <class T>
__device__ __forceinline__ struct amounts<T> amounts_from(const float *values, int n, const unsigned (&least)[3], T *shared) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    struct amounts<T> a = {
    };
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
        const float x = values[i];
        const unsigned bits = __float_as_uint(x);
#pragma unroll
        for (int j = 0; j < 3; j++)
            if (bits >= least[j] && bits <= INFINITE_BITS)
                add_amount(a.of[j], x);
    }
#pragma unroll
    for (int j = 0; j < 3; j++)
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            a.of[j] += __shfl_xor_sync(0xffffffffu, a.of[j], step);
    __syncthreads();
    if (lane == 0)
#pragma unroll
        for (int j = 0; j < 3; j++)
            shared[j * SELECT_WARPS + warp] = a.of[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 3; j++) {
        a.of[j] = 0;
#pragma unroll
        for (int w = 0; w < SELECT_WARPS; w++)
            a.of[j] += shared[j * SELECT_WARPS + w];
    }
    return a;
}

// The bits of the largest value at or above `low` from which on the values amount to at least `target`; `low` where there is none, or where
// only the values below it would do. Each look at the values cuts the range in four.
template <class T>
__device__ __forceinline__ unsigned threshold_bits(const float *values, int n, unsigned low, T target, T *shared)
{
    unsigned high = INFINITE_BITS + 1;
    while (high - low > 1) {
        const unsigned quarter = (high - low) / 4 > 0 ? (high - low) / 4 : 1;
        const unsigned least[3] = {low + quarter, low + 2 * quarter, low + 3 * quarter};
        const struct amounts<T> a = amounts_from(values, n, least, shared);
        const unsigned end = high;
#pragma unroll
        for (int i = 2; i >= 0; i--) // the first that does not do is the new end: no index that is known at run time only
            high = least[i] < end && a.of[i] < target ? least[i] : high;
#pragma unroll
        for (int i = 0; i < 3; i++)
            low = least[i] < high ? least[i] : low;
    }
    return low;
}

// threshold_bits() for k values: three looks at them, 11, 10 and 10 bits of the k-th in turn, each by a histogram. bins: (DIGIT_BINS), shared: (SELECT_WARPS + 2).
__device__ __forceinline__ unsigned kth_bits(const float *values, int n, unsigned low, int k, unsigned *bins, int *shared)
{
    unsigned prefix = 0;
    int *const found = shared + SELECT_WARPS; // a digit, and the rank among those that have it
    if (k <= 0)
        return INFINITE_BITS;
#pragma unroll 1
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        const int above = shift + DIGIT_BITS + (shift == 2 * DIGIT_BITS);
        const unsigned digits = (1u << (above - shift)) - 1;
        for (int i = (int)threadIdx.x; i < DIGIT_BINS; i += SELECT_THREADS)
            bins[i] = 0;
        __syncthreads();
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
            const unsigned bits = __float_as_uint(values[i]);
            if (bits <= INFINITE_BITS && bits >> above == prefix)
                atomicAdd(&bins[bits >> shift & digits], 1u);
        }
        __syncthreads();
        const unsigned *top = bins + DIGIT_BINS - 1 - DIGIT_EACH * (int)threadIdx.x; // thread 0 has the largest
        int own = 0, total;
#pragma unroll
        for (int i = 0; i < DIGIT_EACH; i++)
            own += (int)top[-i];
        int before = block_sum_before(own, shared, &total);
        if (total < k)
            return low;
        if (before < k && k <= before + own) {
            int i = 0;
            for (; before + (int)top[-i] < k; i++)
                before += (int)top[-i];
            found[0] = (int)(top - i - bins);
            found[1] = k - before;
        }
        __syncthreads();
        prefix = prefix << DIGIT_BITS | (unsigned)found[0];
        k = found[1];
    }
    return max(prefix, low);
}

template <class T> __device__ __forceinline__ T amount_from(const float *values, int n, unsigned least, T *shared)
{
    const unsigned same[3] = {least, least, least};
    return amounts_from(values, n, same, shared).of[0];
}

// True in all threads of the block that is the last of `n_blocks` to come here; what the others wrote can then be read with __ldcg().
__device__ static inline bool last_block(unsigned *ticket, unsigned n_blocks, unsigned *shared)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        shared[0] = atomicAdd(ticket, 1u);
    __syncthreads();
    if (shared[0] != n_blocks - 1)
        return false;
    __threadfence();
    if (threadIdx.x == 0)
        *ticket = 0;
    return true;
}

// ------------------------------------------------------------------------------------------ weights

// (max, 1 / sum) of a query head from all parts and the sinks; one warp.
__device__ __forceinline__ float2 merge_stats(const struct selecting &s, int head, int n_sinks)
{
    const int lane = (int)threadIdx.x % 32;
    const float2 *parts = s.t.part_stats + (size_t)head * s.t.n_parts;
    const float *sinks = s.t.sink_scores + (size_t)head * s.policy.n_sinks;
    float max = -INFINITY, sum = 0.0f;
    for (int p = lane; p < s.t.n_parts; p += 32)
        max = fmaxf(max, parts[p].x);
    for (int i = lane; i < n_sinks; i += 32)
        max = fmaxf(max, sinks[i]);
    max = warp_max(max);
    for (int p = lane; p < s.t.n_parts; p += 32)
        sum = fmaf(softmax_weight(parts[p].x, max), parts[p].y, sum);
    for (int i = lane; i < n_sinks; i += 32)
        sum += softmax_weight(sinks[i], max);
    return make_float2(max, 1.0f / warp_sum(sum));
}

// A threshold for the KV head: the weight of a rank in every stride-th candidate, some standard deviations on the safe side.
__device__ __forceinline__ void guess_threshold(const struct selecting &s, int kv_head, unsigned *bins, int *shared)
{
    const struct wanted w = wanted_of(s);
    const float *weights = s.t.weights + (size_t)kv_head * s.t.ld;
    float *sample = s.t.values + (size_t)kv_head * s.t.ld;
    const int n = w.v.n - w.first - w.local, stride = n / SAMPLES | 1;
    const float share = (float)(w.k - w.first - w.local) / (float)stride, margin = 4.0f * sqrtf(share) + 2.0f;
    if (n < 2 * SAMPLES || (share + margin) * (float)stride > 0.75f * (float)n) {
        if (threadIdx.x == 0)
            s.t.guess[kv_head] = 0.0f;
        return;
    }
    const int m = (n + stride - 1) / stride;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < m; i += SELECT_THREADS)
        sample[i] = __ldcg(weights + slot_of(w.v, w.first + i * stride));
    __syncthreads();
    const unsigned bits = kth_bits(sample, m, 0u, (int)(share + margin), bins, shared);
    if (threadIdx.x == 0)
        s.t.guess[kv_head] = __uint_as_float(bits);
}

// Block (part, kv_head). Dynamic shared memory: (group) pairs.
static __global__ void __launch_bounds__(SELECT_THREADS, 4) weigh_kernel(struct selecting s)
{
    SHARED_DYNAMIC(float2, stats);
    SHARED_ARRAY(unsigned, bins, DIGIT_BINS);
    SHARED_ARRAY(int, shared, 3 * SELECT_WARPS);
    SHARED_ARRAY(unsigned, ticket, 1);
    grid_dependency_launch();
    grid_dependency_wait();
    const int part = (int)blockIdx.x, kv_head = (int)blockIdx.y, warp = (int)threadIdx.x / 32;
    const struct visible v = visible_at(s.policy, s.step->position);
    if (part == 0 || part_has_keys(v, part)) {
        for (int i = warp; i < s.group; i += SELECT_WARPS) {
            const float2 of_head = merge_stats(s, kv_head * s.group + i, v.sinks);
            if (threadIdx.x % 32 == 0) {
                stats[i] = of_head;
                if (part == 0)
                    s.t.stats[kv_head * s.group + i] = of_head;
            }
        }
        __syncthreads();
        const int slot = part * PART_KEYS + (int)threadIdx.x * 4;
        const float *scores = s.t.scores + (size_t)kv_head * s.group * s.t.ld + slot;
        float w[4] = {};
#pragma unroll 4
        for (int i = 0; i < s.group; i++) {
            const float4 x = *reinterpret_cast<const float4 *>(scores + (size_t)i * s.t.ld);
            w[0] = fmaf(softmax_weight(x.x, stats[i].x), stats[i].y, w[0]);
            w[1] = fmaf(softmax_weight(x.y, stats[i].x), stats[i].y, w[1]);
            w[2] = fmaf(softmax_weight(x.z, stats[i].x), stats[i].y, w[2]);
            w[3] = fmaf(softmax_weight(x.w, stats[i].x), stats[i].y, w[3]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) // NaN is less than everything
            w[j] = key_number(v, slot + j) < 0 ? -1.0f : w[j] > 0.0f ? w[j] : 0.0f;
        *reinterpret_cast<float4 *>(s.t.weights + (size_t)kv_head * s.t.ld + slot) = make_float4(w[0], w[1], w[2], w[3]);
    }
    if (last_block(s.t.tickets + kv_head, gridDim.x, ticket))
        guess_threshold(s, kv_head, bins, shared);
}

// ------------------------------------------------------------------------------------------ candidates

// A part's candidates, ascending, by the block.
__device__ static inline void collect_part(const struct selecting &s, const struct wanted &w, int kv_head, int part,
                                           int *shared)
{
    const int slot = part * PART_KEYS + (int)threadIdx.x * 4;
    const float guess = s.t.guess[kv_head];
    const float4 four = *reinterpret_cast<const float4 *>(s.t.weights + (size_t)kv_head * s.t.ld + slot);
    const float x[4] = {four.x, four.y, four.z, four.w};
    int found[4], n = 0, total;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int number = key_number(w.v, slot + j);
        const bool always = number >= 0 && always_kept(w, number);
        found[j] = always ? (int)((unsigned)(slot + j) | SIGN_BIT) : number >= 0 && x[j] >= guess ? slot + j : -1;
        n += found[j] != -1;
    }
    int *to = s.t.candidates + (size_t)kv_head * s.t.ld + part * PART_KEYS + block_sum_before(n, shared, &total);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (found[j] != -1)
            *to++ = found[j];
    if (threadIdx.x == 0)
        s.t.n_candidates[kv_head * s.t.n_parts + part] = total;
}

// All parts' candidates one after the other into rows, and their weights, those that always belong with the sign bit, into values. Returns how many.
__device__ __forceinline__ int join_candidates(const struct selecting &s, int kv_head, int *counts, int *places, int *shared)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int *candidates = s.t.candidates + (size_t)kv_head * s.t.ld;
    const float *weights = s.t.weights + (size_t)kv_head * s.t.ld;
    int *rows = s.t.rows + (size_t)kv_head * s.t.ld, n = 0;
    float *values = s.t.values + (size_t)kv_head * s.t.ld;
    for (int first = 0; first < s.t.n_parts; first += SELECT_THREADS) {
        const int part = first + (int)threadIdx.x;
        const int count = part < s.t.n_parts ? __ldcg(s.t.n_candidates + kv_head * s.t.n_parts + part) : 0;
        int total;
        const int before = block_sum_before(count, shared, &total);
        counts[threadIdx.x] = count;
        places[threadIdx.x] = n + before;
        __syncthreads();
        for (int p = warp; p < SELECT_THREADS && first + p < s.t.n_parts; p += SELECT_WARPS)
#pragma unroll 4
            for (int i = lane; i < counts[p]; i += 32) {
                const int candidate = __ldcg(candidates + (size_t)(first + p) * PART_KEYS + i),
                          slot = (int)((unsigned)candidate & ~SIGN_BIT);
                const unsigned bits = __float_as_uint(__ldcg(weights + slot));
                rows[places[p] + i] = slot;
                values[places[p] + i] = __uint_as_float(candidate < 0 ? bits | SIGN_BIT : bits);
            }
        n += total;
        __syncthreads();
    }
    return n;
}

// The same of all keys that are seen, for want of candidates.
__device__ __forceinline__ int join_all(const struct selecting &s, const struct wanted &w, int kv_head, int *shared)
{
    const float *weights = s.t.weights + (size_t)kv_head * s.t.ld;
    int *rows = s.t.rows + (size_t)kv_head * s.t.ld, n = 0;
    float *values = s.t.values + (size_t)kv_head * s.t.ld;
    for (int first = 0; first < w.v.capacity; first += SELECT_THREADS) {
        const int slot = first + (int)threadIdx.x, number = key_number(w.v, slot);
        int total;
        const int at = n + block_rank(number >= 0, shared, &total);
        if (number >= 0) {
            const unsigned bits = __float_as_uint(__ldcg(weights + slot));
            rows[at] = slot;
            values[at] = __uint_as_float(always_kept(w, number) ? bits | SIGN_BIT : bits);
        }
        n += total;
    }
    __syncthreads();
    return n;
}

// ------------------------------------------------------------------------------------------ the selected

// How many of the k best the wanted share of the softmax takes: the fewest whose weights, and those of what always belongs, sum to it.
__device__ __forceinline__ int keys_for_mass(const struct selecting &s, const struct wanted &w, int kv_head,
                                             const float *values, int n, int k, unsigned least, int *shared)
{
    float *sums = reinterpret_cast<float *>(shared);
    const struct choice c = s.step->choice;
    float share = 0.0f;
    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS)
        share += values[i] < 0.0f ? -values[i] : 0.0f;
    for (int i = (int)threadIdx.x; i < s.group * w.v.sinks; i += SELECT_THREADS) {
        const int head = kv_head * s.group + i / w.v.sinks;
        const float2 stats = __ldcg(s.t.stats + head);
        share += softmax_weight(s.t.sink_scores[(size_t)head * s.policy.n_sinks + i % w.v.sinks], stats.x) * stats.y;
    }
    __syncthreads();
    const float mass = fmaxf(c.mass * (float)s.group - block_sum(share, sums), 0.0f);
    const unsigned bits = threshold_bits(values, n, least, mass, sums);
    const float above = amount_from(values, n, bits + 1, sums), t = __uint_as_float(bits);
    const int n_above = amount_from(values, n, bits + 1, shared);
    const float ties = t > 0.0f && mass > above ? ceilf((mass - above) / t) : 0.0f;
    const int wanted = n_above + (int)fminf(ties, (float)(k - n_above)), at_least = c.least - w.first - w.local;
    return min(k, max(wanted, at_least));
}

// Of the joined candidates the best ones stay, in place: those above the threshold, and of those that equal it the first.
__device__ __forceinline__ int compact(int *rows, const float *values, int n, unsigned threshold, int ties, int *shared)
{
    int kept = 0;
    for (int first = 0; first < n; first += SELECT_THREADS) {
        const int i = first + (int)threadIdx.x;
        const int row = i < n ? rows[i] : 0;
        const unsigned bits = i < n ? __float_as_uint(values[i]) : 0;
        const bool tie = i < n && bits == threshold;
        int n_ties, total;
        const bool early = block_rank(tie, shared, &n_ties) < ties;
        const bool keep = i < n && (tie ? early : bits > threshold);
        const int at = kept + block_rank(keep, shared, &total);
        if (keep)
            rows[at] = row;
        kept += total;
        ties -= n_ties;
    }
    return kept;
}

// The last block of a KV head: its rows.
__device__ __forceinline__ void select_exactly(const struct selecting &s, int kv_head, int *counts, int *places, unsigned *bins,
                                               int *shared)
{
    const struct wanted w = wanted_of(s);
    int *rows = s.t.rows + (size_t)kv_head * s.t.ld;
    const float *values = s.t.values + (size_t)kv_head * s.t.ld;
    const int always = w.first + w.local;
    int k = w.k - always; // that are chosen by their weights
    int n = join_candidates(s, kv_head, counts, places, shared);
    unsigned threshold = __float_as_uint(__ldcg(s.t.guess + kv_head));
    if (n - always < k) {
        n = join_all(s, w, kv_head, shared);
        threshold = 0;
    }
    int ties = n;
    if (n - always > k || s.step->choice.mass > 0.0f) {
        if (n - always > k)
            threshold = kth_bits(values, n, threshold, k, bins, shared);
        if (s.step->choice.mass > 0.0f) {
            k = keys_for_mass(s, w, kv_head, values, n, k, threshold, shared);
            threshold = kth_bits(values, n, threshold, k, bins, shared);
        }
        ties = k - amount_from(values, n, threshold + 1, shared);
    }
    __syncthreads();
    const int kept = compact(rows, values, n, threshold, ties, shared);
    if (threadIdx.x == 0)
        s.t.n_rows[kv_head] = kept;
}

// Block (part, kv_head).
static __global__ void __launch_bounds__(SELECT_THREADS, 4) collect_kernel(struct selecting s)
{
    SHARED_ARRAY(unsigned, bins, DIGIT_BINS);
    SHARED_ARRAY(int, shared, 3 * SELECT_WARPS);
    SHARED_ARRAY(int, counts, SELECT_THREADS);
    SHARED_ARRAY(int, places, SELECT_THREADS);
    SHARED_ARRAY(unsigned, ticket, 1);
    grid_dependency_launch();
    grid_dependency_wait();
    const int part = (int)blockIdx.x, kv_head = (int)blockIdx.y;
    const struct wanted w = wanted_of(s);
    if (part_has_keys(w.v, part))
        collect_part(s, w, kv_head, part, shared);
    else if (threadIdx.x == 0)
        s.t.n_candidates[kv_head * s.t.n_parts + part] = 0;
    if (last_block(s.t.tickets + gridDim.y + kv_head, gridDim.x, ticket))
        select_exactly(s, kv_head, counts, places, bins, shared);
}

yalm_status select_rows(const struct selective *t, const struct attention *a, cudaStream_t stream, yalm_error *error)
{
    const struct selecting s = {a->step, a->cache->policy, *t, a->n_heads / a->cache->n_kv_heads};
    const dim3 grid(t->n_parts, a->cache->n_kv_heads);
    TRY(LAUNCH(error, weigh_kernel, grid, SELECT_THREADS, s.group * sizeof(float2), stream, s));
    return LAUNCH(error, collect_kernel, grid, SELECT_THREADS, 0, stream, s);
}
