// From logits to a token by the rules of text/sampler.h, without sorting the vocabulary and without it ever leaving the device,
// in a handful of launches.
//
// A token's key orders the vocabulary: larger for what comes before. All that can be chosen are the keys from some place on.
// Passes of many blocks read the whole vocabulary; the block that comes last ends each and draws its conclusion:
//
//     best    the best token; of top-k a histogram of the keys' first bits. Its conclusion is a floor: the k best are above it
//     mass    of top-p without top-k: the same with probabilities for counts
//     choose  the keys above the floor into a list; the conclusion sorts it, cuts it (top-k, top-p) and draws, worst first, as
//             the CPU goes through its candidates
//     scan    without top-k and top-p: sums by tiles of the vocabulary; the conclusion draws by id
//
// So greedy is one launch, top-k two, top-p three; penalties and biases two more. The list is short as logits are. Where it is
// longer than what is sorted (flat logits, a huge k, top-p near 1), radix searches take the sort's place. They find the first
// place at which the sum of the tokens' amounts, in this order, reaches a target.
//
// Amounts are fixed-point numbers, so that their sums are exact and the same whatever the order in which threads add. Bytes: 4
// a token of the vocabulary for each pass, from the L2 cache but for the first.
#include "cuda/sample/sample_list.cuh"

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
    s->head = static_cast<struct sample_head *>(take(scratch, &used, 1, sizeof *s->head));
    s->histogram = static_cast<amount_t *>(take(scratch, &used, FLOOR_BINS, sizeof *s->histogram));
    s->list = static_cast<amount_t *>(take(scratch, &used, n_vocab, sizeof *s->list));
    s->sums = static_cast<amount_t *>(take(scratch, &used, MAX_TILES, sizeof *s->sums));
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

// ------------------------------------------------------------------------------------------ penalties and biases

static __global__ void copy_kernel(struct sample_scratch s, const float *logits, int n_vocab)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int i = (int)(blockIdx.x * SAMPLE_THREADS + threadIdx.x);
    if (i < n_vocab) {
        s.logits[i] = logits[i];
        s.counts[i] = 0;
    }
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

struct penalties {
    float repeat, presence, frequency;
};

// In the CPU's order of operations (each rounded).
__device__ static inline float penalise(const struct penalties &p, float logit, int count)
{
    logit = logit > 0 ? __fdiv_rn(logit, p.repeat) : __fmul_rn(logit, p.repeat);
    return logit - __fadd_rn(__fmul_rn((float)count, p.frequency), p.presence);
}

// ------------------------------------------------------------------------------------------ best and mass

// The last block: the floor below which what reaches the target, best first, need not be looked for. The histogram becomes
// zeros.
__device__ static inline void find_floor(const struct drawing &d, bool counts, amount_t *shared)
{
    enum { EACH = FLOOR_BINS / SAMPLE_THREADS };
    amount_t bins[EACH], own = 0, all, before;
    for (int i = 0; i < EACH; i++) { // thread 0 has the best keys
        amount_t *bin = d.s.histogram + FLOOR_BINS - 1 - (threadIdx.x * EACH + i);
        bins[i] = __ldcg(bin);
        own += bins[i];
        *bin = 0;
    }
    block_scan(own, shared, &all);
    const amount_t target = counts ? (amount_t)d.top_k : share_target(d.top_p, all);
    if (threadIdx.x == 0) {
        d.s.head->sum = all;
        d.s.head->floor = 1; // where there are fewer than top_k
    }
    __syncthreads();
    if (block_reaches(own, target, shared, &before)) {
        int i = 0; // bins stay in registers: no index that is known at run time only
        bool reached = false;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            reached = reached || before + bins[k] >= target;
            before += reached ? 0 : bins[k];
            i += reached ? 0 : 1;
        }
        const amount_t bin = FLOOR_BINS - 1 - (threadIdx.x * EACH + i);
        d.s.head->floor = max(bin << FLOOR_SHIFT, (amount_t)1);
    }
}

// Adds a block's bins to all blocks'.
template <class T> __device__ static inline void add_bins(const struct drawing &d, const T *bins)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < FLOOR_BINS; i += SAMPLE_THREADS)
        if (bins[i] > 0)
            atomicAdd(&d.s.histogram[i], (amount_t)bins[i]);
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) best_kernel(const struct drawing d, struct penalties p, bool penalised)
{
    SHARED_ARRAY(unsigned, bins, FLOOR_BINS);
    SHARED_ARRAY(amount_t, shared, SAMPLE_WARPS);
    if (d.top_k > 0)
        for (int i = (int)threadIdx.x; i < FLOOR_BINS; i += SAMPLE_THREADS)
            bins[i] = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    __syncthreads();
    amount_t best = 0;
    for (int j = 0; j < SAMPLE_EACH; j++) {
        const int id = (int)(blockIdx.x * SAMPLE_TILE + j * SAMPLE_THREADS + threadIdx.x);
        if (id >= d.n_vocab)
            break;
        float logit = __ldcg(d.logits + id);
        const int count = penalised ? __ldcg(d.s.counts + id) : 0;
        if (count > 0)
            d.s.logits[id] = logit = penalise(p, logit, count);
        const amount_t key = key_of(logit, id);
        best = max(best, key);
        if (d.top_k > 0 && key > 0)
            atomicAdd(&bins[key >> FLOOR_SHIFT], 1u);
    }
    best = warp_most(best);
    if (threadIdx.x % 32 == 0 && best > 0)
        atomicMax(&d.s.head->best, best);
    if (d.top_k > 0)
        add_bins(d, bins);
    if (!block_is_last(d.s.head))
        return;
    if (d.top_k > 0)
        find_floor(d, true, shared);
    if (d.temperature == 0 && threadIdx.x == 0)
        finish(d, __ldcg(&d.s.head->best));
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) mass_kernel(const struct drawing d)
{
    SHARED_ARRAY(amount_t, bins, FLOOR_BINS);
    SHARED_ARRAY(amount_t, shared, SAMPLE_WARPS);
    for (int i = (int)threadIdx.x; i < FLOOR_BINS; i += SAMPLE_THREADS)
        bins[i] = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    __syncthreads();
    const float most = key_logit(__ldcg(&d.s.head->best));
    for (int j = 0; j < SAMPLE_EACH; j++) {
        const int id = (int)(blockIdx.x * SAMPLE_TILE + j * SAMPLE_THREADS + threadIdx.x);
        const amount_t key = id < d.n_vocab ? key_of(__ldcg(d.logits + id), id) : 0;
        if (key > 0)
            atomicAdd(&bins[key >> FLOOR_SHIFT], amount_of(d, AMOUNT_PROBABILITY, key_logit(key), most));
    }
    add_bins(d, bins);
    if (block_is_last(d.s.head))
        find_floor(d, false, shared);
}

// ------------------------------------------------------------------------------------------ choose and scan

static __global__ void __launch_bounds__(SAMPLE_THREADS) choose_kernel(const struct drawing d)
{
    SHARED_ARRAY(amount_t, keys, MAX_SORTED);
    SHARED_ARRAY(amount_t, shared, SAMPLE_WARPS);
    SHARED_ARRAY(unsigned, place, 2); // this block's keys; where they begin in the list
    if (threadIdx.x == 0)
        place[0] = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    __syncthreads();
    const amount_t floor = __ldcg(&d.s.head->floor);
    amount_t own[SAMPLE_EACH];
    unsigned at[SAMPLE_EACH];
    for (int j = 0; j < SAMPLE_EACH; j++) {
        const int id = (int)(blockIdx.x * SAMPLE_TILE + j * SAMPLE_THREADS + threadIdx.x);
        own[j] = id < d.n_vocab ? key_of(__ldcg(d.logits + id), id) : 0;
        if (own[j] > 0 && own[j] >= floor)
            at[j] = atomicAdd(&place[0], 1u);
        else
            own[j] = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        place[1] = atomicAdd(&d.s.head->n_list, place[0]);
    __syncthreads();
    for (int j = 0; j < SAMPLE_EACH; j++)
        if (own[j] > 0)
            d.s.list[place[1] + at[j]] = own[j];
    if (!block_is_last(d.s.head))
        return;
    const amount_t key = draw_from_list(d, d.s.list, (int)__ldcg(&d.s.head->n_list), keys, shared);
    __syncthreads(); // all have read the head
    if (threadIdx.x == 0)
        finish(d, key);
}

// What this thread's two tokens of a tile, neighbours, count.
__device__ static inline void tile_amounts(const struct drawing &d, int tile, float most, amount_t (&amounts)[2])
{
    for (int j = 0; j < 2; j++) {
        const int id = tile * SAMPLE_TILE + 2 * (int)threadIdx.x + j;
        const float logit = id < d.n_vocab ? __ldcg(d.logits + id) : -INFINITY;
        amounts[j] = key_of(logit, id) > 0 ? amount_of(d, AMOUNT_DRAW, logit, most) : 0;
    }
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) scan_kernel(const struct drawing d)
{
    SHARED_ARRAY(amount_t, shared, SAMPLE_WARPS);
    SHARED_ARRAY(amount_t, result, 2); // the tile, and the target in it
    grid_dependency_launch();
    grid_dependency_wait();
    const float most = key_logit(__ldcg(&d.s.head->best));
    amount_t amounts[2], all, before;
    tile_amounts(d, (int)blockIdx.x, most, amounts);
    block_scan(amounts[0] + amounts[1], shared, &all);
    if (threadIdx.x == 0)
        d.s.sums[blockIdx.x] = all;
    if (!block_is_last(d.s.head))
        return;
    const amount_t own = threadIdx.x < gridDim.x ? __ldcg(d.s.sums + threadIdx.x) : 0;
    block_scan(own, shared, &all);
    const amount_t target = draw_target(d, all);
    if (threadIdx.x == 0 && all == 0)
        finish(d, 0);
    if (all == 0)
        return;
    if (block_reaches(own, target, shared, &before)) {
        result[0] = threadIdx.x;
        result[1] = target - before;
    }
    __syncthreads();
    const int tile = (int)result[0];
    tile_amounts(d, tile, most, amounts);
    if (block_reaches(amounts[0] + amounts[1], result[1], shared, &before)) {
        const int id = tile * SAMPLE_TILE + 2 * (int)threadIdx.x + (before + amounts[0] < result[1]);
        finish(d, key_of(__ldcg(d.logits + id), id));
    }
}

// ------------------------------------------------------------------------------------------ the steps

// Biases, and how often each token is among the recent ones; d->logits becomes a copy where there is something to change.
// *penalised: counts matter.
static yalm_status prepare(struct drawing *d, const struct draw *draw, bool *penalised, cudaStream_t stream, yalm_error *error)
{
    const yalm_sampling *sampling = draw->sampling;
    const bool off = sampling->repeat_penalty == 1 && sampling->presence_penalty == 0 && sampling->frequency_penalty == 0;
    const int last_n = sampling->penalty_last_n, n_biases = sampling->n_biases;
    const int n_recent = off ? 0 : last_n >= 0 && draw->n_recent > last_n ? last_n : draw->n_recent;
    if (n_biases > d->n_vocab)
        return error_set(error, YALM_USAGE, "logit biases: found %d, expected at most one for each of %d tokens", n_biases,
                         d->n_vocab);
    const int most = n_biases > n_recent ? n_biases : n_recent;
    *penalised = most > 0;
    if (most == 0)
        return YALM_OK;
    d->logits = d->s.logits;
    TRY(LAUNCH(error, copy_kernel, (d->n_vocab + SAMPLE_THREADS - 1) / SAMPLE_THREADS, SAMPLE_THREADS, 0, stream, d->s, d->raw,
               d->n_vocab));
    if (n_biases > 0)
        TRY_CUDA(
            cudaMemcpyAsync(d->s.biases, sampling->biases, n_biases * sizeof *d->s.biases, cudaMemcpyHostToDevice, stream));
    if (n_recent > 0)
        TRY_CUDA(cudaMemcpyAsync(d->s.recent, draw->recent + draw->n_recent - n_recent, n_recent * sizeof *d->s.recent,
                                 cudaMemcpyHostToDevice, stream));
    return LAUNCH(error, collect_kernel, (most + SAMPLE_THREADS - 1) / SAMPLE_THREADS, SAMPLE_THREADS, 0, stream, d->s,
                  n_biases, n_recent, d->n_vocab);
}

yalm_status sample(const struct draw *draw, const float *logits, int n_vocab, void *scratch, int32_t *token,
                   struct sampled *sampled, cudaStream_t stream, yalm_error *error)
{
    const yalm_sampling *sampling = draw->sampling;
    if (n_vocab > 1 << ID_BITS)
        return error_set(error, YALM_FAILED, "CUDA: found a vocabulary of %d, expected at most %d", n_vocab, 1 << ID_BITS);
    struct drawing d = {};
    lay_out(&d.s, scratch, n_vocab, draw->n_recent);
    d.raw = d.logits = logits;
    d.n_vocab = n_vocab;
    d.temperature = sampling->temperature > 0 ? sampling->temperature : 0;
    d.top_k = d.temperature > 0 && sampling->top_k > 0 && sampling->top_k < n_vocab ? sampling->top_k : 0;
    d.by_p = d.temperature > 0 && sampling->top_p < 1;
    d.top_p = sampling->top_p;
    d.min_p = sampling->min_p;
    d.uniform = draw->uniform;
    d.token = token;
    d.sampled = sampled;
    bool penalised = false;
    TRY(prepare(&d, draw, &penalised, stream, error));

    const struct penalties penalties = {sampling->repeat_penalty, sampling->presence_penalty, sampling->frequency_penalty};
    const int blocks = (n_vocab + SAMPLE_TILE - 1) / SAMPLE_TILE;
    TRY(LAUNCH(error, best_kernel, blocks, SAMPLE_THREADS, 0, stream, d, penalties, penalised));
    if (d.temperature == 0)
        return YALM_OK;
    if (d.top_k == 0 && !d.by_p)
        return LAUNCH(error, scan_kernel, blocks, SAMPLE_THREADS, 0, stream, d);
    if (d.top_k == 0)
        TRY(LAUNCH(error, mass_kernel, blocks, SAMPLE_THREADS, 0, stream, d));
    return LAUNCH(error, choose_kernel, blocks, SAMPLE_THREADS, 0, stream, d);
}
