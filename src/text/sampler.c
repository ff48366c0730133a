// Each step is one pass over the vocabulary; a heap gives an order where one is needed. That is O(V + k log V) for k tokens
// kept, without sorting the whole vocabulary.

#include "text/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

// ------------------------------------------------------------------------------------ random numbers

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t next_random(uint64_t state[4])
{
    const uint64_t result = rotate(state[1] * 5, 7) * 9, t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotate(state[3], 45);
    return result;
}

// In [0, 1), a multiple of 2^-53.
static double next_uniform(uint64_t state[4])
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

double sampler_uniform(struct sampler *sampler)
{
    return next_uniform(sampler->rng);
}

void sampler_seed(struct sampler *sampler, uint64_t seed)
{
    for (int i = 0; i < 4; i++) { // splitmix64, as the generator's authors advise
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        sampler->rng[i] = z ^ z >> 31;
    }
}

// ------------------------------------------------------------------------------------ setting up

yalm_status sampler_open(struct sampler *sampler, int n_vocab, yalm_error *error)
{
    *sampler = (struct sampler){.n_vocab = n_vocab};
    sampler->logits = malloc((size_t)n_vocab * sizeof *sampler->logits);
    sampler->candidates = malloc((size_t)n_vocab * sizeof *sampler->candidates);
    if (!sampler->logits || !sampler->candidates) {
        sampler_close(sampler);
        return error_set(error, YALM_NO_MEMORY, "sampler: no memory for %d logits", n_vocab);
    }
    sampler_seed(sampler, 0);
    return YALM_OK;
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->logits);
    free(sampler->candidates);
    sampler->logits = NULL;
    sampler->candidates = NULL;
}

static yalm_status out_of_range(yalm_error *error, const char *name, double found, const char *expected)
{
    return error_set(error, YALM_USAGE, "%s: found %g, expected %s", name, found, expected);
}

yalm_status sampling_check(const yalm_sampling *s, int n_vocab, yalm_error *error)
{
    if (error_of_size(s->size, sizeof *s, "yalm_sampling", error) != YALM_OK)
        return YALM_USAGE;
    if (!isfinite(s->temperature) || s->temperature < 0)
        return out_of_range(error, "temperature", s->temperature, "0 (greedy) or more");
    if (s->top_k < 0)
        return out_of_range(error, "top-k", s->top_k, "0 (off) or more");
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return out_of_range(error, "top-p", s->top_p, "0 to 1 (off)");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return out_of_range(error, "min-p", s->min_p, "0 (off) to 1");
    if (!isfinite(s->repeat_penalty) || s->repeat_penalty <= 0)
        return out_of_range(error, "repeat penalty", s->repeat_penalty, "more than 0 (1 is off)");
    if (!isfinite(s->presence_penalty))
        return out_of_range(error, "presence penalty", s->presence_penalty, "a number (0 is off)");
    if (!isfinite(s->frequency_penalty))
        return out_of_range(error, "frequency penalty", s->frequency_penalty, "a number (0 is off)");
    if (s->penalty_last_n < -1)
        return out_of_range(error, "penalty last n", s->penalty_last_n, "-1 (the context) or more");
    if (s->n_biases < 0 || (s->n_biases > 0 && !s->biases))
        return out_of_range(error, "logit biases", s->n_biases, "0 or more, and an array of them");
    for (int i = 0; i < s->n_biases; i++) {
        if (s->biases[i].token < 0 || s->biases[i].token >= n_vocab)
            return error_set(error, YALM_USAGE, "logit bias: token %d is not in the vocabulary of %d", s->biases[i].token,
                             n_vocab);
        if (isnan(s->biases[i].bias) || s->biases[i].bias == INFINITY)
            return out_of_range(error, "logit bias", s->biases[i].bias, "a number, or -inf to ban the token");
    }
    return YALM_OK;
}

// ------------------------------------------------------------------------------------ steps

static void add_biases(struct sampler *sampler, const yalm_sampling *sampling)
{
    for (int i = 0; i < sampling->n_biases; i++)
        sampler->logits[sampling->biases[i].token] += sampling->biases[i].bias;
}

static void leave_allowed(struct sampler *sampler, const uint64_t *allowed)
{
    for (int id = 0; id < sampler->n_vocab; id++)
        if (!(allowed[id / 64] >> id % 64 & 1))
            sampler->logits[id] = -INFINITY;
}

static void add_penalties(struct sampler *sampler, const yalm_sampling *s, const int32_t *recent, int n_recent)
{
    const bool off = s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0;
    if (s->penalty_last_n >= 0 && n_recent > s->penalty_last_n) {
        recent += n_recent - s->penalty_last_n;
        n_recent = s->penalty_last_n;
    }
    if (off || n_recent <= 0)
        return;
    int32_t *counts = sampler->candidates; // not in use yet
    memset(counts, 0, (size_t)sampler->n_vocab * sizeof *counts);
    for (int i = 0; i < n_recent; i++)
        if (recent[i] >= 0 && recent[i] < sampler->n_vocab)
            counts[recent[i]]++;
    for (int id = 0; id < sampler->n_vocab; id++) {
        if (counts[id] == 0)
            continue;
        float *logit = &sampler->logits[id];
        *logit = *logit > 0 ? *logit / s->repeat_penalty : *logit * s->repeat_penalty;
        *logit -= (float)counts[id] * s->frequency_penalty + s->presence_penalty;
    }
}

// The largest logit's token; -1 where all are NaN or -inf.
static int32_t largest(const float *logits, int n)
{
    int32_t best = -1;
    float most = -INFINITY;
    for (int id = 0; id < n; id++)
        if (logits[id] > most) {
            most = logits[id];
            best = id;
        }
    return best;
}

// exp(logit - most), where both may be +inf.
static double weight(float logit, float most, double temperature)
{
    if (logit == most)
        return 1;
    return exp(((double)logit - most) / temperature);
}

static bool comes_before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

// With `worst_first` the heap's root is the last in the order, else the first.
static void sift_down(int32_t *heap, int n, int i, const float *logits, bool worst_first)
{
    const int32_t moved = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && comes_before(logits, heap[child + 1], heap[child]) != worst_first)
            child++;
        if (comes_before(logits, heap[child], moved) == worst_first)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

// The k best of candidates[0..n) come to its front, the worst of them first: a heap of the best so far, so that most
// candidates cost one comparison.
static void take_best(int32_t *candidates, int n, int k, const float *logits)
{
    for (int i = k / 2; i-- > 0;)
        sift_down(candidates, k, i, logits, true);
    for (int i = k; i < n; i++)
        if (comes_before(logits, candidates[i], candidates[0])) {
            candidates[0] = candidates[i];
            sift_down(candidates, k, 0, logits, true);
        }
}

// Leaves those candidates that can be among the best with `share` of the sum, which goes to *sum. It adds weights up by ranges
// of logits and drops whole ranges. Returns how many are left.
static int drop_improbable(int32_t *candidates, int n, const float *logits, float most, double share, double *sum)
{
    enum { RANGES = 1024, RANGES_PER_NAT = 16 };
    double weights[RANGES] = {0}, reached = 0;
    *sum = 0;
    for (int i = 0; i < n; i++) {
        const double below = ((double)most - logits[candidates[i]]) * RANGES_PER_NAT; // NaN where both are infinite
        weights[below < RANGES ? (int)below : below >= RANGES ? RANGES - 1 : 0] += weight(logits[candidates[i]], most, 1);
    }
    int last = RANGES;
    for (int range = 0; range < RANGES; range++)
        *sum += weights[range];
    for (int range = 0; range < RANGES && last == RANGES; range++)
        if ((reached += weights[range]) >= share * *sum)
            last = range + 1; // one more than needed, for another order of adding
    if (last >= RANGES - 1)
        return n;
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (!(((double)most - logits[candidates[i]]) * RANGES_PER_NAT >= last + 1))
            candidates[kept++] = candidates[i];
    return kept;
}

// Top-p with the candidates in a heap: takes the best until they reach `share` of the sum. Returns how many; they lie at the
// end of candidates[0..*n).
static int take_share(int32_t *candidates, int *n, const float *logits, float most, double share)
{
    double sum, reached = 0;
    *n = drop_improbable(candidates, *n, logits, most, share, &sum);
    for (int i = *n / 2; i-- > 0;)
        sift_down(candidates, *n, i, logits, false);
    for (int taken = 1; taken <= *n; taken++) {
        const int last = *n - taken;
        const int32_t best = candidates[0];
        candidates[0] = candidates[last];
        candidates[last] = best;
        if (last > 0)
            sift_down(candidates, last, 0, logits, false);
        reached += weight(logits[best], most, 1);
        if (reached >= share * sum)
            return taken;
    }
    return *n;
}

// The worst first, the best last: the order that take_share() leaves.
static void order_candidates(int32_t *candidates, int n, const float *logits)
{
    for (int i = n / 2; i-- > 0;)
        sift_down(candidates, n, i, logits, false);
    for (int last = n - 1; last > 0; last--) {
        const int32_t best = candidates[0];
        candidates[0] = candidates[last];
        candidates[last] = best;
        sift_down(candidates, last, 0, logits, false);
    }
}

// Draws with probability proportional to exp(logit / temperature). `most` is the largest logit.
static int32_t draw(struct sampler *sampler, const int32_t *candidates, int n, float most, float temperature)
{
    const float *logits = sampler->logits;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += weight(logits[candidates[i]], most, temperature);
    double left = next_uniform(sampler->rng) * sum;
    int32_t drawn = -1;
    for (int i = 0; i < n; i++) {
        const double w = weight(logits[candidates[i]], most, temperature);
        if (w > 0) // if rounding leaves something at the end, the last possible one is it
            drawn = candidates[i];
        left -= w;
        if (w > 0 && left < 0)
            break;
    }
    return drawn;
}

int32_t sampler_draw(struct sampler *sampler, const yalm_sampling *sampling, const float *logits, const int32_t *recent,
                     int n_recent)
{
    memcpy(sampler->logits, logits, (size_t)sampler->n_vocab * sizeof *logits);
    add_biases(sampler, sampling);
    add_penalties(sampler, sampling, recent, n_recent);
    if (sampling->allowed)
        leave_allowed(sampler, sampling->allowed);
    const int32_t best = largest(sampler->logits, sampler->n_vocab);
    if (best < 0)
        return 0;
    if (sampling->temperature == 0)
        return best;

    const float most = sampler->logits[best];
    int32_t *candidates = sampler->candidates;
    int n = 0;
    for (int id = 0; id < sampler->n_vocab; id++)
        if (sampler->logits[id] > -INFINITY) // false for NaN
            candidates[n++] = id;
    if (sampling->top_k > 0 && sampling->top_k < n) {
        take_best(candidates, n, sampling->top_k, sampler->logits);
        n = sampling->top_k;
    }
    if (sampling->top_p < 1) {
        const int kept = take_share(candidates, &n, sampler->logits, most, sampling->top_p);
        candidates += n - kept;
        n = kept;
    } else if (sampling->top_k > 0 && sampling->top_k < sampler->n_vocab)
        order_candidates(candidates, n, sampler->logits);
    if (sampling->min_p > 0) {
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (weight(sampler->logits[candidates[i]], most, 1) >= sampling->min_p)
                candidates[kept++] = candidates[i];
        n = kept;
    }
    return draw(sampler, candidates, n, most, sampling->temperature);
}
