// The sampler against a plain double reference that sorts everything: what is kept, how often it is drawn, what is refused.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/sampler.h"
#include "util/clock.h"

// AddressSanitizer watches what is touched; the release's run of these tests tells frequencies apart more closely.
#ifdef __SANITIZE_ADDRESS__
enum { VOCAB = 50, DRAWS = 20000, MANY = 200 };
#else
enum { VOCAB = 50, DRAWS = 200000, MANY = 800 };
#endif

static yalm_sampling plain(void)
{
    return (yalm_sampling){
        .size = sizeof(yalm_sampling), .temperature = 1, .top_p = 1, .repeat_penalty = 1, .penalty_last_n = -1};
}

static struct sampler opened(int n_vocab)
{
    struct sampler sampler;
    assert_int_equal(sampler_open(&sampler, n_vocab, NULL), YALM_OK);
    sampler_seed(&sampler, 7);
    return sampler;
}

static void some_logits(float *logits, int n)
{
    uint32_t seed = 12345;
    for (int i = 0; i < n; i++)
        logits[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / 2097152.0f - 4.0f; // -4 to 4
}

struct ranked {
    double logit;
    int id;
};

static int by_logit(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->id - y->id;
}

// probabilities: (n). The header's steps, one after the other, on a sorted list.
static void reference(double *probabilities, const float *logits, int n, const yalm_sampling *s)
{
    static struct ranked list[MANY];
    for (int i = 0; i < n; i++)
        list[i] = (struct ranked){logits[i], i};
    qsort(list, (size_t)n, sizeof *list, by_logit);
    int kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double sum = 0, reached = 0;
    for (int i = 0; i < kept; i++)
        sum += exp(list[i].logit - list[0].logit);
    if (s->top_p < 1)
        for (int i = 0; i < kept; i++)
            if ((reached += exp(list[i].logit - list[0].logit) / sum) >= s->top_p)
                kept = i + 1;
    int last = kept;
    while (last > 1 && exp(list[last - 1].logit - list[0].logit) < s->min_p)
        last--;
    memset(probabilities, 0, (size_t)n * sizeof *probabilities);
    sum = 0;
    for (int i = 0; i < last; i++)
        sum += probabilities[list[i].id] = exp((list[i].logit - list[0].logit) / s->temperature);
    for (int i = 0; i < n; i++)
        probabilities[i] /= sum;
}

static void assert_distribution(const yalm_sampling *sampling)
{
    float logits[VOCAB];
    double expected[VOCAB];
    int counts[VOCAB] = {0}, freedom = -1;
    some_logits(logits, VOCAB);
    reference(expected, logits, VOCAB, sampling);
    struct sampler sampler = opened(VOCAB);
    for (int i = 0; i < DRAWS; i++)
        counts[sampler_draw(&sampler, sampling, logits, NULL, 0)]++;
    double chi_square = 0, rare = 0, rare_found = 0;
    for (int i = 0; i < VOCAB; i++) {
        const double mean = expected[i] * DRAWS;
        if (expected[i] == 0)
            assert_int_equal(counts[i], 0);
        else if (mean < 10) { // too few for the normal approximation alone
            rare += mean;
            rare_found += counts[i];
        } else {
            chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
            freedom++;
        }
    }
    if (rare > 0) {
        chi_square += (rare_found - rare) * (rare_found - rare) / rare;
        freedom++;
    }
    // Mean + 5 standard deviations of the chi-square distribution. The seed is fixed: this passes always or never.
    assert_true(chi_square <= freedom + 5 * sqrt(2.0 * freedom) + 1e-9);
    sampler_close(&sampler);
}

static void draws_as_often_as_it_should(void **state)
{
    (void)state;
    yalm_sampling s = plain();
    assert_distribution(&s);
    const struct {
        float temperature;
        int top_k;
        float top_p, min_p;
    } cases[] = {{0.8f, 40, 0.95f, 0.05f}, {0.3f, 0, 1, 0},   {2, 0, 1, 0},    {1, 5, 1, 0}, {1, 1, 1, 0},
                 {1, 0, 0.5f, 0},          {1, 0, 0, 0},      {1, 0, 1, 0.1f}, {1, 0, 1, 1}, {1.5f, 7, 0.8f, 0},
                 {1, 100, 0.999f, 0},      {3, 3, 0.9f, 0.5f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.temperature = cases[i].temperature;
        s.top_k = cases[i].top_k;
        s.top_p = cases[i].top_p;
        s.min_p = cases[i].min_p;
        assert_distribution(&s);
    }
}

static void same_seed_same_tokens(void **state)
{
    (void)state;
    float logits[VOCAB];
    some_logits(logits, VOCAB);
    const yalm_sampling s = plain();
    struct sampler a = opened(VOCAB), b = opened(VOCAB);
    int differ = 0;
    for (int i = 0; i < 100; i++)
        assert_int_equal(sampler_draw(&a, &s, logits, NULL, 0), sampler_draw(&b, &s, logits, NULL, 0));
    sampler_seed(&b, 8);
    for (int i = 0; i < 100; i++)
        differ += sampler_draw(&a, &s, logits, NULL, 0) != sampler_draw(&b, &s, logits, NULL, 0);
    assert_true(differ > 50);
    sampler_close(&a);
    sampler_close(&b);
}

// xoshiro256** seeded with splitmix64 of 0, as published: the state, and through the draw the first outputs.
static void generator_is_the_published_one(void **state)
{
    (void)state;
    struct sampler sampler = opened(1);
    sampler_seed(&sampler, 0);
    const uint64_t expected[4] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec};
    assert_memory_equal(sampler.rng, expected, sizeof expected);
    const float logit = 0;
    const yalm_sampling s = plain();
    memcpy(sampler.rng, (uint64_t[]){1, 2, 3, 4}, sizeof sampler.rng);
    sampler_draw(&sampler, &s, &logit, NULL, 0);
    // By hand: s2 = 3^1, s3 = 4^2, s1 = 2^s2, s0 = 1^s3, s2 ^= 2 << 17, s3 = rotl(6, 45).
    const uint64_t next[4] = {7, 0, 262146, 211106232532992};
    assert_memory_equal(sampler.rng, next, sizeof next);
    sampler_close(&sampler);
}

static int32_t greedy(const float *logits, int n, yalm_sampling s, const int32_t *recent, int n_recent)
{
    struct sampler sampler = opened(n);
    s.temperature = 0;
    const int32_t id = sampler_draw(&sampler, &s, logits, recent, n_recent);
    sampler_close(&sampler);
    return id;
}

static void greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    const float logits[] = {-1, 3, 3, 2};
    assert_int_equal(greedy(logits, 4, plain(), NULL, 0), 1);
}

// With top-k 1 and logits all equal, ties must fall to the lower ids whatever the heap did.
static void ties_fall_to_lower_ids(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float logits[N];
    struct sampler sampler = opened(N);
    yalm_sampling s = plain();
    s.top_k = 10;
    for (int i = 0; i < 1000; i++)
        assert_in_range(sampler_draw(&sampler, &s, logits, NULL, 0), 0, 9);
    s.top_k = 0;
    s.top_p = 0.0095f; // of 1,000 equals the first 10 reach it
    for (int i = 0; i < 1000; i++)
        assert_in_range(sampler_draw(&sampler, &s, logits, NULL, 0), 0, 9);
    sampler_close(&sampler);
}

// At a temperature that makes all kept tokens alike, enough draws show which they are.
static void keeps_what_a_sort_would(void **state)
{
    (void)state;
    static float logits[MANY];
    static double expected[MANY];
    static bool drawn[MANY];
    some_logits(logits, MANY);
    struct sampler sampler = opened(MANY);
    for (int round = 0; round < 12; round++) {
        const float scale = round % 3 == 0 ? 0.1f : round % 3 == 1 ? 1 : 40; // flat to steep
        static float scaled[MANY];
        for (int i = 0; i < MANY; i++)
            scaled[i] = logits[i] * scale;
        yalm_sampling s = plain();
        s.temperature = 3e38f;
        s.top_k = round % 2 ? 100 : 0;
        s.top_p = round < 6 ? 0.2f : 0.9f;
        s.min_p = round % 4 == 3 ? 0.5f : 0;
        reference(expected, scaled, MANY, &s);
        int kept = 0, found = 0;
        for (int i = 0; i < MANY; i++)
            kept += expected[i] > 0;
        memset(drawn, 0, sizeof drawn);
        for (int i = 0; i < 30 * kept; i++) {
            const int32_t id = sampler_draw(&sampler, &s, scaled, NULL, 0);
            assert_true(expected[id] > 0);
            found += !drawn[id];
            drawn[id] = true;
        }
        assert_int_equal(found, kept);
    }
    sampler_close(&sampler);
}

static void penalties_and_biases(void **state)
{
    (void)state;
    const float logits[] = {4, 3.5f, -1, -1.4f};
    const int32_t recent[] = {0, 0, 2, 99, -1};
    yalm_sampling s = plain();
    s.repeat_penalty = 1.2f; // 4 / 1.2 < 3.5
    assert_int_equal(greedy(logits, 4, s, recent, 5), 1);
    assert_int_equal(greedy(logits, 4, s, NULL, 0), 0);
    s.penalty_last_n = 3; // ids 2, 99, -1
    assert_int_equal(greedy(logits, 4, s, recent, 5), 0);
    s.penalty_last_n = 0;
    assert_int_equal(greedy(logits, 4, s, recent, 5), 0);
    // Negative logits are multiplied: -1 * 1.5 < -1.4. A lone division would raise them.
    const yalm_logit_bias ban[] = {{0, -INFINITY}, {1, -INFINITY}};
    s = plain();
    s.biases = ban;
    s.n_biases = 2;
    assert_int_equal(greedy(logits, 4, s, recent, 5), 2);
    s.repeat_penalty = 1.5f;
    assert_int_equal(greedy(logits, 4, s, recent, 5), 3);
    s = plain();
    s.presence_penalty = 0.4f; // once: 4 - 0.4 > 3.5
    assert_int_equal(greedy(logits, 4, s, recent, 5), 0);
    s.presence_penalty = 0;
    s.frequency_penalty = 0.4f; // twice: 4 - 0.8 < 3.5
    assert_int_equal(greedy(logits, 4, s, recent, 5), 1);
    const yalm_logit_bias wish = {3, 10};
    s = plain();
    s.biases = &wish;
    s.n_biases = 1;
    assert_int_equal(greedy(logits, 4, s, NULL, 0), 3);
    assert_true(logits[0] == 4 && logits[3] == -1.4f);
}

// What is not allowed counts as if it were not there: for the draw, and for what top-k, top-p and min-p keep.
static void draws_only_what_is_allowed(void **state)
{
    (void)state;
    struct sampler sampler = opened(VOCAB), few = opened(VOCAB);
    float logits[VOCAB], masked[VOCAB];
    const uint64_t allowed[] = {UINT64_C(0x2a000000f1)};
    some_logits(logits, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        masked[i] = allowed[0] >> i & 1 ? logits[i] : -INFINITY;
    for (int i = 0; i < 1000; i++) {
        yalm_sampling s = plain();
        s.temperature = (float)(i % 4);
        s.top_k = i % 3 ? 4 : 0;
        s.top_p = i % 5 ? 0.9f : 1;
        const int32_t want = sampler_draw(&few, &s, masked, NULL, 0);
        s.allowed = allowed;
        const int32_t token = sampler_draw(&sampler, &s, logits, NULL, 0);
        assert_true(allowed[0] >> token & 1);
        assert_int_equal(token, want);
    }
    sampler_close(&sampler);
    sampler_close(&few);
}

static void never_draws_what_is_not_a_number(void **state)
{
    (void)state;
    const struct {
        float logits[4];
        int lowest, highest;
    } cases[] = {
        {{NAN, 1, -INFINITY, 1}, 1, 3},        {{-INFINITY, -INFINITY, NAN, -1e38f}, 3, 3},
        {{NAN, NAN, NAN, NAN}, 0, 0},          {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0, 0},
        {{1e38f, INFINITY, 3e38f, NAN}, 1, 1}, {{-3e38f, 3e38f, 0, 0}, 1, 1},
    };
    struct sampler sampler = opened(4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int draw = 0; draw < 2000; draw++) {
            yalm_sampling s = plain();
            s.temperature = (float[]){0, 1e-30f, 1}[draw % 3];
            s.top_k = draw / 3 % 2 * 3;
            s.top_p = draw / 6 % 2 ? 1 : 0.9f;
            s.min_p = draw / 12 % 2 ? 0 : 0.05f;
            const int32_t id = sampler_draw(&sampler, &s, cases[i].logits, NULL, 0);
            assert_in_range(id, cases[i].lowest, cases[i].highest);
            assert_true(i != 0 || id != 2);
        }
    sampler_close(&sampler);
}

static void extreme_temperatures(void **state)
{
    (void)state;
    const float logits[] = {-50, 50, 0, 49};
    int counts[4] = {0};
    struct sampler sampler = opened(4);
    yalm_sampling s = plain();
    s.temperature = 3e38f; // all alike
    for (int i = 0; i < 4000; i++)
        counts[sampler_draw(&sampler, &s, logits, NULL, 0)]++;
    for (int i = 0; i < 4; i++)
        assert_in_range(counts[i], 850, 1150);
    s.temperature = 1e-45f; // the smallest there is: greedy
    for (int i = 0; i < 100; i++)
        assert_int_equal(sampler_draw(&sampler, &s, logits, NULL, 0), 1);
    sampler_close(&sampler);
}

// A flat distribution is the worst case of the heap; quadratic time would take minutes a draw.
static void large_vocabularies_are_quick(void **state)
{
    (void)state;
    enum { N = 131072 };
    float *logits = calloc(N, sizeof *logits);
    struct sampler sampler = opened(N);
    yalm_sampling s = plain();
    s.top_p = 0.95f;
    const double start = clock_seconds();
    for (int i = 0; i < 10; i++)
        sampler_draw(&sampler, &s, logits, NULL, 0);
    assert_true(clock_seconds() - start < 30);
    sampler_close(&sampler);
    free(logits);
}

static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    const yalm_logit_bias outside = {VOCAB, 1}, negative = {-1, 1}, endless = {0, INFINITY}, none = {0, NAN},
                          ban = {0, -INFINITY};
    yalm_sampling s = plain();
    yalm_error error;
    assert_int_equal(sampling_check(&s, VOCAB, &error), YALM_OK);
    s.biases = &ban;
    s.n_biases = 1;
    s.top_k = 1 << 30;
    s.top_p = 0;
    assert_int_equal(sampling_check(&s, VOCAB, &error), YALM_OK);
#define REFUSED(field, value, says)                                                                                            \
    s = plain();                                                                                                               \
    s.field = value;                                                                                                           \
    assert_int_equal(sampling_check(&s, VOCAB, &error), YALM_USAGE);                                                           \
    assert_non_null(strstr(error.text, says))
    REFUSED(temperature, -1, "temperature: found -1");
    REFUSED(temperature, NAN, "temperature");
    REFUSED(temperature, INFINITY, "temperature");
    REFUSED(top_k, -1, "top-k: found -1");
    REFUSED(top_p, 1.5f, "top-p: found 1.5");
    REFUSED(top_p, NAN, "top-p");
    REFUSED(min_p, -0.5f, "min-p");
    REFUSED(repeat_penalty, 0, "repeat penalty");
    REFUSED(presence_penalty, INFINITY, "presence penalty");
    REFUSED(frequency_penalty, NAN, "frequency penalty");
    REFUSED(penalty_last_n, -2, "penalty last n");
    REFUSED(n_biases, -1, "logit biases");
    REFUSED(n_biases, 1, "logit biases");
    const yalm_logit_bias *const bad[] = {&outside, &negative, &endless, &none};
    for (int i = 0; i < 4; i++) {
        s = plain();
        s.biases = bad[i];
        s.n_biases = 1;
        assert_int_equal(sampling_check(&s, VOCAB, &error), YALM_USAGE);
        assert_non_null(strstr(error.text, "logit bias"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_as_often_as_it_should),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(generator_is_the_published_one),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(ties_fall_to_lower_ids),
        cmocka_unit_test(keeps_what_a_sort_would),
        cmocka_unit_test(penalties_and_biases),
        cmocka_unit_test(draws_only_what_is_allowed),
        cmocka_unit_test(never_draws_what_is_not_a_number),
        cmocka_unit_test(extreme_temperatures),
        cmocka_unit_test(large_vocabularies_are_quick),
        cmocka_unit_test(values_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
