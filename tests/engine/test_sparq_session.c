// Sessions with SparQ attention: against dense attention where it must be equal, against themselves on other ways to the same
// cache, and what they say and refuse.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/sessions.h"
#include "settings_testing.h"

enum { LAYERS = 2, DIM = 20 };

static yalm_session_options options_of(const char *attention, struct sparq_settings sparq)
{
    yalm_session_options o = small_options(attention, 400);
    o.chunk = 33;
    settings_use(&o, &(struct settings){.sparq = sparq});
    return o;
}

static void assert_close(const yalm_session *a, const yalm_session *b, double tolerance)
{
    double low = INFINITY, high = -INFINITY, worst = 0;
    for (int i = 0; i < VOCAB; i++) {
        const double x = yalm_logits(a, 0)[i], y = yalm_logits(b, 0)[i];
        low = fmin(low, x), high = fmax(high, x), worst = fmax(worst, fabs(x - y));
    }
    if (!(worst <= tolerance * (high - low)))
        fail_msg("position %d: logits differ by %g of their range", (int)yalm_position(a), worst / (high - low));
}

// All components and all keys, with and without the tail: as dense, sinks and the ring's end included.
static void test_everything_is_dense(void **state)
{
    (void)state;
    for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++)
        for (int endless = 0; endless < 2; endless++) {
            const struct sparq_settings all = {.r = DIM, .k = 1000, .from = 1, .tail = endless ? SWITCH_ON : SWITCH_OFF};
            yalm_session_options dense = options_of("dense", all), sparq = options_of("sparq", all);
            dense.isa = sparq.isa = (*k)->name;
            dense.endless = sparq.endless = endless;
            dense.context = sparq.context = endless ? 150 : 400;
            yalm_session *a = open_with(dense), *b = open_with(sparq);
            for (int at = 0, n; at < 330; at += n) {
                n = at < 100 ? 50 : at % 60 == 0 ? 30 : 1;
                eval(a, at, n);
                eval(b, at, n);
                assert_close(a, b, 1e-5);
            }
            yalm_session_close(a);
            yalm_session_close(b);
        }
}

static void test_short_contexts_are_dense(void **state)
{
    (void)state;
    const struct sparq_settings few = {.r = 2, .k = 10, .from = 120};
    yalm_session *a = open_with(options_of("dense", few)), *b = open_with(options_of("sparq", few));
    for (int at = 0; at < 119; at++) {
        eval(a, at, 1);
        eval(b, at, 1);
        assert_same(a, b);
    }
    eval(a, 119, 1);
    eval(b, 119, 1);
    assert_memory_not_equal(yalm_logits(a, 0), yalm_logits(b, 0), sizeof(float) * VOCAB);
    yalm_session_close(a);
    yalm_session_close(b);
}

// By default, too: as dense attention below the length at which reading less pays, and not beyond.
static void test_the_break_even_length(void **state)
{
    (void)state;
    const struct sparq_settings defaults = {.k = 10};
    for (int deep = 0; deep < 2; deep++) {
        yalm_session_options dense = options_of("dense", defaults), sparq = options_of("sparq", defaults);
        dense.context = sparq.context = 4000;
        yalm_session *a = open_with(dense), *b = open_with(sparq);
        assert_int_equal(yalm_fill_random(a, deep ? 3900 : 1000, 7, NULL), YALM_OK);
        assert_int_equal(yalm_fill_random(b, deep ? 3900 : 1000, 7, NULL), YALM_OK);
        eval(a, 0, 1);
        eval(b, 0, 1);
        assert_int_equal(memcmp(yalm_logits(a, 0), yalm_logits(b, 0), sizeof(float) * VOCAB) != 0, deep);
        yalm_session_close(a);
        yalm_session_close(b);
    }
}

// The same cache, whichever way it came about: with detours that were rolled back, or filled in other pieces.
static void test_history_leaves_no_trace(void **state)
{
    (void)state;
    for (int copy = 0; copy < 3; copy++) {
        const struct sparq_settings sparq = {.r = 5, .k = 40, .from = 50, .copy = copy, .tail = SWITCH_ON};
        yalm_session *a = open_with(options_of("sparq", sparq)), *b = open_with(options_of("sparq", sparq));
        assert_int_equal(yalm_fill_random(a, 150, 7, NULL), YALM_OK);
        for (int n = 0; n < 150; n += 25) // pieces of other sizes than the chunk's
            assert_int_equal(yalm_fill_random(b, 25, 7, NULL), YALM_OK);
        for (int at = 150; at < 300; at++) {
            eval(a, at, 1);
            if (at % 20 == 3) {
                eval(b, at + 500, 1 + at % 45); // other tokens
                assert_int_equal(yalm_rollback(b, at - 11, NULL), YALM_OK);
                for (int again = at - 11; again < at; again++)
                    eval(b, again, 1);
            }
            eval(b, at, 1);
            assert_same(a, b);
        }
        yalm_session_close(a);
        yalm_session_close(b);
    }
}

static void test_memory_and_cost_are_said(void **state)
{
    (void)state;
    yalm_memory dense, sparq;
    yalm_session_options o = options_of("dense", (struct sparq_settings){0});
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &dense, NULL), YALM_OK);
    assert_int_equal(dense.attention, 0);
    o = options_of("sparq", (struct sparq_settings){.r = 5, .k = 40, .from = 50, .copy = SPARQ_COPY_FP16, .tail = SWITCH_OFF});
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &sparq, NULL), YALM_OK);
    assert_int_equal(sparq.kv_cache, dense.kv_cache);
    // Two bytes for each component of a key; runs are as long as 512 slots, and a cache line.
    assert_int_equal(sparq.attention, LAYERS * KV_HEADS * DIM * (2 * 512 + 64));
    yalm_session *session = open_with(o);
    assert_int_equal(yalm_session_memory_used(session).attention, sparq.attention);
    // 300 keys: 5 components of each, and keys and values of 40 in fp32.
    const double bytes = yalm_session_cost(session, 1, 299).bytes - yalm_session_cost(session, 1, 0).bytes;
    const double first = LAYERS * KV_HEADS * 2.0 * DIM * 4; // that of position 0, which is dense
    assert_true(bytes == LAYERS * KV_HEADS * (300.0 * 5 * 2 + 2.0 * 40 * DIM * 4) - first);
    yalm_session_close(session);
}

static void refuse(float ratio, struct sparq_settings sparq, const char *words)
{
    yalm_error error = {0};
    yalm_memory memory;
    yalm_session_options o = options_of("sparq", sparq);
    o.attention_ratio = ratio;
    assert_null(yalm_session_open(&the_model->model, &o, &error));
    assert_int_equal(error.status, YALM_USAGE);
    if (!strstr(error.text, words))
        fail_msg("'%s' does not say '%s'", error.text, words);
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &memory, NULL), YALM_USAGE);
}

static void test_bad_options_are_refused(void **state)
{
    (void)state;
    refuse(0, (struct sparq_settings){.r = DIM + 1}, "sparq.r: found 21, expected at most the model's head_dim, 20");
    refuse(0, (struct sparq_settings){.r = -1}, "setting 'sparq.r=-1'");
    refuse(0, (struct sparq_settings){.k = -3}, "setting 'sparq.k=-3'");
    refuse(0, (struct sparq_settings){.copy = 9}, "setting 'sparq.copy=?': expected one of int8,fp16,q4");
    refuse(1.5f, (struct sparq_settings){0}, "attention ratio: found 1.5");
    refuse(NAN, (struct sparq_settings){0}, "attention ratio: found nan");
    yalm_session_options o = options_of("sparks", (struct sparq_settings){0});
    yalm_error error = {0};
    assert_null(yalm_session_open(&the_model->model, &o, &error));
    assert_non_null(strstr(error.text, "attention: found 'sparks'"));
}

int main(void)
{
    the_model = small_model(LAYERS, DIM, 4096);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_dense),      cmocka_unit_test(test_short_contexts_are_dense),
        cmocka_unit_test(test_the_break_even_length),    cmocka_unit_test(test_history_leaves_no_trace),
        cmocka_unit_test(test_memory_and_cost_are_said), cmocka_unit_test(test_bad_options_are_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    random_model_free(the_model);
    return failed;
}
