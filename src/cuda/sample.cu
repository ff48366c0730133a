// From logits to a token by the rules of text/sampler.h, without a sort and without the vocabulary ever leaving the device.
//
// Top-k, top-p and the draw itself are one question: in some order of the tokens, which is the first at which the sum of their amounts
// reaches a target? Top-k: best first, each token counts 1, the target is k. Top-p: best first, e^(logit - most), p of the sum. The draw:
// e^((logit - most) / temperature) of what is left, u of the sum; worst first where top-k or top-p has chosen, else by id, as the CPU goes
// through its candidates. A radix search answers it: a place in the order is a number of up to 50 bits; a pass adds up the amounts by the
// next 10 bits of those whose bits above are the ones that were found.
//
// Amounts are fixed-point numbers, so that their sums are exact and the same whatever the order in which threads add.
#include "cuda/kernels.h"

enum {
    SAMPLE_THREADS = 256,
    SAMPLE_EACH = 4, // tokens of a thread
    SAMPLE_TILE = SAMPLE_THREADS * SAMPLE_EACH,
    ID_BITS = 18, // vocabularies of up to 262,144
    ID_MASK = (1 << ID_BITS) - 1,
    DIGIT_BITS = 10,
    BINS = 1 << DIGIT_BITS,
    MAX_PASSES = 5,
    MAX_SEARCHES = 3,
    BINS_EACH = BINS / SAMPLE_THREADS,
};

typedef unsigned long long amount_t;

enum amount {
    AMOUNT_ONE,
    AMOUNT_PROBABILITY,
    AMOUNT_DRAW
}; // what a token counts: 1; its weight at temperature 1; and at the draw's
enum order { ORDER_BEST_FIRST, ORDER_WORST_FIRST, ORDER_BY_ID }; // in which
enum target { TARGET_COUNT, TARGET_SHARE, TARGET_UNIFORM };

// Between passes.
struct found {
    amount_t place; // the bits that are known
    amount_t left;  // of the target, before those places
    int none;       // the whole sum does not reach the target
};

struct search {
    enum amount amount;
    enum order order;
    enum target target;
    double value; // of the target
    double temperature, min_p;
    const float *logits; // (n_vocab), after biases and penalties
    int n_vocab;
    const amount_t *best;  // key of the best token; 0: there is none
    const amount_t *least; // tokens with smaller keys do not count; NULL: all do
    amount_t *histograms;  // (MAX_PASSES, BINS), all zero
    struct found *found;   // (MAX_PASSES)
    amount_t *key;         // the result's; 0: there is none
};

// Where everything lies in the scratch.
struct sample_scratch {
    amount_t *histograms;    // (MAX_SEARCHES, MAX_PASSES, BINS)
    amount_t *keys;          // (1 + MAX_SEARCHES): of the best token, of the searches' results
    struct found *found;     // (MAX_PASSES)
    float *logits;           // (n_vocab)
    int32_t *counts;         // (n_vocab)
    yalm_logit_bias *biases; // (n_vocab)
    int32_t *recent;         // (context)
};

// The next piece of the scratch; with no scratch, counts what is needed.
static void *take(void *scratch, size_t *used, size_t count, size_t size)
{
    const size_t at = *used;
    *used += round_up(count * size, 64);
    return scratch ? static_cast<char *>(scratch) + at : NULL;
}

static size_t lay_out(struct sample_scratch *s, void *scratch, int n_vocab, int context)
{
    size_t used = 0;
    s->histograms = static_cast<amount_t *>(take(scratch, &used, MAX_SEARCHES * MAX_PASSES * BINS, sizeof *s->histograms));
    s->keys = static_cast<amount_t *>(take(scratch, &used, 1 + MAX_SEARCHES, sizeof *s->keys));
    s->found = static_cast<struct found *>(take(scratch, &used, MAX_PASSES + 1, sizeof *s->found));
    s->logits = static_cast<float *>(take(scratch, &used, n_vocab, sizeof *s->logits));
    s->counts = static_cast<int32_t *>(take(scratch, &used, n_vocab, sizeof *s->counts));
    s->biases = static_cast<yalm_logit_bias *>(take(scratch, &used, n_vocab, sizeof *s->biases));
    s->recent = static_cast<int32_t *>(take(scratch, &used, context, sizeof *s->recent));
    return used;
}

size_t sample_scratch_bytes(int n_vocab, int context)
{
    struct sample_scratch s;
    return lay_out(&s, NULL, n_vocab, context);
}

// ------------------------------------------------------------------------------------------ preparing

static __global__ void copy_kernel(struct sample_scratch s, const float *logits, int n_vocab)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int i = (int)(blockIdx.x * SAMPLE_THREADS + threadIdx.x);
    if (i < n_vocab) {
        s.logits[i] = logits[i];
        s.counts[i] = 0;
    }
    if (i < MAX_SEARCHES * MAX_PASSES * BINS)
        s.histograms[i] = 0;
    if (i == 0)
        s.keys[0] = 0;
}

// Thread i: the i-th bias, with all later ones of its token, unless an earlier one has done so; and the i-th recent token.
static __global__ void collect_kernel(struct sample_scratch s, int n_biases, int n_recent, int n_vocab)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int i = (int)(blockIdx.x * SAMPLE_THREADS + threadIdx.x);
    if (i < n_biases) {
        const int32_t token = s.biases[i].token;
        bool first = true;
        for (int j = 0; j < i && first; j++)
            first = s.biases[j].token != token;
        for (int j = i; j < n_biases && first; j++)
            if (s.biases[j].token == token)
                s.logits[token] += s.biases[j].bias;
    }
    if (i < n_recent && s.recent[i] >= 0 && s.recent[i] < n_vocab)
        atomicAdd(&s.counts[s.recent[i]], 1);
}

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

__device__ static inline amount_t warp_most(amount_t x)
{
    for (int step = 16; step > 0; step /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// Penalties, in the CPU's order of operations (each rounded), and the best token.
struct penalties {
    float repeat, presence, frequency;
};
static __global__ void penalise_kernel(struct sample_scratch s, struct penalties p, int n_vocab)
{
    grid_dependency_launch();
    grid_dependency_wait();
    amount_t best = 0;
    for (int j = 0; j < SAMPLE_EACH; j++) {
        const int id = (int)(blockIdx.x * SAMPLE_TILE + j * SAMPLE_THREADS + threadIdx.x);
        if (id >= n_vocab)
            break;
        float logit = s.logits[id];
        const int count = s.counts[id];
        if (count > 0) {
            logit = logit > 0 ? __fdiv_rn(logit, p.repeat) : __fmul_rn(logit, p.repeat);
            logit -= __fadd_rn(__fmul_rn((float)count, p.frequency), p.presence);
            s.logits[id] = logit;
        }
        best = max(best, key_of(logit, id));
    }
    best = warp_most(best);
    if (threadIdx.x % 32 == 0)
        atomicMax(&s.keys[0], best);
}

// ------------------------------------------------------------------------------------------ searching

// e^((logit - most) / temperature), where both may be +inf.
__device__ static inline double weight(float logit, float most, double temperature)
{
    return logit == most ? 1.0 : exp(((double)logit - (double)most) / temperature);
}

__device__ static inline amount_t amount_of(const struct search &s, float logit, float most)
{
    if (s.amount == AMOUNT_ONE)
        return 1;
    if (s.min_p > 0 && !(weight(logit, most, 1) >= s.min_p))
        return 0;
    return (amount_t)(weight(logit, most, s.amount == AMOUNT_DRAW ? s.temperature : 1) * 0x1p44); // 2^18 of them: 2^62
}

static __host__ __device__ inline int place_bits(enum order order)
{
    return order == ORDER_BY_ID ? 2 * DIGIT_BITS : MAX_PASSES * DIGIT_BITS;
}

__device__ static inline amount_t place_of(enum order order, amount_t key)
{
    const amount_t all = ((amount_t)1 << MAX_PASSES * DIGIT_BITS) - 1;
    return order == ORDER_BY_ID ? (amount_t)key_id(key) : order == ORDER_WORST_FIRST ? key : all - key;
}

__device__ static inline amount_t target_of(const struct search &s, amount_t sum)
{
    if (s.target == TARGET_COUNT)
        return (amount_t)s.value;
    const double share = s.value * (double)sum;
    const amount_t target =
        s.target == TARGET_UNIFORM ? (amount_t)share + 1 : (amount_t)ceil(share); // more than that; at least that
    return max(min(target, sum), (amount_t)1);
}

// What is known after `pass` passes, all threads of a block together. A thread has BINS_EACH of the last pass's sums.
__device__ static inline struct found find_digit(const struct search &s, int pass)
{
    SHARED_ARRAY(amount_t, sums, SAMPLE_THREADS / 32);
    SHARED_ARRAY(struct found, result, 1);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const amount_t *bins = s.histograms + (size_t)(pass - 1) * BINS + threadIdx.x * BINS_EACH;
    amount_t own = 0, before = 0, all = 0;
    for (int i = 0; i < BINS_EACH; i++)
        own += bins[i];
    amount_t through = own; // the sum of this warp's threads up to this one
    for (int step = 1; step < 32; step *= 2) {
        const amount_t other = __shfl_up_sync(0xffffffffu, through, step);
        through += lane >= step ? other : 0;
    }
    if (lane == 31)
        sums[warp] = through;
    __syncthreads();
    for (int w = 0; w < SAMPLE_THREADS / 32; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    before += through - own;

    struct found last = {0, 0, 0};
    if (pass > 1)
        last = s.found[pass - 2];
    else
        last.left = target_of(s, all);
    if (last.left > all || last.none) { // so it is in the first pass, or never
        if (threadIdx.x == 0)
            result[0] = {0, 0, 1};
    } else if (before < last.left && last.left <= before + own) {
        int i = 0;
        while (before + bins[i] < last.left)
            before += bins[i++];
        result[0] = {last.place << DIGIT_BITS | (threadIdx.x * BINS_EACH + i), last.left - before, 0};
    }
    __syncthreads();
    return result[0];
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) search_kernel(struct search s, int pass)
{
    SHARED_ARRAY(amount_t, bins, BINS);
    for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS)
        bins[i] = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    __syncthreads();
    struct found known = {0, 0, 0};
    if (pass > 0) {
        known = find_digit(s, pass);
        if (blockIdx.x == 0 && threadIdx.x == 0)
            s.found[pass - 1] = known;
    }
    const amount_t best = *s.best, least = s.least ? max(*s.least, (amount_t)1) : 1;
    const float most = key_logit(best);
    const int shift = place_bits(s.order) - DIGIT_BITS * (pass + 1);
    for (int j = 0; j < SAMPLE_EACH && !known.none; j++) {
        const int id = (int)(blockIdx.x * SAMPLE_TILE + j * SAMPLE_THREADS + threadIdx.x);
        if (id >= s.n_vocab)
            break;
        const float logit = s.logits[id];
        const amount_t key = key_of(logit, id), place = place_of(s.order, key);
        if (key < least || place >> shift >> DIGIT_BITS != known.place)
            continue;
        const amount_t amount = amount_of(s, logit, most);
        if (amount > 0)
            atomicAdd(&bins[place >> shift & (BINS - 1)], amount);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS)
        if (bins[i] > 0)
            atomicAdd(&s.histograms[(size_t)pass * BINS + i], bins[i]);
}

// One block: the result of a search whose passes are over.
static __global__ void __launch_bounds__(SAMPLE_THREADS) result_kernel(struct search s, int n_passes)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const struct found known = find_digit(s, n_passes);
    if (threadIdx.x > 0)
        return;
    const amount_t place = known.place;
    *s.key = known.none                     ? 0
             : s.order == ORDER_BY_ID       ? key_of(s.logits[place], (int)place)
             : s.order == ORDER_WORST_FIRST ? place
                                            : place_of(ORDER_BEST_FIRST, place);
}

static __global__ void finish_kernel(const amount_t *key, const float *logits, int32_t *token, struct sampled *sampled)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int id = *key > 0 ? key_id(*key) : 0;
    *token = id;
    *sampled = {id, logits[id]};
}

// ------------------------------------------------------------------------------------------ the steps

// What the last search found, search->key, becomes the least key of this one; each has its own histograms.
static yalm_status run_search(struct search *search, enum amount amount, enum order order, enum target target, double value,
                              cudaStream_t stream, yalm_error *error)
{
    search->amount = amount;
    search->order = order;
    search->target = target;
    search->value = value;
    search->least = search->key == search->best ? NULL : search->key;
    search->key++;
    const int n_passes = place_bits(order) / DIGIT_BITS;
    const int blocks = (search->n_vocab + SAMPLE_TILE - 1) / SAMPLE_TILE;
    for (int pass = 0; pass < n_passes; pass++)
        TRY(LAUNCH(error, search_kernel, blocks, SAMPLE_THREADS, 0, stream, *search, pass));
    TRY(LAUNCH(error, result_kernel, 1, SAMPLE_THREADS, 0, stream, *search, n_passes));
    search->histograms += MAX_PASSES * BINS;
    return YALM_OK;
}

// Biases and penalties; s->keys[0] becomes the best token's.
static yalm_status prepare(const struct sample_scratch *s, const struct draw *draw, const float *logits, int n_vocab,
                           cudaStream_t stream, yalm_error *error)
{
    const yalm_sampling *sampling = draw->sampling;
    const struct penalties penalties = {sampling->repeat_penalty, sampling->presence_penalty, sampling->frequency_penalty};
    const bool off = penalties.repeat == 1 && penalties.presence == 0 && penalties.frequency == 0;
    const int last_n = sampling->penalty_last_n;
    int n_recent = off ? 0 : last_n >= 0 && draw->n_recent > last_n ? last_n : draw->n_recent;
    const int n_biases = sampling->n_biases;
    if (n_biases > n_vocab)
        return error_set(error, YALM_USAGE, "logit biases: found %d, expected at most one for each of %d tokens", n_biases,
                         n_vocab);

    const int to_clear = n_vocab > MAX_SEARCHES * MAX_PASSES * BINS ? n_vocab : MAX_SEARCHES * MAX_PASSES * BINS;
    TRY(LAUNCH(error, copy_kernel, (to_clear + SAMPLE_THREADS - 1) / SAMPLE_THREADS, SAMPLE_THREADS, 0, stream, *s, logits,
               n_vocab));
    if (n_biases > 0)
        TRY_CUDA(cudaMemcpyAsync(s->biases, sampling->biases, n_biases * sizeof *s->biases, cudaMemcpyHostToDevice, stream));
    if (n_recent > 0)
        TRY_CUDA(cudaMemcpyAsync(s->recent, draw->recent + draw->n_recent - n_recent, n_recent * sizeof *s->recent,
                                 cudaMemcpyHostToDevice, stream));
    const int most = n_biases > n_recent ? n_biases : n_recent;
    if (most > 0)
        TRY(LAUNCH(error, collect_kernel, (most + SAMPLE_THREADS - 1) / SAMPLE_THREADS, SAMPLE_THREADS, 0, stream, *s, n_biases,
                   n_recent, n_vocab));
    return LAUNCH(error, penalise_kernel, (n_vocab + SAMPLE_TILE - 1) / SAMPLE_TILE, SAMPLE_THREADS, 0, stream, *s, penalties,
                  n_vocab);
}

yalm_status sample(const struct draw *draw, const float *logits, int n_vocab, void *scratch, int32_t *token,
                   struct sampled *sampled, cudaStream_t stream, yalm_error *error)
{
    if (n_vocab > 1 << ID_BITS)
        return error_set(error, YALM_FAILED, "CUDA: found a vocabulary of %d, expected at most %d", n_vocab, 1 << ID_BITS);
    struct sample_scratch s;
    lay_out(&s, scratch, n_vocab, draw->n_recent);
    TRY(prepare(&s, draw, logits, n_vocab, stream, error));

    const yalm_sampling *sampling = draw->sampling;
    struct search search = {};
    search.temperature = sampling->temperature;
    search.logits = s.logits;
    search.n_vocab = n_vocab;
    search.best = search.key = s.keys;
    search.histograms = s.histograms;
    search.found = s.found;
    const bool draws = sampling->temperature > 0, by_k = draws && sampling->top_k > 0 && sampling->top_k < n_vocab;
    const bool by_p = draws && sampling->top_p < 1;
    if (by_k)
        TRY(run_search(&search, AMOUNT_ONE, ORDER_BEST_FIRST, TARGET_COUNT, sampling->top_k, stream, error));
    if (by_p)
        TRY(run_search(&search, AMOUNT_PROBABILITY, ORDER_BEST_FIRST, TARGET_SHARE, sampling->top_p, stream, error));
    search.min_p = sampling->min_p;
    if (draws)
        TRY(run_search(&search, AMOUNT_DRAW, by_k || by_p ? ORDER_WORST_FIRST : ORDER_BY_ID, TARGET_UNIFORM, draw->uniform,
                       stream, error));
    return LAUNCH(error, finish_kernel, 1, 1, 0, stream, search.key, logits, token, sampled);
}
