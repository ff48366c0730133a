// Where a cache of fp16 cuts keys or values, the caller is told once, by name; caches of fp32 hold them.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sessions.h"

enum { LAYER = 1 };

static int n_warnings;
static char warning[256];

static void on_warning(void *context, const char *text)
{
    assert_ptr_equal(context, &n_warnings);
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

static yalm_session *open_kv(const char *attention, yalm_kv kv)
{
    yalm_session_options options = small_options(attention, 100);
    options.kv = kv;
    options.warn = on_warning;
    options.warn_context = &n_warnings;
    n_warnings = 0;
    return open_with(options);
}

// Weights of layer 1 are multiplied by so much that its keys, or values, are of about that size.
static void plant(bool of_keys, float factor)
{
    the_model = small_model(3, 20, 100);
    struct layer_weights *layer = &the_model->model.weights.layers[LAYER];
    const struct matrix *w = of_keys ? &layer->k : &layer->v;
    for (int i = 0; i < w->rows * w->cols; i++)
        ((float *)w->data)[i] *= factor;
}

static void assert_told_once(void)
{
    assert_int_equal(n_warnings, 1);
    assert_string_equal(warning, "the KV cache cuts keys or values of layer 1 to 65504, the most that fp16 holds: --kv fp32");
}

static void test_what_is_cut_is_told(void **state)
{
    (void)state;
    static const char *const attentions[] = {"dense", "sparq"};
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        plant(of_keys, 1e6f);
        for (int i = 0; i < 2; i++)
            for (int n = 1; n < 10; n += 8) {
                yalm_session *half = open_kv(attentions[i], YALM_KV_FP16);
                eval(half, 0, n);
                eval(half, n, 1);
                assert_told_once();
                yalm_session_close(half);
                yalm_session *single = open_kv(attentions[i], YALM_KV_FP32);
                eval(single, 0, n);
                assert_int_equal(n_warnings, 0);
                yalm_session_close(single);
            }
        random_model_free(the_model);
    }
}

static void test_several_sessions(void **state)
{
    (void)state;
    plant(true, 1e6f);
    yalm_session *both[2] = {open_kv("dense", YALM_KV_FP16), open_kv("dense", YALM_KV_FP16)};
    yalm_error error = {0};
    const int32_t tokens[2] = {token_at(0), token_at(1)};
    assert_int_equal(yalm_eval_each(both, tokens, 2, &error), YALM_OK);
    assert_int_equal(n_warnings, 2);
    yalm_session_close(both[0]);
    yalm_session_close(both[1]);
    random_model_free(the_model);
}

static void test_vectors_of_texts(void **state)
{
    (void)state;
    plant(true, 1e6f);
    the_model->model.config.pooling = POOLING_MEAN;
    the_model->model.config.pooling_end = -1;
    yalm_session *half = open_kv("dense", YALM_KV_FP16);
    const int32_t tokens[] = {token_at(0), token_at(1), token_at(2)};
    const yalm_text texts[] = {{tokens, 3}, {tokens, 2}};
    float vectors[2 * 48];
    yalm_error error = {0};
    assert_int_equal(yalm_embed_texts(half, texts, 2, vectors, &error), YALM_OK);
    assert_told_once();
    yalm_session_close(half);
    random_model_free(the_model);
}

// Large ones are held, and of what is no number already nothing is said: the weights are wrong.
static void test_others_pass(void **state)
{
    (void)state;
    static const float factors[] = {1e4f, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        plant(false, factors[i]);
        yalm_session *half = open_kv("dense", YALM_KV_FP16);
        eval(half, 0, 9);
        assert_int_equal(n_warnings, 0);
        yalm_session_close(half);
        random_model_free(the_model);
    }
}

// SparQ's copy in fp16 of keys in fp32: with all keys selected its tail has no weight, and no score may be infinite or NaN.
static void test_a_copy_in_fp16(void **state)
{
    (void)state;
    plant(true, 1e6f);
    yalm_session_options options = small_options("sparq", 100), dense = small_options("dense", 100);
    static const char *const settings[] = {"sparq.copy=fp16", "sparq.from=1", "sparq.k=90", "sparq.tail=on"};
    options.settings = settings;
    options.n_settings = 4;
    yalm_session *a = open_with(options), *b = open_with(dense);
    for (int at = 0; at < 60; at++) {
        eval(a, at, 1);
        eval(b, at, 1);
        assert_true(distance(a, b) < 1e-5);
    }
    yalm_session_close(a);
    yalm_session_close(b);
    random_model_free(the_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_cut_is_told), cmocka_unit_test(test_several_sessions),
        cmocka_unit_test(test_vectors_of_texts),    cmocka_unit_test(test_others_pass),
        cmocka_unit_test(test_a_copy_in_fp16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
