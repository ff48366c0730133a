// The parts of sampling on the device (sample.cu): keys that order the vocabulary, amounts that tokens count, and what a block
// does together. One block draws from a list of keys: it sorts a short one, and searches a long one by radix.
#pragma once
#include "cuda/kernels/kernels.h"

enum {
    SAMPLE_THREADS = 512,
    SAMPLE_EACH = 2, // tokens of a thread
    SAMPLE_TILE = SAMPLE_THREADS * SAMPLE_EACH,
    SAMPLE_WARPS = SAMPLE_THREADS / 32,
    ID_BITS = 18, // vocabularies of up to 262,144
    ID_MASK = (1 << ID_BITS) - 1,
    MAX_TILES = (1 << ID_BITS) / SAMPLE_TILE,
    KEY_BITS = 32 + ID_BITS,
    FLOOR_BITS = 12, // of the histogram whose conclusion is the floor
    FLOOR_SHIFT = KEY_BITS - FLOOR_BITS,
    FLOOR_BINS = 1 << FLOOR_BITS,
    DIGIT_BITS = 10, // of a radix search's pass
    DIGIT_BINS = 1 << DIGIT_BITS,
    MAX_SORTED = 1024,
};

typedef unsigned long long amount_t;

// What the passes leave each other; all zero between calls.
struct sample_head {
    amount_t best;  // key of the best token; 0: there is none
    amount_t floor; // smaller keys are not chosen
    amount_t sum;   // of all tokens' probabilities, of the pass `mass`
    unsigned n_list, ticket;
};

// Where everything lies in the scratch.
struct sample_scratch {
    struct sample_head *head;
    amount_t *histogram;     // (FLOOR_BINS); all zero between calls
    amount_t *list;          // (n_vocab): keys
    amount_t *sums;          // (MAX_TILES)
    float *logits;           // (n_vocab), after biases and penalties, where there are such
    int32_t *counts;         // (n_vocab)
    yalm_logit_bias *biases; // (n_vocab)
    int32_t *recent;         // (context)
};

// One call's.
struct drawing {
    struct sample_scratch s;
    const float *raw, *logits; // (n_vocab): as evaluated; after biases and penalties
    int n_vocab;
    int top_k;                                 // 0: off
    bool by_p;                                 // top_p is on
    double temperature, top_p, min_p, uniform; // temperature 0: the best token
    int32_t *token;                            // results
    struct sampled *sampled;                   // pinned
};

// ------------------------------------------------------------------------------------------ keys and amounts

// Larger for tokens that come before: of larger logits, and of equals the lower id. 0: NaN and -inf, which are never taken.
__device__ static inline amount_t key_of(float logit, int id)
{
    if (!(logit > -INFINITY))
        return 0;
    const unsigned bits = __float_as_uint(logit + 0.0f); // -0 is 0
    const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (amount_t)ordered << ID_BITS | (unsigned)(ID_MASK - id);
}

__device__ static inline int key_id(amount_t key)
{
    return ID_MASK - (int)(key & ID_MASK);
}

// The logit that the key was made of; 0 for -0.
__device__ static inline float key_logit(amount_t key)
{
    const unsigned ordered = (unsigned)(key >> ID_BITS);
    return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

// e^((logit - most) / temperature), where both may be +inf.
__device__ static inline double weight(float logit, float most, double temperature)
{
    return logit == most ? 1.0 : exp(((double)logit - (double)most) / temperature);
}

// What a token counts: 1; its probability; and at the draw's temperature, where min_p lets it take part.
enum amount { AMOUNT_ONE, AMOUNT_PROBABILITY, AMOUNT_DRAW };

__device__ static inline amount_t amount_of(const struct drawing &d, enum amount amount, float logit, float most)
{
    if (amount == AMOUNT_ONE)
        return 1;
    if (amount == AMOUNT_DRAW && d.min_p > 0 && !(weight(logit, most, 1) >= d.min_p))
        return 0;
    return (amount_t)(weight(logit, most, amount == AMOUNT_DRAW ? d.temperature : 1) * 0x1p44); // 2^18 of them: 2^62
}

// Of top-p: at least that share of the sum. Of the draw: more than that share. 0 where there is nothing.
__device__ static inline amount_t share_target(double share, amount_t sum)
{
    return min(max((amount_t)ceil(share * (double)sum), (amount_t)1), sum);
}

__device__ static inline amount_t draw_target(const struct drawing &d, amount_t sum)
{
    return min((amount_t)(d.uniform * (double)sum) + 1, sum);
}

// ------------------------------------------------------------------------------------------ a block together

__device__ static inline amount_t warp_most(amount_t x)
{
    for (int step = 16; step > 0; step /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// The sum of x over this thread and those before it, and of all of the block's. shared: (SAMPLE_WARPS), free again after the
// next barrier.
__device__ static inline amount_t block_scan(amount_t x, amount_t *shared, amount_t *all)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int step = 1; step < 32; step *= 2) {
        const amount_t other = __shfl_up_sync(0xffffffffu, x, step);
        x += lane >= step ? other : 0;
    }
    if (lane == 31)
        shared[warp] = x;
    __syncthreads();
    *all = 0;
    amount_t before = 0;
    for (int w = 0; w < SAMPLE_WARPS; w++) {
        before += w < warp ? shared[w] : 0;
        *all += shared[w];
    }
    __syncthreads();
    return before + x;
}

// True in all threads of the block that comes here last, which sees what the others wrote before.
__device__ static inline bool block_is_last(struct sample_head *head)
{
    SHARED_ARRAY(int, last, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last[0] = atomicAdd(&head->ticket, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last[0])
        return false;
    __threadfence();
    if (threadIdx.x == 0)
        head->ticket = 0;
    return true;
}

// Finds where the sum of `own`, over the threads in their order, reaches the target. True in the thread in whose part that is;
// *before gets the sum up to there. In none where the whole sum does not reach it.
__device__ static inline bool block_reaches(amount_t own, amount_t target, amount_t *shared, amount_t *before)
{
    amount_t all;
    const amount_t through = block_scan(own, shared, &all);
    *before = through - own;
    return *before < target && target <= through;
}

// The last block of the last pass: the result, and the head as the next call wants it.
__device__ static inline void finish(const struct drawing &d, amount_t key)
{
    const int id = key > 0 ? key_id(key) : 0;
    *d.token = id;
    *d.sampled = {id, d.raw[id]};
    d.s.head->best = d.s.head->floor = d.s.head->sum = 0;
    d.s.head->n_list = 0;
}

// ------------------------------------------------------------------------------------------ a short list: sorted

// keys: (room), a power of two of at most MAX_SORTED, in shared memory; best first afterwards (bitonic: Batcher, 1968).
__device__ static inline void sort_keys(amount_t *keys, int room)
{
    for (int run = 2; run <= room; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = (int)threadIdx.x; i < room / 2; i += SAMPLE_THREADS) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const amount_t one = keys[low], other = keys[high];
                if ((one < other) == ((low & run) == 0)) {
                    keys[low] = other;
                    keys[high] = one;
                }
            }
            __syncthreads();
        }
    }
}

// What key i counts; 0 beyond the n that are left.
__device__ static inline amount_t sorted_amount(const struct drawing &d, const amount_t *keys, int i, int n, enum amount amount,
                                                float most)
{
    return i >= 0 && i < n ? amount_of(d, amount, key_logit(keys[i]), most) : 0;
}

// keys: (n), in shared memory with room for MAX_SORTED. Returns the one that is drawn. sum: of all probabilities, of which
// top_p is a share; 0: that of the top_k. A thread has two keys.
__device__ static inline amount_t draw_sorted(const struct drawing &d, amount_t *keys, int n, float most, amount_t sum,
                                              amount_t *shared)
{
    SHARED_ARRAY(int, result, 1);
    int room = 2;
    while (room < n)
        room *= 2;
    for (int i = n + (int)threadIdx.x; i < room; i += SAMPLE_THREADS)
        keys[i] = 0;
    __syncthreads();
    sort_keys(keys, room);
    n = d.top_k > 0 ? min(n, d.top_k) : n;
    amount_t all, before;
    if (d.by_p) {
        const int i = 2 * (int)threadIdx.x;
        const amount_t first = sorted_amount(d, keys, i, n, AMOUNT_PROBABILITY, most),
                       own = first + sorted_amount(d, keys, i + 1, n, AMOUNT_PROBABILITY, most);
        if (threadIdx.x == 0)
            result[0] = n;
        block_scan(own, shared, &all);
        const amount_t target = share_target(d.top_p, sum > 0 ? sum : all);
        if (block_reaches(own, target, shared, &before))
            result[0] = before + first >= target ? i + 1 : i + 2;
        __syncthreads();
        n = result[0];
        __syncthreads();
    }
    const int i = n - 1 - 2 * (int)threadIdx.x; // worst first
    const amount_t first = sorted_amount(d, keys, i, n, AMOUNT_DRAW, most),
                   own = first + sorted_amount(d, keys, i - 1, n, AMOUNT_DRAW, most);
    if (threadIdx.x == 0)
        result[0] = -1;
    block_scan(own, shared, &all);
    const amount_t target = draw_target(d, all);
    if (block_reaches(own, target, shared, &before))
        result[0] = before + first >= target ? i : i - 1;
    __syncthreads();
    return result[0] >= 0 ? keys[result[0]] : 0;
}

// ------------------------------------------------------------------------------------------ a long list: searched

struct search {
    enum amount amount;
    bool worst_first;
    amount_t least; // smaller keys do not count
    amount_t target,
        of_share; // sought: this sum; where 0, top_p of `of_share`, where that is 0 of all; of AMOUNT_DRAW draw_target()
};

// The key at which the sum reaches the target, 10 bits of it in each pass; 0 where it does not.
__device__ __forceinline__ amount_t search_list(const struct drawing &d, const amount_t *list, int n, float most,
                                                const struct search &s, amount_t *bins, amount_t *shared)
{
    enum { EACH = DIGIT_BINS / SAMPLE_THREADS };
    const amount_t every = ((amount_t)1 << KEY_BITS) - 1;
    SHARED_ARRAY(amount_t, result, 2);
    amount_t place = 0, left = 0;
    for (int shift = KEY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        for (int i = (int)threadIdx.x; i < DIGIT_BINS; i += SAMPLE_THREADS)
            bins[i] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
            const amount_t key = __ldcg(list + i), at = s.worst_first ? key : every - key;
            if (key >= s.least && at >> shift >> DIGIT_BITS == place)
                atomicAdd(&bins[at >> shift & (DIGIT_BINS - 1)], amount_of(d, s.amount, key_logit(key), most));
        }
        __syncthreads();
        amount_t own = 0, all, before;
        for (int i = 0; i < EACH; i++)
            own += bins[threadIdx.x * EACH + i];
        block_scan(own, shared, &all);
        if (shift == KEY_BITS - DIGIT_BITS)
            left = s.target > 0              ? s.target
                   : s.amount == AMOUNT_DRAW ? draw_target(d, all)
                   : s.of_share > 0          ? share_target(d.top_p, s.of_share)
                                             : share_target(d.top_p, all);
        if (left == 0 || left > all)
            return 0;
        if (block_reaches(own, left, shared, &before)) {
            int i = 0;
            while (before + bins[threadIdx.x * EACH + i] < left)
                before += bins[threadIdx.x * EACH + i++];
            result[0] = place << DIGIT_BITS | (threadIdx.x * EACH + i);
            result[1] = left - before;
        }
        __syncthreads();
        place = result[0];
        left = result[1];
        __syncthreads();
    }
    return s.worst_first ? place : every - place;
}

// The keys of the list that are not below `least`, to shared memory, which has room for them. Returns how many.
__device__ static inline int gather_keys(amount_t *keys, const amount_t *list, int n, amount_t least)
{
    SHARED_ARRAY(int, count, 1);
    if (threadIdx.x == 0)
        count[0] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
        const amount_t key = __ldcg(list + i);
        if (key >= least)
            keys[atomicAdd(&count[0], 1)] = key;
    }
    __syncthreads();
    return count[0];
}

// The list is all that can be chosen. keys: (MAX_SORTED) of shared memory, which serve as bins too.
__device__ static inline amount_t draw_from_list(const struct drawing &d, const amount_t *list, int n, amount_t *keys,
                                                 amount_t *shared)
{
    const float most = key_logit(__ldcg(&d.s.head->best));
    const amount_t sum = d.top_k > 0 ? 0 : __ldcg(&d.s.head->sum); // of top_p
    const bool short_list = n <= MAX_SORTED, few = short_list || (d.top_k > 0 && d.top_k <= MAX_SORTED);
    amount_t least = 1;
    // One search after the other by the same code: the k best, top-p's share, the draw.
#pragma unroll 1
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 1 && few)
            return draw_sorted(d, keys, gather_keys(keys, list, n, least), most, sum, shared);
        if ((turn == 0 && (short_list || d.top_k == 0)) || (turn == 1 && !d.by_p))
            continue;
        const struct search s = {turn == 0   ? AMOUNT_ONE
                                 : turn == 1 ? AMOUNT_PROBABILITY
                                             : AMOUNT_DRAW,
                                 turn == 2, least, turn == 0 ? (amount_t)d.top_k : 0, turn == 1 ? sum : 0};
        const amount_t found = search_list(d, list, n, most, s, keys, shared);
        if (turn == 2)
            return found;
        least = max(found, least);
    }
    return 0;
}
