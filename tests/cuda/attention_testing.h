// A cache that has seen some positions, queries of some tokens at its end, and their attention in double.
#pragma once
#include <algorithm>

#include "cuda_testing.h"

struct attention_case {
    yalm_kv type;
    int n_heads, n_kv_heads, head_dim;
    int context, window, n_sinks, chunk; // window 0: none; n_sinks > 0: an endless session
    int64_t position;                    // of the first token
    int n;
    double range;             // of queries and keys
    double value_range = 1.0; // of values
    bool spread = false;      // the values' rows differ in magnitude: by 10^4 and less
    bool latent = false;      // keys are the values
    double slope = 0;         // of the first head's scores with the distance, half of it of the next one's, and so on
    int text_length = 0;      // the batch, at position 0, is texts of so many tokens, the last one shorter; 0: one text
    bool both_ways = false;   // tokens see those of their text that are behind them, too
};

static inline const char *kv_name(yalm_kv type)
{
    return type == YALM_KV_FP32 ? "fp32" : type == YALM_KV_INT8 ? "int8" : "fp16";
}

struct attention_fixture {
    struct attention_case c;
    struct kv_cache cache;
    struct attention attention;
    struct evaluation *step;
    struct text_token *texts;        // NULL: one text
    std::vector<float> q, sink_q;    // (n, n_heads, head_dim), scaled
    std::vector<float> keys, values; // (n_kv_heads, capacity, head_dim), as the cache's type has them
    std::vector<double> expected;    // (n, n_heads, head_dim)
};

static inline std::vector<uint16_t> to_halves(std::vector<float> *x)
{
    std::vector<uint16_t> y(x->size());
    for (size_t i = 0; i < y.size(); i++) {
        const half h = __float2half_rn((*x)[i]);
        memcpy(&y[i], &h, sizeof h);
        (*x)[i] = __half2float(h);
    }
    return y;
}

// Rows of int8, *x likewise. *scales: one for each; NaN, and no integer that ever comes out, where nothing was written.
static inline std::vector<int8_t> to_integers(std::vector<float> *x, int head_dim, std::vector<float> *scales)
{
    std::vector<int8_t> y(x->size(), -128);
    scales->assign(x->size() / head_dim, NAN);
    for (size_t row = 0; row < scales->size(); row++) {
        float *values = x->data() + row * head_dim, largest = 0;
        if (isnan(values[0])) {
            continue;
        }
        for (int c = 0; c < head_dim; c++) {
            largest = fmaxf(largest, fabsf(values[c]));
        }
        const float scale = (*scales)[row] = largest / 127;
        for (int c = 0; c < head_dim; c++) {
            const int8_t rounded = y[row * head_dim + c] = (int8_t)lrintf(values[c] * (1 / scale));
            values[c] = scale * rounded;
        }
    }
    return y;
}

// The keys that the query at `position` sees: their slots, the sinks' first where they stand apart; *n_apart: how many those
// are.
static inline std::vector<int> visible_slots(const struct kv_policy *policy, int64_t position, int *n_apart)
{
    std::vector<int> slots;
    *n_apart = kv_sinks_apart(policy, position) ? policy->n_sinks : 0;
    for (int i = 0; i < *n_apart; i++) {
        slots.push_back(i);
    }
    for (int64_t p = kv_first_visible(policy, position); p <= position; p++) {
        slots.push_back(kv_slot(policy, p));
    }
    assert_int_equal(slots.size(), kv_n_visible(policy, position));
    return slots;
}

// The batch's tokens [*first, *end) that one of several texts sees, but for windows.
static inline void text_of(const struct attention_case &c, int token, int *first, int *end)
{
    *first = token / c.text_length * c.text_length;
    *end = c.both_ways ? std::min(*first + c.text_length, c.n) : token + 1;
}

static inline std::vector<int> text_slots(const struct attention_fixture *f, int token)
{
    const int span = f->cache.policy.span;
    int first, end;
    text_of(f->c, token, &first, &end);
    std::vector<int> slots;
    for (int t = std::max(first, token + 1 - span); t < std::min(end, token + span); t++) {
        slots.push_back(kv_slot(&f->cache.policy, t));
    }
    return slots;
}

static inline void expect_head(struct attention_fixture *f, int token, int head)
{
    const int d = f->c.head_dim, kv_head = head / (f->c.n_heads / f->c.n_kv_heads);
    const size_t at = ((size_t)token * f->c.n_heads + head) * d, base = (size_t)kv_head * f->cache.policy.capacity * d;
    int n_apart = 0;
    const std::vector<int> slots =
        f->c.text_length ? text_slots(f, token) : visible_slots(&f->cache.policy, f->c.position + token, &n_apart);
    std::vector<double> scores(slots.size());
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < slots.size(); j++) {
        const float *q = ((int)j < n_apart ? f->sink_q : f->q).data() + at, *k = f->keys.data() + base + (size_t)slots[j] * d;
        for (int c = 0; c < d; c++) {
            scores[j] += (double)q[c] * k[c];
        }
        scores[j] -= ldexp(f->c.slope, -head) * (double)(slots.size() - 1 - j);
        max = fmax(max, scores[j]);
    }
    for (size_t j = 0; j < slots.size(); j++) {
        const double p = exp(scores[j] - max);
        sum += p;
        for (int c = 0; c < d; c++) {
            f->expected[at + c] += p * f->values[base + (size_t)slots[j] * d + c];
        }
    }
    for (int c = 0; c < d; c++) {
        f->expected[at + c] /= sum;
    }
}

// Slots that no visible position has ever been written to stay NaN: what reads them shows.
static inline std::vector<float> cache_values(struct attention_fixture *f, uint64_t *seed, double range)
{
    const int d = f->c.head_dim, capacity = f->cache.policy.capacity;
    std::vector<float> x((size_t)f->c.n_kv_heads * capacity * d, NAN);
    for (int64_t p = 0; p < f->c.position + f->c.n && p < 2 * (int64_t)capacity; p++) {
        const int slot = kv_slot(&f->cache.policy, f->c.position + f->c.n - 1 - p);
        for (int h = 0; h < f->c.n_kv_heads; h++) {
            for (int c = 0; c < d; c++) {
                x[((size_t)h * capacity + slot) * d + c] = (float)(range * uniform(seed));
            }
        }
    }
    for (int slot = 0; slot < f->cache.policy.n_sinks && slot < f->c.position + f->c.n; slot++) {
        for (int h = 0; h < f->c.n_kv_heads; h++) {
            for (int c = 0; c < d; c++) {
                x[((size_t)h * capacity + slot) * d + c] = (float)(range * uniform(seed));
            }
        }
    }
    return x;
}

// x behind as much that is `before`.
template <class T> static inline T *second_layer(const std::vector<T> &x, T before)
{
    std::vector<T> layers(2 * x.size(), before);
    std::copy(x.begin(), x.end(), layers.begin() + x.size());
    return device_copy(layers);
}

// The cache lies in layer 1 of 2; layer 0 is NaN. *scales: of int8.
static inline void *cache_upload(const struct attention_fixture *f, std::vector<float> *x, float **scales)
{
    if (f->c.type == YALM_KV_INT8) {
        std::vector<float> of_rows;
        const std::vector<int8_t> integers = to_integers(x, f->c.head_dim, &of_rows);
        *scales = second_layer(of_rows, NAN);
        return second_layer(integers, (int8_t)-128);
    }
    return f->c.type == YALM_KV_FP32 ? (void *)second_layer(*x, NAN) : second_layer(to_halves(x), (uint16_t)0xffff);
}

static inline void attention_open(struct attention_fixture *f, const struct attention_case &c, uint64_t seed)
{
    f->c = c;
    f->cache = {};
    f->cache.type = c.type;
    f->cache.n_layers = 2;
    f->cache.n_kv_heads = c.n_kv_heads;
    f->cache.head_dim = c.head_dim;
    f->cache.latent = c.latent;
    f->cache.policy = kv_policy_make(c.context, c.window, c.n_sinks > 0, c.n_sinks, c.chunk);
    const size_t n = (size_t)c.n * c.n_heads * c.head_dim;
    const double scale = c.range / sqrt(c.head_dim);
    f->q = random_floats(&seed, n, scale);
    f->sink_q = random_floats(&seed, n, scale);
    for (int token = 0; token < c.n; token++) { // as rope_append() leaves it: nothing where the sinks are not apart
        if (!kv_sinks_apart(&f->cache.policy, c.position + token)) {
            const auto row = f->sink_q.begin() + (size_t)token * c.n_heads * c.head_dim;
            std::fill(row, row + (size_t)c.n_heads * c.head_dim, NAN);
        }
    }
    f->keys = cache_values(f, &seed, c.range);
    f->values = c.latent ? f->keys : cache_values(f, &seed, c.value_range);
    for (size_t i = 0; c.spread && i < f->values.size(); i++) {
        f->values[i] *= (float)pow(10, -(double)(i / c.head_dim % 5));
    }
    f->cache.keys = cache_upload(f, &f->keys, &f->cache.key_scales);
    f->cache.values = c.latent ? f->cache.keys : cache_upload(f, &f->values, &f->cache.value_scales);
    if (c.latent) { // as the cache's type has them
        f->values = f->keys;
    }
    std::vector<struct evaluation> step = {{c.position, c.n, 0}};
    std::vector<struct text_token> texts(c.text_length ? c.n : 0);
    for (int t = 0; t < (int)texts.size(); t++) {
        text_of(c, t, &texts[t].first, &texts[t].last);
    }
    f->texts = texts.empty() ? NULL : device_copy(texts);
    step[0].texts = f->texts;
    f->step = device_copy(step);
    f->attention = {f->step, device_copy(f->q), c.n_sinks > 0 ? device_copy(f->sink_q) : NULL, &f->cache, 1, c.n_heads};
    std::vector<float> slopes(c.n_heads);
    for (int head = 0; head < c.n_heads; head++) {
        slopes[head] = (float)ldexp(c.slope, -head);
    }
    f->attention.slopes = c.slope > 0 ? device_copy(slopes) : NULL;
    f->expected.assign(n, 0.0);
    for (int token = 0; token < c.n; token++) {
        for (int head = 0; head < c.n_heads; head++) {
            expect_head(f, token, head);
        }
    }
}

static inline void attention_close(struct attention_fixture *f)
{
    cudaFree(f->cache.keys);
    if (!f->c.latent) {
        cudaFree(f->cache.values);
    }
    cudaFree(f->cache.key_scales);
    cudaFree(f->cache.value_scales);
    cudaFree(f->step);
    cudaFree(f->texts);
    cudaFree(const_cast<float *>(f->attention.q));
    cudaFree(const_cast<float *>(f->attention.sink_q));
    cudaFree(const_cast<float *>(f->attention.slopes));
}

static inline void assert_attended(const struct attention_fixture *f, const float *attended, double tolerance, const char *what)
{
    const std::vector<float> found = host_copy(attended, f->expected.size());
    const int row = f->c.head_dim;
    for (size_t i = 0; i < found.size(); i++) {
        assert_near(found[i], f->expected[i], tolerance, what, (int)(i / row), (int)(i % row));
    }
}
