// Whole forward passes against the double-precision reference: every architecture option that changes the sequence of
// operations, every instruction set of this machine, all cache types, batches of all shapes, past the context and the window.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/reference.h"
#include "engine/scenarios.h"
#include "thorough.h"

enum { TOKENS = 90 };

struct arrangement {
    const char *isa;
    enum yalm_kv kv;
    int n_threads, chunk, piece; // piece: tokens given to one yalm_eval()
    bool float32;                // --activations fp32 promises that nothing is rounded, where the default would
};

static const struct arrangement arrangements[] = {
    {"scalar", YALM_KV_FP32, 1, 64, TOKENS, false},   {"scalar", YALM_KV_FP16, 2, 16, 1, false},
    {"avx2", YALM_KV_FP32, 2, TOKENS, TOKENS, false}, {"avx2", YALM_KV_FP16, 1, 7, 20, false},
    {"avx2", YALM_KV_FP32, 2, 5, 1, false},           {"avx512", YALM_KV_FP32, 2, TOKENS, TOKENS, false},
    {"avx512", YALM_KV_FP16, 3, 7, 33, false},        {"avx512", YALM_KV_FP32, 1, 64, 1, false},
    {"avx512", YALM_KV_FP32, 5, 31, 77, false},       {"avx512vnni", YALM_KV_FP32, 2, 41, 60, false},
    {"avxvnni", YALM_KV_FP32, 2, 41, 60, false},      {"avxvnni", YALM_KV_FP16, 3, 20, 77, false},
    {"avx512vnni", YALM_KV_FP32, 1, 5, 1, false},     {"avx512vnni", YALM_KV_FP16, 2, TOKENS, TOKENS, false},
    {"avx512vnni", YALM_KV_FP16, 3, 41, 77, false},   {"scalar", YALM_KV_INT8, 2, 64, TOKENS, false},
    {"scalar", YALM_KV_INT8, 1, 16, 1, false},        {"avx2", YALM_KV_INT8, 2, TOKENS, TOKENS, false},
    {"avx2", YALM_KV_INT8, 3, 5, 1, false},           {"avx512", YALM_KV_INT8, 2, 41, 77, false},
    {"avx512", YALM_KV_INT8, 1, 7, 1, false},         {"avx512vnni", YALM_KV_INT8, 3, 4, 33, false},
    {"amx", YALM_KV_FP32, 2, TOKENS, TOKENS, false},  {"amx", YALM_KV_FP32, 3, 41, 77, false},
    {"avx512vnni", YALM_KV_FP32, 3, 20, 77, false},   {"avx512vnni", YALM_KV_FP32, 2, 41, 60, true},
    {"neon", YALM_KV_FP32, 2, TOKENS, TOKENS, false}, {"neon", YALM_KV_FP16, 1, 7, 20, false},
    {"neon", YALM_KV_INT8, 3, 5, 1, false},           {"neondot", YALM_KV_FP32, 2, 41, 60, false},
    {"neondot", YALM_KV_FP16, 3, 20, 77, false},      {"neoni8mm", YALM_KV_FP32, 2, TOKENS, TOKENS, false},
};

static bool has(const char *isa)
{
    return cpu_kernels_select(isa) != NULL;
}

static double range_of(const double *x, int n)
{
    double low = x[0], high = x[0];
    for (int i = 1; i < n; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return high - low;
}

// Largest difference over the range of the position's logits.
static double difference(const float *found, const double *expected, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, isfinite(found[i]) ? fabs(found[i] - expected[i]) : INFINITY);
    return worst / range_of(expected, n);
}

static yalm_session *open_session(const struct random_model *m, const struct scenario *s, const struct arrangement *a)
{
    yalm_session_options options = yalm_session_defaults();
    options.isa = a->isa;
    options.kv = a->kv;
    options.activations = a->float32 ? YALM_ACTIVATIONS_FP32 : YALM_ACTIVATIONS_INT16;
    options.n_threads = a->n_threads;
    options.n_threads_batch = a->n_threads % 3 + 1;
    options.chunk = a->chunk;
    options.context = s->context;
    options.endless = s->endless;
    options.n_sinks = s->n_sinks;
    yalm_error error;
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session)
        fail_msg("%s: %s", s->name, error.text);
    return session;
}

static int32_t token_at(int i, int vocab)
{
    return (int32_t)((uint32_t)(i * 7919 + i * i * 31) % (uint32_t)vocab);
}

// fp32: rounding of sums over some tens of terms. Quantised weights: tokens are rounded to 15 bits before each product (2.8e-4
// in two layers is the largest seen). AMX rounds weights so, too, and leaves out the product of both low bytes: each costs
// about as much as the tokens' rounding (4.1e-4). KDA before latents has more products in a row, and gates of bf16, which VNNI
// rounds, too: of 40 seeds 3e-4 is the middle one's difference, 5.9e-4 the largest (in fp32 3.6e-6; a flip of an expert costs
// 0.2, so the seed is one without). fp16, bf16 and fp8 ones by VNNI: both are rounded, tokens to some 12 bits, up
// to 24 of them to 14; the largest seen is 7.6e-4 (of the fewer 5.6e-4), where the fp16 cache alone costs up to 1.3e-3.
// fp16: keys and values carry relative errors of 2^-11. int8: the reference rounds likewise, but an element between two steps
// may go the other way, which is 1/127 of its row's largest: rarely by float32's errors, often by those of quantised products.
static double tolerance_of(const struct scenario *s, const struct arrangement *a)
{
    const bool quantised = dtype_group_bytes[s->dtype] != 0, half = !quantised && s->dtype != DTYPE_FP32;
    const bool amx = !strcmp(a->isa, "amx"), vnni = amx || !strcmp(a->isa, "avx512vnni");
    const bool integers = half && vnni && !a->float32;
    const int products = s->config.latent.kv_rank && s->config.kinds[1].delta.kda_rank ? 2 : 1;
    if (a->kv == YALM_KV_FP32)
        return quantised ? (amx ? 3e-4 : 1.5e-4) * products * s->config.n_layers : integers ? 1e-3 : 1e-5;
    return a->kv == YALM_KV_INT8 && quantised ? 1e-2 : 3e-3;
}

// With quantised weights int8's rounding goes the other way often enough to change the choice between two nearly equal experts.
static bool comparable(const struct scenario *s, const struct arrangement *a)
{
    return a->kv != YALM_KV_INT8 || s->config.n_experts == 0 || dtype_group_bytes[s->dtype] == 0;
}

// Latents have no int8 cache, quantised weights no tokens in float32; and the machine has not every instruction set.
static bool possible(const struct scenario *s, const struct arrangement *a)
{
    return has(a->isa) && !(a->kv == YALM_KV_INT8 && s->config.latent.kv_rank) && !(a->float32 && dtype_group_bytes[s->dtype]);
}

static void check(const struct random_model *m, const struct scenario *s, const struct arrangement *a, const double *expected)
{
    const int vocab = m->model.config.vocab_size;
    const double tolerance = tolerance_of(s, a);
    yalm_session *session = open_session(m, s, a);
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = token_at(i, vocab);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        yalm_error error;
        if (yalm_eval(session, tokens + done, n, YALM_LOGITS_ALL, &error) != YALM_OK)
            fail_msg("%s: %s", s->name, error.text);
        for (int i = 0; i < n; i++) {
            const double d = difference(yalm_logits(session, i), expected + (size_t)(done + i) * vocab, vocab);
            if (!(d <= tolerance))
                fail_msg("%s, %s, kv %d, %d threads, chunk %d, pieces of %d: position %d differs by %g of the range", s->name,
                         a->isa, a->kv, a->n_threads, a->chunk, a->piece, done + i, d);
        }
    }
    yalm_session_close(session);
}

// (1 or 2, TOKENS, vocab_size), to be freed. Those of the int8 cache, of rounded keys and values, come second.
static double *reference_logits(const struct random_model *m, const struct scenario *s, bool int8)
{
    const int vocab = s->config.vocab_size;
    struct kv_policy kv[CONFIG_MAX_KINDS];
    for (int kind = 0; kind < config_n_kinds(&s->config); kind++)
        kv[kind] = kv_policy_make(s->context, s->config.kinds[kind].sliding_window, s->endless, s->n_sinks, 1);
    struct reference r[2] = {reference_open(&m->model, kv, TOKENS), reference_open(&m->model, kv, TOKENS)};
    r[1].int8 = true;
    double *logits = doubles((size_t)TOKENS * vocab * 2);
    for (int t = 0; t < TOKENS * (int8 ? 2 : 1); t++)
        reference_token(&r[t / TOKENS], token_at(t % TOKENS, vocab), logits + (size_t)t * vocab);
    reference_close(&r[0]);
    reference_close(&r[1]);
    return logits;
}

static void test_against_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *s = &scenarios[i];
        struct random_model *m = random_model_make(s->config, s->dtype, 1000 + i);
        double *expected = reference_logits(m, s, true), *rounded = expected + TOKENS * s->config.vocab_size;
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++) {
            const struct arrangement *a = &arrangements[j];
            if (possible(s, a) && comparable(s, a) && (thorough() || a->float32 || (i + j) % 4 == 0))
                check(m, s, a, a->kv == YALM_KV_INT8 ? rounded : expected);
        }
        free(expected);
        random_model_free(m);
    }
}

// Of models whose last layers keep no keys only the last token goes through these, where no other's logits are wanted.
static void check_last(const struct random_model *m, const struct scenario *s, const struct arrangement *a,
                       const double *expected)
{
    const int vocab = m->model.config.vocab_size;
    yalm_session *session = open_session(m, s, a);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        int32_t tokens[TOKENS];
        for (int i = 0; i < n; i++)
            tokens[i] = token_at(done + i, vocab);
        assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
        const double d = difference(yalm_logits(session, 0), expected + (size_t)(done + n - 1) * vocab, vocab);
        if (!(d <= tolerance_of(s, a)))
            fail_msg("%s, %s, pieces of %d: the last logits at %d differ by %g of the range", s->name, a->isa, a->piece,
                     done + n - 1, d);
    }
    yalm_session_close(session);
}

static void test_last_layers_without_keys(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *s = &scenarios[i];
        if (config_tail(&s->config) == s->config.n_layers)
            continue;
        struct random_model *m = random_model_make(s->config, s->dtype, 1000 + i);
        double *expected = reference_logits(m, s, false);
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++)
            if (possible(s, &arrangements[j]) && arrangements[j].kv != YALM_KV_INT8 && (thorough() || (i + j) % 2 == 0)) {
                check_last(m, s, &arrangements[j], expected);
                checked++;
            }
        free(expected);
        random_model_free(m);
    }
    assert_true(checked > 0);
}

// Of experts that a router finds equal those of the lower index are chosen.
static void test_equal_experts(void **state)
{
    (void)state;
    const struct scenario s = {
        "equal experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_FP32, 128, false, 0};
    const struct arrangement a = {"auto", YALM_KV_FP32, 2, 7, 20, false};
    struct random_model *m = random_model_make(s.config, s.dtype, 7);
    for (int layer = 0; layer < s.config.n_layers; layer++) {
        float *router = (float *)m->model.weights.layers[layer].router.data;
        for (int e = 1; e < s.config.n_experts; e++)
            memcpy(router + e * s.config.hidden_dim, router, sizeof(float) * s.config.hidden_dim);
    }
    double *expected = reference_logits(m, &s, false);
    check(m, &s, &a, expected);
    free(expected);
    random_model_free(m);
}

// Logits of the last of TOKENS tokens, with the given threads.
static void last_logits(const struct random_model *m, const struct scenario *s, const struct arrangement *a, float *logits)
{
    yalm_session *session = open_session(m, s, a);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        int32_t tokens[TOKENS];
        for (int i = 0; i < n; i++)
            tokens[i] = token_at(done + i, m->model.config.vocab_size);
        assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
    }
    memcpy(logits, yalm_logits(session, 0), sizeof(float) * m->model.config.vocab_size);
    yalm_session_close(session);
}

static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        struct random_model *m = random_model_make(scenarios[i].config, scenarios[i].dtype, 77);
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++) {
            struct arrangement a = arrangements[j];
            float one[64], many[64];
            if (!possible(&scenarios[i], &a) || (!thorough() && (i + j) % 7 != 0))
                continue;
            a.n_threads = 1;
            last_logits(m, &scenarios[i], &a, one);
            for (a.n_threads = 2; a.n_threads <= 7; a.n_threads += 5) {
                last_logits(m, &scenarios[i], &a, many);
                assert_memory_equal(one, many, sizeof(float) * m->model.config.vocab_size);
            }
        }
        random_model_free(m);
    }
}

static void test_long_contexts_in_parts(void **state)
{
    (void)state;
    // More keys than one part holds, decoded after a prefill: the merge of parts, of which one has the heads' logits without
    // keys, and the ring's wrap inside a part.
    const struct scenario s = {"parts", {SHAPE(2, 1, 8), .sink_logits = true}, DTYPE_FP32, 600, true, 4};
    struct random_model *m = random_model_make(s.config, s.dtype, 5);
    m->model.config.context_length = 4096;
    enum { LONG = 1100 };
    const int vocab = s.config.vocab_size;
    const struct kv_policy kv = kv_policy_make(600, 0, true, 4, 1);
    struct reference r = reference_open(&m->model, &kv, LONG);
    double *expected = doubles((size_t)LONG * vocab);
    for (int t = 0; t < LONG; t++)
        reference_token(&r, token_at(t, vocab), expected + (size_t)t * vocab);
    for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++) {
        const struct arrangement a = {(*k)->name, YALM_KV_FP32, 2, 100, 0, false};
        yalm_session *session = open_session(m, &s, &a);
        for (int t = 0, n; t < LONG; t += n) {
            n = t < 500 ? 100 : t < 800 ? 1 : t < 900 ? 9 : 50;
            n = n < LONG - t ? n : LONG - t;
            int32_t tokens[100];
            for (int i = 0; i < n; i++)
                tokens[i] = token_at(t + i, vocab);
            assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
            const double d = difference(yalm_logits(session, 0), expected + (size_t)(t + n - 1) * vocab, vocab);
            if (!(d <= 1e-5))
                fail_msg("%s: position %d differs by %g of the range", a.isa, t + n - 1, d);
        }
        yalm_session_close(session);
    }
    free(expected);
    reference_close(&r);
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_reference),  cmocka_unit_test(test_last_layers_without_keys),
        cmocka_unit_test(test_equal_experts),          cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_long_contexts_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
