// What the attention methods on the GPU share, without a method: weights against double, selection against the CPU's own,
// attention to selected rows and the running sums of values against double.
#include "selective_testing.h"

enum scores { PLAIN, TIED, EQUAL, CLUSTERED, ODD, FLAT, WIDE, LONELY }; // how they are distributed

struct selection_case {
    int n_heads, n_kv_heads;
    int context, window, n_sinks, chunk;
    int64_t position;
    struct choice choice;
    enum scores scores;
    bool drawn = false;
};

static struct attention_case cache_of(const struct selection_case &c, int head_dim, yalm_kv type)
{
    return {type, c.n_heads, c.n_kv_heads, head_dim, c.context, c.window, c.n_sinks, c.chunk, c.position, 1, 2.0};
}

static float next_score(enum scores scores, uint64_t *seed, int slot)
{
    const double x = uniform(seed);
    return (float)(scores == PLAIN       ? 6 * x
                   : scores == TIED      ? floor(4 * x)
                   : scores == EQUAL     ? 0.25
                   : scores == FLAT      ? 0.01 * x // weights within a few fine digits
                   : scores == WIDE      ? 40 * x   // the k-th far from the mean: coarse digits, above it and below
                   : scores == LONELY    ? (slot % 100 == 37 ? 0
                                            : x > 0.4        ? -86.0
                                                             : -140)          // most weights are 0
                   : scores == CLUSTERED ? (slot % 3 == 0 ? 3 + x : x) // every third one: what a sample takes for the whole
                                         : (slot % 17 == 3   ? -INFINITY
                                            : slot % 13 == 5 ? -200.0
                                                             : 8 * x));
}

// Uploads scores and the parts' statistics as a method leaves them; returns them by (head, slot). Slots that are not seen get
// -inf.
static std::vector<float> put_scores(struct selective_fixture *f, const std::vector<int> &slots, enum scores scores,
                                     std::vector<float> *sinks)
{
    const struct cuda_selective *t = &f->method.selective;
    const int n_heads = f->config.n_heads, n_sinks = f->s.caches[0].policy.n_sinks;
    uint64_t seed = 7 + slots.size();
    std::vector<float> x((size_t)n_heads * t->ld, -INFINITY);
    std::vector<float2> stats((size_t)n_heads * t->n_parts, make_float2(-INFINITY, 0));
    for (int h = 0; h < n_heads; h++) {
        for (int slot : slots)
            x[(size_t)h * t->ld + slot] = next_score(scores, &seed, slot);
        for (int p = 0; p < t->n_parts; p++) {
            const float *part = x.data() + (size_t)h * t->ld + p * PART_KEYS;
            const float max = *std::max_element(part, part + PART_KEYS);
            double sum = 0;
            for (int j = 0; max > -INFINITY && j < PART_KEYS; j++)
                sum += exp((double)part[j] - max);
            stats[h * t->n_parts + p] = make_float2(max, (float)sum);
        }
    }
    *sinks = random_floats(&seed, (size_t)n_heads * n_sinks, 4);
    assert_cuda(cudaMemcpy(t->scores, x.data(), x.size() * sizeof x[0], cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy(t->part_stats, stats.data(), stats.size() * sizeof stats[0], cudaMemcpyHostToDevice));
    if (n_sinks > 0)
        assert_cuda(cudaMemcpy(t->sink_scores, sinks->data(), sinks->size() * sizeof(float), cudaMemcpyHostToDevice));
    return x;
}

// max and Σ e^(x - max) of a head, the sinks apart included.
static void softmax_of(const float *x, const std::vector<int> &slots, const float *sinks, int n_apart, double *max, double *sum)
{
    *max = -INFINITY;
    *sum = 0;
    for (int slot : slots)
        *max = fmax(*max, x[slot]);
    for (int i = 0; i < n_apart; i++)
        *max = fmax(*max, sinks[i]);
    for (int slot : slots)
        *sum += exp(x[slot] - *max);
    for (int i = 0; i < n_apart; i++)
        *sum += exp(sinks[i] - *max);
}

static void check_selection(const struct selection_case &c)
{
    char what[160];
    snprintf(what, sizeof what, "%d heads, %d kv heads, context %d, window %d, sinks %d, position %d, k %d, scores %d%s",
             c.n_heads, c.n_kv_heads, c.context, c.window, c.n_sinks, (int)c.position, c.choice.k, (int)c.scores,
             c.drawn ? ", drawn" : "");
    struct attention_fixture a = {};
    a.c = cache_of(c, 2, YALM_KV_FP32);
    a.cache.n_layers = 1;
    a.cache.n_kv_heads = c.n_kv_heads;
    a.cache.head_dim = 2;
    a.cache.policy = kv_policy_make(c.context, c.window, c.n_sinks > 0, c.n_sinks, c.chunk);
    a.step = device_copy(std::vector<struct evaluation>(1));
    a.attention = {a.step, NULL, NULL, &a.cache, 0, c.n_heads};
    write_step(&a, c.position, 1, c.choice);
    struct selective_fixture f;
    selective_begin_fixture(&f, &a, false, c.drawn);
    selective_take(&f, NULL);
    const struct kv_policy *policy = &a.cache.policy;
    const std::vector<int> slots = slots_by_age(policy, c.position);
    const int group = c.n_heads / c.n_kv_heads, ld = f.method.selective.ld;
    const int n_apart = kv_sinks_apart(policy, c.position) ? policy->n_sinks : 0;
    std::vector<float> sinks;
    const std::vector<float> x = put_scores(&f, slots, c.scores, &sinks);
    for (int repeat = 0; repeat < 2; repeat++) { // the second finds the first one's tickets
        assert_ok(selective_select(&f.s, &a.attention, &f.error), f.error);
        assert_cuda(cudaDeviceSynchronize());
    }
    const std::vector<float> weights = host_copy(f.method.selective.weights, (size_t)c.n_kv_heads * ld);
    const std::vector<int> rows = host_copy(f.method.selective.rows, (size_t)c.n_kv_heads * ld);
    const std::vector<int> n_rows = host_copy(f.method.selective.n_rows, c.n_kv_heads);
    const std::vector<float> bias = host_copy(f.method.selective.candidates, (size_t)c.n_kv_heads * ld);
    std::vector<float> lifts(slots.size() + PRIORITY_PHASES);
    priority_lifts(lifts.data(), (int)slots.size(), false);
    for (int h = 0; h < c.n_kv_heads; h++) {
        const float *lift = c.drawn ? lifts.data() + priority_phase(h) : NULL;
        std::vector<double> expected(slots.size());
        for (int i = 0; i < group; i++) {
            const size_t head = (size_t)h * group + i;
            const float *of_sinks = sinks.data() + head * policy->n_sinks;
            double max, sum;
            softmax_of(x.data() + head * ld, slots, of_sinks, n_apart, &max, &sum);
            for (size_t j = 0; j < slots.size(); j++)
                expected[j] += exp(x[head * ld + slots[j]] - max) / sum;
        }
        std::vector<float> by_age(slots.size());
        for (size_t j = 0; j < slots.size(); j++) {
            by_age[j] = weights[(size_t)h * ld + slots[j]];
            const double by = lift ? (double)lift[j] : 1;
            assert_near(by_age[j], expected[j] * by, (4e-6 * expected[j] + 1e-36) * by, what, h, (int)j);
        }
        const struct cpu_selection selection = cpu_selection(by_age, c.choice, lift);
        std::vector<std::pair<int, float>> wanted;
        for (size_t j = 0; j < selection.rows.size(); j++)
            wanted.push_back({slots[selection.rows[j]], selection.bias[j]});
        std::sort(wanted.begin(), wanted.end());
        assert_int_equal(n_rows[h], wanted.size());
        for (size_t j = 0; j < wanted.size(); j++) {
            if (rows[(size_t)h * ld + j] != wanted[j].first)
                fail_msg("%s: row %d of kv head %d: found %d, expected %d", what, (int)j, h, rows[(size_t)h * ld + j],
                         wanted[j].first);
            if (c.drawn)
                assert_near(bias[(size_t)h * ld + j], wanted[j].second, 2e-6 * (1 + wanted[j].second), what, h, (int)j);
        }
    }
    selective_end(&f);
    cudaFree(a.step);
}

static void selects_as_the_cpu(void **)
{
    static const int ks[] = {1, 2, 7, 64, 500};
    for (int k : ks) {
        for (enum scores scores : {PLAIN, TIED, EQUAL, ODD}) {
            check_selection({4, 2, 600, 0, 0, 8, 410, choice_of(k, 2, k / 4), scores});
            check_selection({2, 2, 600, 0, 0, 8, 300, choice_of(k, 0, k / 2), scores});
        }
    }
    check_selection({5, 1, 5000, 0, 0, 8, 4500, choice_of(300, 2, 75), TIED}); // several parts
    check_selection({2, 1, 16, 0, 0, 8, 0, choice_of(8, 2, 2), PLAIN});        // the first token
}

static void selects_past_the_ring(void **)
{
    for (int position : {10, 16, 17, 40, 41, 57, 1000, 100003}) {
        check_selection({4, 2, 40, 0, 4, 8, position, choice_of(9, 2, 3), PLAIN});
        check_selection({4, 2, 4096, 17, 0, 9, position % 4096, choice_of(6, 1, 2), PLAIN});
    }
    check_selection({2, 1, 2500, 0, 4, 300, 5303, choice_of(100, 2, 25), PLAIN}); // parts whose keys the token does not see
}

// Few candidates, or so many that a block's do not fit where they are kept before they go to the list, from several parts at a
// time.
static void selects_from_many(void **)
{
    for (enum scores scores : {PLAIN, TIED, EQUAL, CLUSTERED, FLAT, WIDE, LONELY})
        for (int k : {12, 800, 5000})
            check_selection({2, 1, 10240, 0, 0, 8, 9999, choice_of(k, 2, k / 4), scores});
    check_selection({32, 32, 10240, 0, 0, 8, 10200, choice_of(700, 0, 10), EQUAL}); // a block has several parts
}

// By priority: several parts and heads of a group, a ring, all keys, none but those that always belong, most weights 0, equal
// ones.
static void draws_as_the_cpu(void **)
{
    for (enum scores scores : {PLAIN, TIED, EQUAL, ODD, FLAT, WIDE, LONELY})
        for (int k : {3, 64, 800}) {
            check_selection({2, 1, 10240, 0, 0, 8, 9999, choice_of(k, 2, k / 4), scores, true});
            check_selection({2, 2, 600, 0, 0, 8, 410, choice_of(k, 2, k / 4), scores, true});
        }
    for (int position : {10, 41, 1000, 100003})
        check_selection({4, 2, 40, 0, 4, 8, position, choice_of(9, 2, 3), PLAIN, true});
    check_selection({4, 2, 4096, 17, 0, 9, 1000, choice_of(6, 1, 2), PLAIN, true});
    check_selection({2, 1, 600, 0, 0, 8, 410, choice_of(5, 2, 3), PLAIN, true});
    check_selection({2, 1, 600, 0, 0, 8, 410, choice_of(410, 2, 3), PLAIN, true}); // all but one
}

// The k-th at every digit that there is: one key an octave and less, from far above the mean to 0.
static void finds_every_digit(void **)
{
    for (int k = 1; k <= 2000; k += k < 40 ? 1 : 173)
        check_selection({1, 1, 2048, 0, 0, 8, 2000, choice_of(k, 0, 0), WIDE});
}

// ------------------------------------------------------------------------------------------ attention to rows

// Expected output of a query head over the rows and the sinks apart; with a tail, mixed with the mean of all values. bias: of
// the rows; NULL: none.
static std::vector<double> expect_rows(const struct attention_fixture *a, int head, const std::vector<int> &rows,
                                       const float *bias, int n_apart, double alpha, const std::vector<int> &seen)
{
    const int d = a->c.head_dim, kv_head = head / (a->c.n_heads / a->c.n_kv_heads);
    const size_t base = (size_t)kv_head * a->cache.policy.capacity * d;
    std::vector<double> y(d), scores;
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < n_apart + rows.size(); j++) {
        const bool sink = (int)j < n_apart;
        const float *q = (sink ? a->sink_q : a->q).data() + (size_t)head * d;
        const float *k = a->keys.data() + base + (size_t)(sink ? (int)j : rows[j - n_apart]) * d;
        double score = bias && !sink ? (double)bias[j - n_apart] : 0;
        for (int c = 0; c < d; c++)
            score += (double)q[c] * k[c];
        scores.push_back(score);
        max = fmax(max, score);
    }
    for (size_t j = 0; j < scores.size(); j++) {
        const double p = exp(scores[j] - max);
        sum += p;
        for (int c = 0; c < d; c++)
            y[c] += p * a->values[base + (size_t)((int)j < n_apart ? (int)j : rows[j - n_apart]) * d + c];
    }
    for (int c = 0; c < d; c++) {
        double mean = 0;
        for (int slot : seen)
            mean += a->values[base + (size_t)slot * d + c];
        y[c] = alpha * y[c] / sum + (1 - alpha) * mean / (double)seen.size();
    }
    return y;
}

static void check_gather(const struct selection_case &c, int head_dim, yalm_kv type, bool tail, bool all)
{
    struct attention_fixture a;
    attention_open(&a, cache_of(c, head_dim, type), (uint64_t)c.position + head_dim);
    write_step(&a, c.position, 1, c.choice);
    struct selective_fixture f;
    selective_begin_fixture(&f, &a, tail, c.drawn);
    selective_take(&f, NULL);
    int n_apart;
    const std::vector<int> seen = visible_slots(&a.cache.policy, c.position, &n_apart),
                           slots = slots_by_age(&a.cache.policy, c.position);
    std::vector<float> sinks;
    const std::vector<float> x = put_scores(&f, slots, PLAIN, &sinks);
    const int ld = f.method.selective.ld, group = c.n_heads / c.n_kv_heads;
    // Layer 0's values are NaN, and so its sums: nothing here looks at them.
    assert_ok(method_begin(&f.s, true, &f.error), f.error);
    assert_ok(selective_select(&f.s, &a.attention, &f.error), f.error);
    float *attended = device_nan<float>(a.expected.size());
    assert_ok(selective_gather(&f.s, &a.attention, attended, &f.error), f.error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<int> rows = host_copy(f.method.selective.rows, (size_t)c.n_kv_heads * ld);
    const std::vector<int> n_rows = host_copy(f.method.selective.n_rows, c.n_kv_heads);
    const std::vector<float> bias = host_copy(f.method.selective.candidates, (size_t)c.n_kv_heads * ld);
    std::vector<double> expected;
    for (int h = 0; h < c.n_heads; h++) {
        const size_t at = (size_t)(h / group) * ld;
        const std::vector<int> own(rows.begin() + at, rows.begin() + at + n_rows[h / group]);
        double alpha = 1, max, sum;
        if (tail) {
            const float *of_sinks = sinks.data() + (size_t)h * a.cache.policy.n_sinks;
            softmax_of(x.data() + (size_t)h * ld, slots, of_sinks, n_apart, &max, &sum);
            alpha = 0;
            for (int slot : own)
                alpha += exp(x[(size_t)h * ld + slot] - max) / sum;
            for (int i = 0; i < n_apart; i++)
                alpha += exp(of_sinks[i] - max) / sum;
        }
        const std::vector<double> y = expect_rows(&a, h, own, c.drawn ? bias.data() + at : NULL, n_apart, alpha, seen);
        expected.insert(expected.end(), y.begin(), y.end());
    }
    if (!all) // else the dense attention that the fixture expects
        a.expected = expected;
    assert_attended(&a, attended, type == YALM_KV_FP32 ? 6e-6 : type == YALM_KV_FP16 ? 1.2e-5 : 3e-5, "attended");
    cudaFree(attended);
    selective_end(&f);
    attention_close(&a);
}

static void gathers(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8}) {
        for (bool tail : {false, true}) {
            check_gather({4, 2, 600, 0, 0, 8, 410, choice_of(50, 2, 10), PLAIN}, 64, type, tail, false);
            check_gather({2, 2, 600, 0, 0, 8, 299, choice_of(3, 0, 1), PLAIN}, 80, type, tail, false);
            check_gather({9, 1, 600, 0, 0, 8, 410, choice_of(200, 2, 10), PLAIN}, 128, type, tail, false);
            check_gather({3, 1, 600, 0, 0, 8, 410, choice_of(40, 2, 10), PLAIN}, 256, type, tail, false);
            check_gather({4, 2, 40, 0, 4, 8, 100, choice_of(9, 2, 3), PLAIN}, 64, type, tail,
                         false); // sinks apart, in the ring
            check_gather({4, 2, 4096, 17, 0, 9, 1000, choice_of(6, 1, 2), PLAIN}, 18, type, tail, false);
            check_gather({4, 2, 600, 0, 0, 8, 0, choice_of(6, 1, 2), PLAIN}, 64, type, tail, false); // the first token
        }
    }
}

// What drawn rows stand for, in each instance; sinks stand for themselves alone.
static void gathers_what_is_drawn(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8}) {
        for (int head_dim : {64, 80, 96, 128, 256})
            check_gather({4, 2, 600, 0, 0, 8, 410, choice_of(90, 2, 10), PLAIN, true}, head_dim, type, false, false);
        check_gather({9, 1, 600, 0, 0, 8, 410, choice_of(200, 2, 10), PLAIN, true}, 128, type, false, false);
        check_gather({9, 1, 600, 0, 0, 8, 410, choice_of(77, 2, 10), PLAIN, true}, 64, type, false, false);
        check_gather({4, 2, 40, 0, 4, 8, 100, choice_of(9, 2, 3), PLAIN, true}, 64, type, false, false);
        check_gather({4, 2, 600, 0, 0, 8, 410, choice_of(600, 2, 10), PLAIN, true}, 64, type, false, true); // dense
    }
}

// With all keys selected it is dense attention; α is 1, so the tail changes nothing.
static void all_rows_are_dense(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8}) {
        for (bool tail : {false, true}) {
            check_gather({4, 2, 600, 0, 0, 8, 410, choice_of(600, 2, 10), PLAIN}, 64, type, tail, true);
            check_gather({4, 2, 40, 0, 4, 8, 100, choice_of(40, 0, 0), PLAIN}, 64, type, tail, true);
        }
    }
}

// ------------------------------------------------------------------------------------------ running sums

// Of all layers' heads: values (heads, capacity, head_dim).
static void expect_sums(const struct selective_fixture *f, const std::vector<float> &values, int64_t position)
{
    const struct kv_policy *policy = &f->s.caches[0].policy;
    const int d = f->config.head_dim, n = f->config.n_layers * f->config.n_kv_heads * d;
    const std::vector<double> found = host_copy(f->method.selective.sums, n);
    for (int i = 0; i < n; i++) {
        const float *head = values.data() + (size_t)(i / d) * policy->capacity * d;
        double expected = 0;
        for (int64_t p = kv_first_visible(policy, position); p < position; p++)
            expected += rint((double)head[kv_slot(policy, p) * d + i % d] * 0x1p24) * 0x1p-24;
        if (found[i] != expected)
            fail_msg("context %d, span %d, sinks %d, position %d, sum %d: found %.17g, expected %.17g", policy->context,
                     policy->span, policy->n_sinks, (int)position, i, found[i], expected);
    }
}

static void append_values(const struct attention_fixture *a, std::vector<float> *values, uint64_t *seed, int64_t position,
                          int n)
{
    const struct kv_policy *policy = &a->cache.policy;
    const int d = a->cache.head_dim, width = a->cache.n_layers * a->cache.n_kv_heads * d;
    for (int64_t p = position; p < position + n; p++)
        for (int i = 0; i < width; i++)
            (*values)[((size_t)(i / d) * policy->capacity + kv_slot(policy, p)) * d + i % d] = (float)uniform(seed);
    if (a->cache.type == YALM_KV_FP32) {
        assert_cuda(cudaMemcpy(a->cache.values, values->data(), values->size() * 4, cudaMemcpyHostToDevice));
        return;
    }
    const std::vector<uint16_t> halves = to_halves(values);
    assert_cuda(cudaMemcpy(a->cache.values, halves.data(), halves.size() * 2, cudaMemcpyHostToDevice));
}

// A text that is appended, one by one or in pieces, and rolled back: sums over what a token sees, of both layers, equal the
// plain sum to the bit.
static void check_sums(int context, int window, int n_sinks, int chunk, yalm_kv type)
{
    struct attention_fixture a = {};
    const int d = 6, heads = 4; // of both layers
    a.c = {type, 2, 2, d, context, window, n_sinks, chunk, 0, 1, 1.0};
    a.cache.type = type;
    a.cache.n_layers = 2;
    a.cache.n_kv_heads = 2;
    a.cache.head_dim = d;
    a.cache.policy = kv_policy_make(context, window, n_sinks > 0, n_sinks, chunk);
    a.step = device_copy(std::vector<struct evaluation>(1));
    const struct kv_policy *policy = &a.cache.policy;
    std::vector<float> values((size_t)heads * policy->capacity * d, NAN);
    const size_t element = type == YALM_KV_FP32 ? 4 : 2;
    a.cache.values = device_nan<char>(values.size() * element);
    struct selective_fixture f;
    selective_begin_fixture(&f, &a, true);
    selective_take(&f, NULL);
    uint64_t seed = 3;
    int64_t high_water = 0;
    // position, tokens; 0: one that is dense, while a single one attends by the method
    static const int batches[][2] = {{0, 5},  {5, 1},  {6, 1},  {7, 3},  {10, 1}, {8, 1},  {9, 1},  {10, 0}, {11, 1}, {12, 8},
                                     {20, 1}, {15, 1}, {16, 0}, {17, 1}, {18, 8}, {26, 8}, {34, 1}, {35, 1}, {33, 1}, {34, 1}};
    for (const auto &batch : batches) {
        const int64_t end = batch[0] + (batch[1] ? batch[1] : 1);
        if ((!policy->endless && end > context) || !kv_holds(policy, batch[0], high_water))
            continue;
        for (int64_t position = batch[0], n; position < end; position += n) {
            n = std::min<int64_t>(end - position, chunk);
            write_step(&a, position, (int)n, choice_of(1, 0, 0));
            assert_ok(method_begin(&f.s, batch[1] == 1, &f.error), f.error);
            assert_cuda(cudaDeviceSynchronize());
            if (batch[1] == 1)
                expect_sums(&f, values, position);
            append_values(&a, &values, &seed, position, (int)n);
            high_water = std::max(high_water, position + n);
        }
    }
    selective_end(&f);
    cudaFree(a.cache.values);
    cudaFree(a.step);
}

static void sums_follow(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32}) {
        check_sums(64, 0, 0, 8, type);
        check_sums(64, 7, 0, 8, type);
        check_sums(64, 7, 0, 1, type); // the ring has what is seen, and no more
        check_sums(12, 0, 3, 8, type); // sinks
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selects_as_the_cpu),    cmocka_unit_test(selects_past_the_ring), cmocka_unit_test(selects_from_many),
        cmocka_unit_test(draws_as_the_cpu),      cmocka_unit_test(finds_every_digit),     cmocka_unit_test(gathers),
        cmocka_unit_test(gathers_what_is_drawn), cmocka_unit_test(all_rows_are_dense),    cmocka_unit_test(sums_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
