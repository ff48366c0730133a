// Where a share of the softmax is wanted rather than a number of keys (top-p): of the k best that select.cu has found, as many as that takes.
// A block for each KV head; its values come from the L2 cache for each of some 20 looks at them.
#include "cuda/long/select.cuh"

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

template <class T> __device__ __forceinline__ T amount_from(const float *values, int n, unsigned least, T *shared)
{
    const unsigned same[3] = {least, least, least};
    return amounts_from(values, n, same, shared).of[0];
}

// ------------------------------------------------------------------------------------------ the share

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

// Block (kv_head).
static __global__ void __launch_bounds__(SELECT_THREADS) mass_kernel(struct selecting s)
{
    SHARED_ARRAY(unsigned, bins, SELECT_BINS);
    SHARED_ARRAY(int, shared, 3 * SELECT_WARPS + 8);
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.x;
    if (s.step->choice.mass <= 0.0f)
        return;
    const struct wanted w = wanted_of(s);
    int *rows = s.t.rows + (size_t)kv_head * s.t.ld;
    const float *values = s.t.values + (size_t)kv_head * s.t.ld;
    const int n = s.t.n_rows[kv_head];
    unsigned threshold = __float_as_uint(fmaxf(s.t.thresholds[kv_head], 0.0f));
    const int k = keys_for_mass(s, w, kv_head, values, n, n - w.first - w.local, threshold, shared);
    int ties = 0;
    threshold = k > 0 ? kth_bits(values, n, 0, 31, k, &ties, bins, shared) : (unsigned)INFINITE_BITS;
    __syncthreads();
    const int kept = compact(rows, values, n, threshold, ties, shared);
    if (threadIdx.x == 0)
        s.t.n_rows[kv_head] = kept;
}

yalm_status select_mass_rows(const struct selecting *s, int n_kv_heads, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH(error, mass_kernel, n_kv_heads, SELECT_THREADS, 0, stream, *s);
}
