// From approximate scores to the selected keys, exactly: the k slots of a KV head with the largest weights, of equal ones those
// with the lower slot, ascending; as cpu/long/select.c. Nothing is sorted, and all of the device looks at the keys:
//
//     weigh    w_j = Σ_group ŝ_j = Σ_i e^(x_ij - max_i) / sum_i over all visible slots j, and how many have each first digit
//     collect  the k-th weight's first digit d; slots with larger ones are counted, those with d become candidates. The last
//              block finds the k-th weight among the candidates, and where each part's rows begin
//     place    rows = the slots above it, of those that equal it the first, and those that always belong
//
// Where keys are drawn (engine/hybrid.h, cpu/long/priority.h) all this is done with w_j / u_j in place of w_j, and the
// threshold is the (k + 1)-th, θ. It costs no launch and no byte of the keys' but 4 for each row: ln max(1, θ / w_j).
//
// A KV head's slots are shared among blocks in parts of PART_KEYS, which they take in turns; "last" is by a ticket, so nobody
// waits. First digits are a 128th apart about the weights' mean (struct digits). Candidates are a few of a thousand keys where
// weights differ as a softmax's do, some of a hundred where scores differ by a twentieth, all where all are equal. Those of
// weight 0 are counted only: where a few scores are far above all others, as random models have them, they are most keys. Bytes
// of a KV head with S keys and g queries, all in the L2 cache: 4 g S read and 4 S written (weigh), 4 S read (collect), 4 S read
// (place).
#include "cuda/long/select.cuh"

// True in all threads of the block that is the last of `n_blocks` to come here; what the others wrote can then be read with
// __ldcg().
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
#pragma unroll 4
    for (int p = lane; p < s.t.n_parts; p += 32)
        max = fmaxf(max, parts[p].x);
    for (int i = lane; i < n_sinks; i += 32)
        max = fmaxf(max, sinks[i]);
    max = warp_max(max);
#pragma unroll 4
    for (int p = lane; p < s.t.n_parts; p += 32)
        sum = fmaf(softmax_weight(parts[p].x, max), parts[p].y, sum);
    for (int i = lane; i < n_sinks; i += 32)
        sum += softmax_weight(sinks[i], max);
    return make_float2(max, 1.0f / warp_sum(sum));
}

// A part's weights, and their first digits into the block's histogram.
__device__ __forceinline__ void weigh_part(const struct selecting &s, const struct wanted &wanted, int kv_head, int part,
                                           const float2 *stats, unsigned *bins)
{
    const struct digits digits = digits_of(s, wanted);
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
    for (int j = 0; j < 4; j++) {
        const int number = key_number(wanted.v, slot + j);
        w[j] = number < 0 ? -1.0f : w[j] >= FLT_MIN ? w[j] : 0.0f; // so is NaN
        w[j] *= s.t.drawn && number >= 0 ? lift_of(s, kv_head, number) : 1.0f;
        if (number >= 0 && !always_kept(wanted, number))
            atomicAdd(&bins[digits.of(w[j])], 1u);
    }
    *reinterpret_cast<float4 *>(s.t.weights + (size_t)kv_head * s.t.ld + slot) = make_float4(w[0], w[1], w[2], w[3]);
}

// Block (i, kv_head): parts i, i + n_blocks, …; as of the next two kernels. Dynamic shared memory: (group) pairs.
static __global__ void __launch_bounds__(SELECT_THREADS, 4) weigh_kernel(struct selecting s)
{
    SHARED_DYNAMIC(float2, stats);
    SHARED_ARRAY(unsigned, bins, SELECT_BINS);
    for (int i = (int)threadIdx.x; i < SELECT_BINS; i += SELECT_THREADS)
        bins[i] = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.y, warp = (int)threadIdx.x / 32;
    const struct wanted wanted = wanted_of(s);
    for (int i = warp; i < s.group; i += SELECT_WARPS) {
        const float2 of_head = merge_stats(s, kv_head * s.group + i, wanted.v.sinks);
        if (threadIdx.x % 32 == 0) {
            stats[i] = of_head;
            if (blockIdx.x == 0)
                s.t.stats[kv_head * s.group + i] = of_head;
        }
    }
    __syncthreads();
    for (int part = (int)blockIdx.x; part < s.t.n_parts; part += (int)gridDim.x)
        if (part_has_keys(wanted.v, part))
            weigh_part(s, wanted, kv_head, part, stats, bins);
    __syncthreads();
    unsigned *all = s.t.digits + (size_t)kv_head * SELECT_BINS;
    for (int i = (int)threadIdx.x; i < SELECT_BINS; i += SELECT_THREADS)
        if (bins[i] > 0)
            atomicAdd(&all[i], bins[i]);
}

// ------------------------------------------------------------------------------------------ candidates

// The bound for keys that do not always belong. Those whose first digit is above `digit` are selected, and the `rank` largest
// of those with it; one less where keys are drawn. No key has digit SELECT_BINS; all are above -1.
struct sieve {
    int digit, rank;
};

__device__ __forceinline__ struct sieve find_sieve(const struct selecting &s, const struct wanted &w, int kv_head, int *shared)
{
    const int k = w.k - w.first - w.local;
    const unsigned *all = s.t.digits + (size_t)kv_head * SELECT_BINS;
    if (k <= 0)
        return {SELECT_BINS, 0};
    if (k >= w.v.n - w.first - w.local)
        return {-1, 0};
    unsigned own[DIGIT_EACH];
    own_bins(own, [=](int digit) { return __ldcg(all + digit); });
    find_digit(own, s.t.drawn ? k + 1 : k, shared + SELECT_WARPS, shared);
    return {shared[SELECT_WARPS], shared[SELECT_WARPS + 1]};
}

enum { STAGED = PART_KEYS };

// Candidates on their way from a block's parts to the KV head's list.
struct staged {
    float *weights; // (STAGED), shared; so is
    int *parts;     // (STAGED)
    int n;          // the same in all threads
};

// The staged candidates to the end of the list.
__device__ __forceinline__ void flush_candidates(const struct selecting &s, int kv_head, struct staged &staged, int *shared)
{
    if (staged.n == 0)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        shared[0] = atomicAdd(s.t.n_candidates + kv_head, staged.n);
    __syncthreads();
    const size_t to = (size_t)kv_head * s.t.ld + shared[0];
    for (int i = (int)threadIdx.x; i < staged.n; i += SELECT_THREADS) {
        s.t.candidates[to + i] = staged.weights[i];
        s.t.rows[to + i] = staged.parts[i];
    }
    staged.n = 0;
    __syncthreads();
}

// A part's candidates, and how many of its keys are selected whatever becomes of these. Zeros are all equal: nobody needs to
// look at them again.
__device__ __forceinline__ void collect_part(const struct selecting &s, const struct wanted &w, const struct digits &digits,
                                             const struct sieve &sieve, int kv_head, int part, struct staged &staged,
                                             int *shared)
{
    const int slot = part * PART_KEYS + (int)threadIdx.x * 4;
    const float4 four = *reinterpret_cast<const float4 *>(s.t.weights + (size_t)kv_head * s.t.ld + slot);
    const float x[4] = {four.x, four.y, four.z, four.w};
    bool candidate[4];
    int counts = 0, total; // candidates, and 65536 times the selected
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int number = key_number(w.v, slot + j), digit = number >= 0 ? digits.of(x[j]) : -1;
        const bool always = number >= 0 && always_kept(w, number);
        candidate[j] = number >= 0 && !always && digit == sieve.digit;
        counts += candidate[j] + (always || (number >= 0 && digit > sieve.digit)) * 65536;
    }
    const int before = block_sum_before(counts, shared, &total) % 65536;
    if (threadIdx.x == 0)
        s.t.part_counts[kv_head * s.t.n_parts + part] = make_int2(total % 65536, total / 65536);
    if (sieve.digit == 0)
        return;
    if (staged.n + total % 65536 > STAGED)
        flush_candidates(s, kv_head, staged, shared);
    int at = staged.n + before;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (candidate[j]) {
            staged.weights[at] = x[j];
            staged.parts[at++] = part;
        }
    staged.n += total % 65536;
}

// How many of each part's candidates are above the threshold, and equal it: (n_parts) each, shared memory. Neighbours in the
// list are mostly of one part, so a warp's are added at once.
__device__ __forceinline__ void count_candidates(const struct selecting &s, int kv_head, int n, float threshold, int *above,
                                                 int *equal)
{
    const float *candidates = s.t.candidates + (size_t)kv_head * s.t.ld;
    const int *parts = s.t.rows + (size_t)kv_head * s.t.ld, lane = (int)threadIdx.x % 32;
    for (int i = (int)threadIdx.x; i < s.t.n_parts; i += SELECT_THREADS)
        above[i] = equal[i] = 0;
    __syncthreads();
    for (int first = (int)threadIdx.x - lane; first < n; first += SELECT_THREADS) {
        const int i = first + lane, part = i < n ? __ldcg(parts + i) : -1;
        const float x = i < n ? __ldcg(candidates + i) : -1.0f;
        const unsigned same = __match_any_sync(0xffffffffu, part);
        const int n_above = __popc(same & __ballot_sync(0xffffffffu, x > threshold)),
                  n_equal = __popc(same & __ballot_sync(0xffffffffu, x == threshold));
        if (part >= 0 && __ffs((int)same) - 1 == lane) {
            atomicAdd(above + part, n_above);
            atomicAdd(equal + part, n_equal);
        }
    }
    __syncthreads();
}

// Where each part's rows begin, and how many of its candidates that equal the threshold are among them, of which `ties` are in
// all. zeros: all candidates do.
__device__ __forceinline__ void place_parts(const struct selecting &s, int kv_head, int ties, bool zeros, const int *above,
                                            const int *equal, int *shared)
{
    int n = 0, equal_before = 0;
    for (int first = 0; first < s.t.n_parts; first += SELECT_THREADS) {
        const int part = first + (int)threadIdx.x;
        const bool there = part < s.t.n_parts;
        const int2 counts = there ? __ldcg(s.t.part_counts + kv_head * s.t.n_parts + part) : make_int2(0, 0);
        int all_equal, all;
        const int of_part = !there ? 0 : zeros ? counts.x : equal[part];
        const int before = equal_before + block_sum_before(of_part, shared, &all_equal);
        const int kept = min(of_part, max(ties - before, 0));
        const int mine = there ? counts.y + (zeros ? 0 : above[part]) + kept : 0;
        const int at = n + block_sum_before(mine, shared, &all);
        if (there)
            s.t.part_places[kv_head * s.t.n_parts + part] = make_int2(at, kept);
        n += all;
        equal_before += all_equal;
    }
    if (threadIdx.x == 0)
        s.t.n_rows[kv_head] = n;
}

// Dynamic shared memory: two counts of each part.
static __global__ void __launch_bounds__(SELECT_THREADS, 4) collect_kernel(struct selecting s)
{
    SHARED_DYNAMIC(int, counts);
    SHARED_ARRAY(unsigned, bins, SELECT_BINS);
    SHARED_ARRAY(int, shared, SELECT_WARPS + 2);
    SHARED_ARRAY(float, staged_weights, STAGED);
    SHARED_ARRAY(int, staged_parts, STAGED);
    SHARED_ARRAY(unsigned, ticket, 1);
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.y;
    const struct wanted w = wanted_of(s);
    const struct digits digits = digits_of(s, w);
    const struct sieve sieve = find_sieve(s, w, kv_head, shared);
    struct staged staged = {staged_weights, staged_parts, 0};
    for (int part = (int)blockIdx.x; part < s.t.n_parts; part += (int)gridDim.x) {
        if (part_has_keys(w.v, part))
            collect_part(s, w, digits, sieve, kv_head, part, staged, shared);
        else if (threadIdx.x == 0)
            s.t.part_counts[kv_head * s.t.n_parts + part] = make_int2(0, 0);
    }
    flush_candidates(s, kv_head, staged, shared);
    if (!last_block(s.t.tickets + kv_head, gridDim.x, ticket))
        return;

    int *const above = counts, *const equal = counts + s.t.n_parts;
    int ties = sieve.rank;
    const bool zeros = sieve.digit == 0;
    float threshold = sieve.digit < 0 ? -1.0f : zeros ? 0.0f : INFINITY;
    if (!zeros) {
        const int n = __ldcg(s.t.n_candidates + kv_head), known = digits.bits_below(sieve.digit);
        const float *candidates = s.t.candidates + (size_t)kv_head * s.t.ld;
        if (sieve.rank > 0)
            threshold = __uint_as_float(
                kth_bits(candidates, n, digits.least(sieve.digit) >> known, known, sieve.rank, &ties, bins, shared));
        count_candidates(s, kv_head, n, threshold, above, equal);
    }
    place_parts(s, kv_head, s.t.drawn ? max(ties - 1, 0) : ties, zeros, above, equal, shared);
    if (threadIdx.x == 0) {
        s.t.thresholds[kv_head] = threshold;
        s.t.n_candidates[kv_head] = 0; // for the next time
    }
}

// ------------------------------------------------------------------------------------------ rows

// ln max(1, θ / w) of a drawn key, whose weight is priority / lift. Where θ is 0, or all keys are taken, 0.
__device__ __forceinline__ float bias_of(float priority, float lift, float threshold)
{
    const float short_of = threshold * lift / priority;
    return short_of > 1.0f && short_of < INFINITY ? logf(short_of) : 0.0f;
}

// A part's rows.
__device__ __forceinline__ void place_part(const struct selecting &s, const struct wanted &w, int kv_head, int part,
                                           int *shared)
{
    const int slot = part * PART_KEYS + (int)threadIdx.x * 4;
    const float4 four = *reinterpret_cast<const float4 *>(s.t.weights + (size_t)kv_head * s.t.ld + slot);
    const float x[4] = {four.x, four.y, four.z, four.w};
    const float threshold = s.t.thresholds[kv_head];
    const int2 place = s.t.part_places[kv_head * s.t.n_parts + part];
    bool always[4], above[4], equal[4];
    int n = 0, total;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int number = key_number(w.v, slot + j);
        always[j] = number >= 0 && always_kept(w, number);
        above[j] = number >= 0 && !always[j] && x[j] > threshold;
        equal[j] = number >= 0 && !always[j] && x[j] == threshold;
        n += equal[j];
    }
    int ties = place.y - block_sum_before(n, shared, &total); // that are left for this thread and those behind it
    n = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        above[j] = always[j] || above[j] || (equal[j] && ties-- > 0);
        n += above[j];
    }
    int at = place.x + block_sum_before(n, shared, &total);
    int *rows = s.t.rows + (size_t)kv_head * s.t.ld;
    float *bias = s.t.candidates + (size_t)kv_head * s.t.ld;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (above[j]) {
            if (s.t.drawn)
                bias[at] = always[j] ? 0.0f : bias_of(x[j], lift_of(s, kv_head, key_number(w.v, slot + j)), threshold);
            rows[at++] = slot + j;
        }
}

static __global__ void __launch_bounds__(SELECT_THREADS, 4) place_kernel(struct selecting s)
{
    SHARED_ARRAY(int, shared, SELECT_WARPS);
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.y;
    const struct wanted w = wanted_of(s);
    for (unsigned i = blockIdx.x * SELECT_THREADS + threadIdx.x; i < SELECT_BINS; i += gridDim.x * SELECT_THREADS)
        s.t.digits[(size_t)kv_head * SELECT_BINS + i] = 0; // for the next time
    for (int part = (int)blockIdx.x; part < s.t.n_parts; part += (int)gridDim.x)
        if (part_has_keys(w.v, part))
            place_part(s, w, kv_head, part, shared);
}

yalm_status select_rows(const struct cuda_selective *t, const struct attention *a, size_t first_head, cudaStream_t stream,
                        yalm_error *error)
{
    const struct selecting s = {a->step, a->cache->policy, *t, a->n_heads / a->cache->n_kv_heads, (unsigned)first_head};
    const dim3 grid(t->n_blocks, a->cache->n_kv_heads);
    const size_t pairs = (s.group + 1) / 2 * 2; // which the compiler reads by two
    TRY(LAUNCH(error, weigh_kernel, grid, SELECT_THREADS, pairs * sizeof(float2), stream, s));
    TRY(LAUNCH(error, collect_kernel, grid, SELECT_THREADS, 2 * t->n_parts * sizeof(int), stream, s));
    return LAUNCH(error, place_kernel, grid, SELECT_THREADS, 0, stream, s);
}
