// Scratch of the attention methods that select keys, and what is expected of selection: by the CPU's own code
// (cpu/long/select.c), from the same weights.
#pragma once
#include "attention_testing.h"
#include "cuda/long/method.h"

extern "C" {
#include "cpu/long/priority.h"
}

// A session's state as far as methods look at it. Its blocks are freed by selective_end().
struct selective_fixture {
    struct model_config config;
    struct cuda_state s;
    struct cuda_method method; // s.method
    yalm_error error;
};

static inline void selective_begin_fixture(struct selective_fixture *f, const struct attention_fixture *a, bool tail,
                                           bool drawn = false)
{
    *f = {};
    f->config.n_layers = a->cache.n_layers;
    f->config.n_heads = a->c.n_heads;
    f->config.n_kv_heads = a->c.n_kv_heads;
    f->config.head_dim = a->c.head_dim;
    f->s.config = &f->config;
    f->s.caches[0] = a->cache;
    f->s.step = a->step;
    f->s.attention_plans[0] = attention_decode_plan(&f->s.caches[0], a->c.n_heads, 4);
    f->s.device.n_sms = 1; // few blocks, so that they have several parts each
    f->s.method = &f->method;
    selective_plan(&f->s);
    f->method.selective.tail = tail;
    f->method.selective.drawn = drawn;
    f->s.blocks.taking = true;
    f->s.blocks.error = &f->error;
}

// Memory: of `method` too, which has been planned, unless NULL. Everything that is not to be 0 is NaN.
static inline void selective_take(struct selective_fixture *f, const struct cuda_method_table *method)
{
    struct cuda_blocks *b = &f->s.blocks;
    selective_take_kept(&f->s, b);
    selective_take_scratch(&f->s, b);
    take(b, f->s.attention_scratch, f->s.attention_plans[0].scratch_bytes, 1);
    if (method) {
        method->take_kept(&f->s, b);
        method->take_scratch(&f->s, b);
    }
    assert_ok(b->status, f->error);
    assert_cuda(cudaMemset(f->s.attention_scratch, 0, f->s.attention_plans[0].scratch_bytes));
    assert_ok(selective_open(&f->s, &f->error), f->error);
    if (method && method->open)
        assert_ok(method->open(&f->s, NULL, &f->error), f->error);
}

static inline void selective_end(struct selective_fixture *f)
{
    assert_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < f->s.blocks.n; i++)
        cudaFree(f->s.blocks.taken[i]);
}

static inline void write_step(const struct attention_fixture *a, int64_t position, int n, const struct choice &choice)
{
    struct evaluation step = {position, n, 0};
    step.choice = choice;
    assert_cuda(cudaMemcpy(a->step, &step, sizeof step, cudaMemcpyHostToDevice));
}

static inline struct choice choice_of(int k, int first, int local)
{
    struct choice c = {};
    c.k = k;
    c.first = first;
    c.local = local;
    return c;
}

// The slots of the keys that the token at `position` selects from, oldest first.
static inline std::vector<int> slots_by_age(const struct kv_policy *policy, int64_t position)
{
    std::vector<int> slots;
    for (int64_t p = kv_first_visible(policy, position); p <= position; p++)
        slots.push_back(kv_slot(policy, p));
    return slots;
}

// cpu/long/select.c's kernels, plainly.
static inline int count_from(const float *x, int n, float least)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += x[i] >= least;
    return count;
}

static inline int collect_from(int *indices, float *values, const float *x, int first, int last, float least)
{
    int n = 0;
    for (int i = first; i < last; i++) {
        indices[n] = i;
        values[n] = x[i];
        n += x[i] >= least;
    }
    return n;
}

static inline int keep_from(int *indices, float *values, int n, float least)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const float x = values[i];
        indices[kept] = indices[i];
        values[kept] = x;
        kept += x >= least;
    }
    return kept;
}

static inline void range_of(const float *x, int n, float *least, float *largest)
{
    *least = INFINITY;
    *largest = -INFINITY;
    for (int i = 0; i < n; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *largest = x[i] > *largest ? x[i] : *largest;
    }
}

// What the CPU selects: numbers, and what is added to their scores.
struct cpu_selection {
    std::vector<int> rows;
    std::vector<float> bias;
};

// x: (n) weights by age; where keys are drawn by lifts (n), priorities. lifts NULL: the best.
static inline struct cpu_selection cpu_selection(const std::vector<float> &x, const struct choice &c, const float *lifts)
{
    struct sparse_kernels kernels = {};
    kernels.count_from = count_from;
    kernels.collect = collect_from;
    kernels.keep = keep_from;
    kernels.range = range_of;
    const int n = (int)x.size(), k = std::min(c.k, n), local = std::min(c.local, k), first = std::min(c.first, k - local);
    const bool drawn = lifts && k > first + local && k < n;
    std::vector<int> indices(n + 16);
    std::vector<float> values(n + 16), bias(n);
    struct candidates chosen = {indices.data(), values.data(), 0};
    chosen.n = select_top(&kernels, indices.data(), values.data(), x.data(), first, n - local, k - first - local + drawn);
    if (drawn)
        priority_biases(bias.data(), &chosen, priority_take(&chosen), lifts, false);
    struct cpu_selection s;
    for (int i = 0; i < first; i++)
        s.rows.push_back(i);
    s.rows.insert(s.rows.end(), indices.begin(), indices.begin() + chosen.n);
    for (int i = n - local; i < n; i++)
        s.rows.push_back(i);
    s.bias.assign(s.rows.size(), 0.0f);
    std::copy(bias.begin(), bias.begin() + chosen.n, s.bias.begin() + first);
    return s;
}
