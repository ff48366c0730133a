// SparQ on the GPU: the second copy of the keys, the queries' largest components, and the approximate scores, against double;
// and all of a layer's steps.
#include "selective_testing.h"
#include "settings_testing.h"

struct sparq_case {
    struct attention_case cache;
    enum sparq_copy copy;
    int r;
};

struct sparq_fixture {
    struct attention_fixture a;
    struct selective_fixture f;
    yalm_session_options options;
};

// A session whose cache is full of keys: the copy is made by append() in pieces of `chunk`, the newest key's by prepare().
static void sparq_open_fixture(struct sparq_fixture *x, const struct sparq_case &c, int k, bool tail)
{
    attention_open(&x->a, c.cache, (uint64_t)c.cache.position * 7 + c.r);
    selective_begin_fixture(&x->f, &x->a, tail);
    x->options = {};
    struct settings settings = {};
    settings.sparq.r = c.r;
    settings.sparq.k = k;
    settings.sparq.from = 1;
    settings.sparq.copy = c.copy;
    settings.sparq.tail = tail ? SWITCH_ON : SWITCH_OFF;
    settings_use(&x->options, &settings);
    struct backend_plan plan = {};
    plan.options = &x->options;
    x->f.method.table = &method_sparq;
    assert_ok(method_sparq.check(&x->f.config, &x->options, &x->f.error), x->f.error);
    assert_ok(method_sparq.plan(&x->f.s, &plan, &x->f.error), x->f.error);
    selective_take(&x->f, &method_sparq);
    const struct kv_policy *policy = &x->a.cache.policy;
    int64_t from = kv_first_visible(policy, c.cache.position);
    if (kv_sinks_apart(policy, c.cache.position)) // theirs are never read, but appended all the same
        write_step(&x->a, 0, policy->n_sinks, choice_of(0, 0, 0)),
            assert_ok(method_sparq.append(&x->f.s, &x->a.attention, policy->n_sinks, &x->f.error), x->f.error);
    for (int n; from < c.cache.position; from += n) {
        n = (int)std::min<int64_t>(c.cache.position - from, c.cache.chunk);
        write_step(&x->a, from, n, choice_of(0, 0, 0));
        assert_ok(method_sparq.append(&x->f.s, &x->a.attention, n, &x->f.error), x->f.error);
        assert_cuda(cudaDeviceSynchronize());
    }
    write_step(&x->a, c.cache.position, 1, method_sparq.choice(&x->f.s, selective_n_keys(policy, c.cache.position)));
}

static void sparq_close_fixture(struct sparq_fixture *x)
{
    selective_end(&x->f);
    attention_close(&x->a);
}

// The number that an int8 or q4 copy has for a slot's component; layer 1's. q4: of 256 slots each byte has two, 128 apart.
static int copied_number(const struct sparq_fixture *x, const std::vector<char> &copy, int kv_head, int component, int slot)
{
    const size_t run = ((size_t)kv_head * x->a.c.head_dim + component) * x->f.method.sparq.stride;
    if (x->f.method.sparq.copy == SPARQ_COPY_INT8)
        return (int8_t)copy[run + slot];
    const uint8_t both = (uint8_t)copy[run + slot / 256 * 128 + slot % 128];
    return (slot % 256 < 128 ? both & 15 : both >> 4) - 8;
}

// Its element, as it goes into scores.
static double copied(const struct sparq_fixture *x, const std::vector<char> &copy, const std::vector<float> &scales,
                     int kv_head, int component, int slot)
{
    const size_t ld = x->f.method.selective.ld;
    if (x->f.method.sparq.copy != SPARQ_COPY_FP16)
        return copied_number(x, copy, kv_head, component, slot) * (double)scales[kv_head * ld + slot];
    half element;
    memcpy(&element, copy.data() + (((size_t)kv_head * x->a.c.head_dim + component) * ld + slot) * sizeof element,
           sizeof element);
    return __half2float(element);
}

struct copies {
    std::vector<char> elements;
    std::vector<float> scales;
};

static struct copies fetch_copies(const struct sparq_fixture *x)
{
    const struct cuda_sparq *p = &x->f.method.sparq;
    const size_t heads = x->a.c.n_kv_heads, bytes = heads * x->a.c.head_dim * p->stride;
    struct copies c;
    c.elements = host_copy(p->copied + bytes, bytes); // of layer 1
    if (p->scales)
        c.scales = host_copy(p->scales + heads * x->f.method.selective.ld, heads * x->f.method.selective.ld);
    return c;
}

// 4 bits as the CPU rounds them (to_q4, cpu/long/sparq.c), to the bit.
static void expect_q4(const struct sparq_fixture *x, const struct copies &copies, int kv_head, int slot, const float *key)
{
    const int d = x->a.c.head_dim;
    float largest = 0;
    for (int c = 0; c < d; c++)
        largest = fmaxf(largest, fabsf(key[c]));
    const float scale = largest / 7;
    assert_true(copies.scales[(size_t)kv_head * x->f.method.selective.ld + slot] == scale);
    for (int c = 0; c < d; c++) {
        const float quotient = key[c] / scale;
        assert_int_equal(copied_number(x, copies.elements, kv_head, c, slot),
                         scale >= 0x1p-126f && isfinite(quotient) ? lrintf(quotient) : 0);
    }
}

static void expect_copy(const struct sparq_fixture *x, const struct copies &copies, const std::vector<int> &slots,
                        const char *what)
{
    const int d = x->a.c.head_dim;
    for (int h = 0; h < x->a.c.n_kv_heads; h++)
        for (int slot : slots) {
            const float *key = x->a.keys.data() + ((size_t)h * x->a.cache.policy.capacity + slot) * d;
            if (x->f.method.sparq.copy == SPARQ_COPY_Q4) {
                expect_q4(x, copies, h, slot, key);
                continue;
            }
            double largest = 0;
            for (int c = 0; c < d; c++)
                largest = fmax(largest, fabs(key[c]));
            const double error = x->f.method.sparq.copy == SPARQ_COPY_INT8 ? largest / 127 * 0.5001 : largest * 0x1p-11;
            for (int c = 0; c < d; c++)
                assert_near(copied(x, copies.elements, copies.scales, h, c, slot), key[c], error, what, slot, c);
        }
}

// The group's largest components, ascending, as a sort finds them.
static std::vector<int> expect_components(const struct sparq_fixture *x, int kv_head)
{
    const int d = x->a.c.head_dim, group = x->a.c.n_heads / x->a.c.n_kv_heads;
    std::vector<float> sums(d);
    std::vector<int> order;
    for (int c = 0; c < d; c++) {
        for (int i = 0; i < group; i++)
            sums[c] += fabsf(x->a.q[((size_t)kv_head * group + i) * d + c]);
        order.push_back(c);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return sums[a] > sums[b]; });
    order.resize(x->f.method.sparq.r);
    std::sort(order.begin(), order.end());
    return order;
}

static void check_scores(const struct sparq_case &c)
{
    char what[160];
    snprintf(what, sizeof what,
             "%d heads, %d kv heads, head_dim %d, r %d, copy %d, context %d, window %d, sinks %d, position %d", c.cache.n_heads,
             c.cache.n_kv_heads, c.cache.head_dim, c.r, (int)c.copy, c.cache.context, c.cache.window, c.cache.n_sinks,
             (int)c.cache.position);
    static struct sparq_fixture x;
    sparq_open_fixture(&x, c, 8, false);
    assert_ok(method_sparq.prepare(&x.f.s, &x.a.attention, &x.f.error), x.f.error);
    assert_ok(method_sparq.score(&x.f.s, &x.a.attention, &x.f.error), x.f.error);
    assert_cuda(cudaDeviceSynchronize());
    const struct cuda_selective *t = &x.f.method.selective;
    const struct kv_policy *policy = &x.a.cache.policy;
    const std::vector<int> slots = slots_by_age(policy, c.cache.position);
    const struct copies copies = fetch_copies(&x);
    expect_copy(&x, copies, slots, what);
    const int d = c.cache.head_dim, group = c.cache.n_heads / c.cache.n_kv_heads;
    const std::vector<float> scores = host_copy(t->scores, (size_t)c.cache.n_heads * t->ld);
    const std::vector<float2> stats = host_copy(t->part_stats, (size_t)c.cache.n_heads * t->n_parts);
    const std::vector<int> components = host_copy(x.f.method.sparq.components, (size_t)c.cache.n_kv_heads * c.r);
    for (int head = 0; head < c.cache.n_heads; head++) {
        const int kv_head = head / group;
        const std::vector<int> chosen = expect_components(&x, kv_head);
        const float *q = x.a.q.data() + (size_t)head * d;
        double all = 0, part = 0, max = -INFINITY, sum = 0;
        for (int i = 0; i < d; i++)
            all += fabs(q[i]);
        for (int i = 0; i < c.r; i++) {
            assert_int_equal(components[kv_head * c.r + i], chosen[i]);
            part += fabs(q[chosen[i]]);
        }
        std::vector<bool> seen(t->ld);
        for (int slot : slots) {
            double expected = 0, magnitude = 0;
            for (int i : chosen) {
                const double term = sqrt(all / part) * q[i] * copied(&x, copies.elements, copies.scales, kv_head, i, slot);
                expected += term;
                magnitude += fabs(term);
            }
            seen[slot] = true;
            const float found = scores[(size_t)head * t->ld + slot];
            assert_near(found, expected, 1e-6 * magnitude, what, head, slot);
            max = fmax(max, found);
        }
        for (int slot : slots)
            sum += exp(scores[(size_t)head * t->ld + slot] - max);
        double merged = 0;
        for (int p = 0; p < t->n_parts; p++)
            merged += stats[head * t->n_parts + p].y * exp(stats[head * t->n_parts + p].x - max);
        assert_near(merged, sum, 2e-6 * sum, what, head, -1);
        for (int slot : slots) { // in every part that has visible keys, all others count nothing
            const int first = slot / PART_KEYS * PART_KEYS;
            for (int j = first; slot == slots.back() && j < first + PART_KEYS; j++)
                assert_true(seen[j] || scores[(size_t)head * t->ld + j] == -INFINITY);
        }
        for (int i = 0; kv_sinks_apart(policy, c.cache.position) && i < policy->n_sinks; i++) {
            double expected = 0;
            for (int k = 0; k < d; k++)
                expected +=
                    (double)x.a.sink_q[(size_t)head * d + k] * x.a.keys[((size_t)kv_head * policy->capacity + i) * d + k];
            assert_near(host_copy(t->sink_scores, c.cache.n_heads * policy->n_sinks)[head * policy->n_sinks + i], expected,
                        1e-5, what, head, i);
        }
    }
    sparq_close_fixture(&x);
}

static const enum sparq_copy copies_known[] = {SPARQ_COPY_INT8, SPARQ_COPY_FP16, SPARQ_COPY_Q4};

static void scores(void **)
{
    for (enum sparq_copy copy : copies_known) {
        for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8}) {
            check_scores({{type, 4, 2, 64, 600, 0, 0, 100, 410, 1, 2.0}, copy, 16});
            check_scores({{type, 2, 2, 80, 600, 0, 0, 33, 99, 1, 2.0}, copy, 80});
            check_scores({{type, 9, 1, 18, 600, 0, 0, 64, 70, 1, 2.0}, copy, 1}); // more queries than are scored at a time
            check_scores({{type, 3, 1, 256, 600, 0, 0, 64, 40, 1, 2.0}, copy, 37});
        }
        check_scores({{YALM_KV_FP16, 2, 1, 8, 2500, 0, 0, 1000, 2400, 1, 2.0}, copy, 3}); // several parts
        check_scores({{YALM_KV_FP16, 4, 2, 64, 600, 0, 0, 8, 0, 1, 2.0}, copy, 16});      // the first token
    }
}

static void scores_past_the_ring(void **)
{
    for (enum sparq_copy copy : copies_known) {
        for (int position : {10, 40, 41, 57, 100003})
            for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8})
                check_scores({{type, 4, 2, 16, 40, 0, 4, 8, position, 1, 2.0}, copy, 5});
        for (int position : {16, 17, 1000})
            check_scores({{YALM_KV_FP32, 4, 2, 16, 4096, 17, 0, 9, position, 1, 2.0}, copy, 5});
        check_scores({{YALM_KV_FP16, 2, 1, 8, 1100, 0, 4, 300, 3303, 1, 2.0}, copy, 3});
    }
}

// All of a layer's steps: with every key selected it is dense attention, whatever was scored; twice, as tokens follow each
// other.
static void all_keys_are_dense(void **)
{
    for (enum sparq_copy copy : copies_known) {
        for (bool tail : {false, true}) {
            static struct sparq_fixture x;
            const struct attention_case caches[] = {{YALM_KV_FP32, 4, 2, 64, 600, 0, 0, 100, 410, 1, 2.0},
                                                    {YALM_KV_FP16, 2, 2, 64, 40, 0, 4, 8, 100, 1, 2.0}};
            for (const struct attention_case &c : caches) {
                sparq_open_fixture(&x, {c, copy, 16}, 1000, tail);
                float *attended = device_nan<float>(x.a.expected.size());
                assert_ok(method_begin(&x.f.s, true, &x.f.error), x.f.error);
                for (int repeat = 0; repeat < 2; repeat++) {
                    assert_ok(method_attend(&x.f.s, &x.a.attention, attended, &x.f.error), x.f.error);
                    assert_cuda(cudaDeviceSynchronize());
                    assert_attended(&x.a, attended, 1e-5, "attended");
                }
                cudaFree(attended);
                sparq_close_fixture(&x);
            }
        }
    }
}

// Keys that stand out in the components that the query is large in are the ones that are selected.
static void selects_what_stands_out(void **)
{
    static struct sparq_fixture x;
    sparq_open_fixture(&x, {{YALM_KV_FP32, 2, 1, 64, 600, 0, 0, 100, 410, 1, 2.0}, SPARQ_COPY_FP16, 64}, 40, false);
    float *attended = device_nan<float>(x.a.expected.size());
    assert_ok(method_attend(&x.f.s, &x.a.attention, attended, &x.f.error), x.f.error);
    assert_cuda(cudaDeviceSynchronize());
    std::vector<double> w(411);
    for (int h = 0; h < 2; h++) {
        double sum = 0;
        std::vector<double> p(411);
        for (int j = 0; j < 411; j++) {
            double score = 0;
            for (int c = 0; c < 64; c++)
                score += (double)x.a.q[h * 64 + c] * x.a.keys[j * 64 + c];
            sum += p[j] = exp(score);
        }
        for (int j = 0; j < 411; j++)
            w[j] += p[j] / sum;
    }
    std::vector<int> order, rows = host_copy(x.f.method.selective.rows, 40);
    for (int j = 0; j < 401; j++) // all but the last 10, which always belong
        order.push_back(j);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return w[a] > w[b]; });
    order.resize(30);
    for (int j = 401; j < 411; j++)
        order.push_back(j);
    std::sort(order.begin(), order.end());
    assert_int_equal(host_copy(x.f.method.selective.n_rows, 1)[0], 40);
    for (int j = 0; j < 40; j++)
        assert_int_equal(rows[j], order[j]);
    cudaFree(attended);
    sparq_close_fixture(&x);
}

// An fp32 cache's keys as x->a.keys has them now.
static void upload_keys(struct sparq_fixture *x)
{
    const std::vector<float> &keys = x->a.keys;
    assert_cuda(cudaMemcpy(static_cast<float *>(x->a.cache.keys) + keys.size(), keys.data(), keys.size() * sizeof(float),
                           cudaMemcpyHostToDevice));
}

static void append_range(struct sparq_fixture *x, int64_t position, int n)
{
    write_step(&x->a, position, n, choice_of(0, 0, 0));
    assert_ok(method_sparq.append(&x->f.s, &x->a.attention, n, &x->f.error), x->f.error);
    assert_cuda(cudaDeviceSynchronize());
}

// Slots that have been written to before, as after a rollback, by batches that begin and end anywhere, and by single tokens:
// their elements are the new keys', all others stay. In q4 slots share bytes, of which one launch writes both halves.
static void written_again(void **)
{
    for (enum sparq_copy copy : copies_known) {
        static struct sparq_fixture x;
        sparq_open_fixture(&x, {{YALM_KV_FP32, 2, 2, 40, 1100, 0, 0, 900, 1000, 1, 2.0}, copy, 8}, 8, false);
        const std::vector<int> slots = slots_by_age(&x.a.cache.policy, 999);
        const size_t head = (size_t)x.a.cache.policy.capacity * 40;
        uint64_t seed = 5;
        expect_copy(&x, fetch_copies(&x), slots, "appended");
        const int runs[][2] = {{100, 300}, {3, 1}, {250, 7}, {127, 2}, {641, 62}, {0, 900}};
        for (const int(&run)[2] : runs) {
            for (int i = 0; i < 2; i++)
                for (int j = run[0] * 40; j < (run[0] + run[1]) * 40; j++)
                    x.a.keys[i * head + j] = (float)(3 * uniform(&seed));
            upload_keys(&x);
            append_range(&x, run[0], run[1]);
            expect_copy(&x, fetch_copies(&x), slots, "appended again");
        }
        for (int position : {128, 0, 999, 511}) {
            for (int c = 0; c < 40; c++)
                x.a.keys[head + position * 40 + c] = (float)uniform(&seed);
            upload_keys(&x);
            write_step(&x.a, position, 1, choice_of(8, 0, 0));
            assert_ok(method_sparq.prepare(&x.f.s, &x.a.attention, &x.f.error), x.f.error);
            assert_cuda(cudaDeviceSynchronize());
            expect_copy(&x, fetch_copies(&x), slots, "prepared again");
        }
        sparq_close_fixture(&x);
    }
}

// Keys without a magnitude, with too small a one, and with what is not finite, in 4 bits.
static void odd_keys(void **)
{
    static struct sparq_fixture x;
    sparq_open_fixture(&x, {{YALM_KV_FP32, 1, 1, 34, 300, 0, 0, 64, 200, 1, 2.0}, SPARQ_COPY_Q4, 8}, 8, false);
    const float odd[] = {0.0f, 1e-39f, INFINITY, NAN, -INFINITY, 3e38f, 0x1p-126f};
    const int n = sizeof odd / sizeof *odd;
    for (int i = 0; i < n; i++)
        for (int slot : {20 + i, 150 + i, 30 + i})
            for (int c = 0; c < 34; c++)
                x.a.keys[slot * 34 + c] *= slot >= 30 && slot < 30 + n ? c == 7 ? odd[i] : 1.0f : odd[i];
    upload_keys(&x);
    append_range(&x, 0, 60);
    append_range(&x, 150, 10);
    const struct copies copies = fetch_copies(&x);
    for (int slot = 0; slot < 200; slot++) {
        const float *key = x.a.keys.data() + slot * 34;
        bool number = false;
        for (int c = 0; c < 34; c++)
            number |= !isnan(key[c]);
        assert_true(number || copies.scales[slot] == 0);
        expect_q4(&x, copies, 0, slot, key);
    }
    sparq_close_fixture(&x);
}

// What a token reads, by the formula in docs/attention.md; and the length from which on it attends by the method where none is
// asked for: the first at which that is worth it, also where it is the last that a token ever sees, and none where there is
// none.
static void bytes_and_break_even(void **)
{
    const double elements[] = {1, 2, 0.5}, scales[] = {4, 0, 4}; // of int8, fp16, q4
    for (enum sparq_copy copy : copies_known) {
        static struct model_config config;
        config.head_dim = 128;
        config.n_kv_heads = 8;
        config.n_heads = 32;
        yalm_session_options options = {};
        yalm_error error = {};
        struct settings settings = {};
        settings.sparq.copy = copy;
        settings_use(&options, &settings);
        options.attention_ratio = 0.125f;
        struct backend_plan plan = {};
        plan.options = &options;
        struct cuda_method method = {};
        struct cuda_state s = {};
        const auto from_of = [&](int span) { // the length from which a token that sees `span` keys attends by the method
            s = {};
            s.method = &method;
            s.config = &config;
            s.caches[0].type = YALM_KV_FP16;
            s.caches[0].n_kv_heads = 8;
            s.caches[0].head_dim = 128;
            s.caches[0].policy = kv_policy_make(span, 0, false, 0, 1);
            selective_plan(&s);
            assert_ok(method_sparq.plan(&s, &plan, &error), error);
            return method.selective.from;
        };
        const int from = from_of(1 << 20);
        const double key = 16 * elements[copy] + scales[copy];
        assert_true(method_sparq.bytes(&s, 65535) == 8 * 65536.0 * (key + 2 * 256 / 16.0));
        assert_true(method_sparq.bytes(&s, 99) == 8 * 100 * (key + 2 * 256)); // all are selected
        assert_true(from > 256 && from < 1 << 20 && from % 64 == 0);
        assert_int_equal(from_of(from), from);
        for (int span : {from - 1, from - 64, 320, 100})
            assert_true(from_of(span) > span);
    }
}

static void refusals(void **)
{
    struct model_config config = {};
    yalm_session_options options = {};
    yalm_error error = {};
    config.head_dim = 64;
    SET(options, sparq.copy, 3);
    assert_int_equal(method_sparq.check(&config, &options, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "expected one of int8,fp16,q4"));
    for (enum sparq_copy copy : copies_known) {
        SET(options, sparq.copy, copy);
        assert_int_equal(method_sparq.check(&config, &options, &error), YALM_OK);
    }
    SET(options, sparq.r, 65);
    assert_int_equal(method_sparq.check(&config, &options, &error), YALM_USAGE);
    const struct cuda_method_table *method = &method_sparq;
    assert_int_equal(method_find(&method, "nomad", &error), YALM_USAGE);
    assert_null(method);
    assert_non_null(strstr(error.text, "nomad"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(scores_past_the_ring),
        cmocka_unit_test(all_keys_are_dense),
        cmocka_unit_test(selects_what_stands_out),
        cmocka_unit_test(written_again),
        cmocka_unit_test(odd_keys),
        cmocka_unit_test(bytes_and_break_even),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
