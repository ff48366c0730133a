// What selection's kernels share: which keys are chosen from, sums over a block, the k-th of some values.
#pragma once
#include "cuda/long/selective.cuh"

enum {
    SELECT_THREADS = PART_KEYS / 4, // four neighbouring slots each
    SELECT_WARPS = SELECT_THREADS / 32,
};

// Weights are positive or 0, so that their bits are in their order.
enum {
    INFINITE_BITS = 0x7f800000,
    COARSE_SHIFT = 21, // coarse digits are the bits from there on: exponent and two bits of the mantissa
    FINE_SHIFT = 16,   // fine ones have seven bits of the mantissa
    MANTISSA_BITS = 23,
    FINE_OCTAVES = 8,
    COARSE_OF_FINE = FINE_OCTAVES << (MANTISSA_BITS - COARSE_SHIFT), // coarse digits whose place the fine ones take,
    N_FINE = FINE_OCTAVES << (MANTISSA_BITS - FINE_SHIFT),           // of which there are
    DIGIT_EACH = SELECT_BINS / SELECT_THREADS,
};
static_assert((INFINITE_BITS >> COARSE_SHIFT) - COARSE_OF_FINE + N_FINE < SELECT_BINS, "all first digits have a bin");

struct selecting {
    const struct evaluation *step;
    struct kv_policy policy;
    struct cuda_selective t;
    int group;
    unsigned first_head; // KV head 0's number, of all heads of all layers counted
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

// 1 / u of a key (engine/hybrid.h), by which its weight becomes a priority. In registers: no table is read.
__device__ static inline float lift_of(const struct selecting &s, int kv_head, int number)
{
    const unsigned phase = (s.first_head + (unsigned)kv_head) * PRIORITY_APART % PRIORITY_PHASES;
    return __fdividef(0x1p32f, (float)(((unsigned)number + 1 + phase) * PRIORITY_TURN) + 0.5f);
}

__device__ static inline bool always_kept(const struct wanted &w, int number)
{
    return number < w.first || number >= w.v.n - w.local;
}

// Weights' first digits: coarse, but for those from a 16th of the mean to 16 times it, a finer 1024. None is below the least
// normal number but 0, which is digit 0. (A query's weights sum to 1, so the mean is known; and where weights hardly differ all
// are close to it.)
struct digits {
    unsigned low; // bits of the least weight that has a fine digit; a multiple of 2^COARSE_SHIFT

    __device__ __forceinline__ int of(float weight) const
    {
        const unsigned bits = __float_as_uint(weight), above = bits - low;
        return bits < low                                        ? (int)(bits >> COARSE_SHIFT)
               : above < (unsigned)FINE_OCTAVES << MANTISSA_BITS ? (int)((low >> COARSE_SHIFT) + (above >> FINE_SHIFT))
                                                                 : (int)(bits >> COARSE_SHIFT) - COARSE_OF_FINE + N_FINE;
    }
    __device__ __forceinline__ bool is_fine(int digit) const
    {
        return (unsigned)digit - (low >> COARSE_SHIFT) < (unsigned)N_FINE;
    }
    // How many bits a digit leaves open, and the least bits that have it.
    __device__ __forceinline__ int bits_below(int digit) const { return is_fine(digit) ? FINE_SHIFT : COARSE_SHIFT; }
    __device__ __forceinline__ unsigned least(int digit) const
    {
        const unsigned fine = (unsigned)digit - (low >> COARSE_SHIFT);
        return is_fine(digit)
                   ? low + (fine << FINE_SHIFT)
                   : (unsigned)(fine < (unsigned)SELECT_BINS ? digit + COARSE_OF_FINE - N_FINE : digit) << COARSE_SHIFT;
    }
};

__device__ static inline struct digits digits_of(const struct selecting &s, const struct wanted &w)
{
    const float mean = (float)s.group / (float)(w.v.n + w.v.sinks);
    const unsigned coarse = __float_as_uint(mean) >> COARSE_SHIFT, half = COARSE_OF_FINE / 2;
    return {(coarse - half) << COARSE_SHIFT};
}

// ------------------------------------------------------------------------------------------ of a block

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

// Finds the digit, from the largest on, of the k-th of what the bins count, 1 <= k <= their sum: to found[0]. Its rank among
// those with this digit goes to found[1]. bins: of SELECT_BINS this thread's own; shared: (SELECT_WARPS).
__device__ __forceinline__ void find_digit(const unsigned (&bins)[DIGIT_EACH], int k, int *found, int *shared)
{
    int own = 0, total;
#pragma unroll
    for (int i = 0; i < DIGIT_EACH; i++)
        own += (int)bins[i];
    int before = block_sum_before(own, shared, &total);
    if (before < k && k <= before + own) {
        int digit = SELECT_BINS - 1 - DIGIT_EACH * (int)threadIdx.x;
        bool there = false;
#pragma unroll
        for (int i = 0; i < DIGIT_EACH; i++) {
            there = there || before + (int)bins[i] >= k;
            before += there ? 0 : (int)bins[i];
            digit -= there ? 0 : 1;
        }
        found[0] = digit;
        found[1] = k - before;
    }
    __syncthreads();
}

// This thread's bins, the first thread's the largest.
template <class Load> __device__ __forceinline__ void own_bins(unsigned (&bins)[DIGIT_EACH], Load load)
{
#pragma unroll
    for (int i = 0; i < DIGIT_EACH; i++)
        bins[i] = load(SELECT_BINS - 1 - DIGIT_EACH * (int)threadIdx.x - i);
}

// The k-th largest of the values whose bits from `known` on are those of prefix, by histograms of the next 11 bits in turn. 1
// <= k <= how many there are. *ties: its rank among those that equal it. Values with the sign bit take no part. bins:
// (SELECT_BINS), shared: (SELECT_WARPS + 2).
__device__ __forceinline__ unsigned kth_bits(const float *values, int n, unsigned prefix, int known, int k, int *ties,
                                             unsigned *bins, int *shared)
{
    int *const found = shared + SELECT_WARPS;
    __syncthreads(); // what was found before has been read
#pragma unroll 1
    for (int shift = known - 11; known > 0; shift -= 11) {
        shift = shift < 0 ? 0 : shift;
        for (int i = (int)threadIdx.x; i < SELECT_BINS; i += SELECT_THREADS)
            bins[i] = 0;
        __syncthreads();
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
            const unsigned bits = __float_as_uint(__ldcg(values + i)); // other blocks may have written it
            if (bits <= INFINITE_BITS && bits >> known == prefix)
                atomicAdd(&bins[bits >> shift & ((1u << (known - shift)) - 1)], 1u);
        }
        __syncthreads();
        unsigned own[DIGIT_EACH];
        own_bins(own, [=](int digit) { return bins[digit]; });
        find_digit(own, k, found, shared);
        prefix = prefix << (known - shift) | (unsigned)found[0];
        k = found[1];
        known = shift;
        __syncthreads();
    }
    *ties = k;
    return prefix;
}
