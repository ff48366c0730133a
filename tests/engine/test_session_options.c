// A session's options through the public API: what is resolved, what is refused and how it is said, memory.
#include "engine/small_session.h"

static void test_defaults_are_resolved(void **state)
{
    (void)state;
    yalm_session *session = yalm_session_open(&the_model->model, NULL, NULL);
    assert_non_null(session);
    const yalm_session_options *facts = yalm_session_facts(session);
    assert_int_equal(facts->context, 100);
    assert_string_equal(facts->device, "cpu");
    assert_string_not_equal(facts->isa, "auto");
    assert_true(facts->n_threads >= 1 && facts->chunk >= 1);
    assert_null(yalm_logits(session, 0));
    assert_int_equal(yalm_sample(session, &(yalm_sampling){0}), -1);
    yalm_session_close(session);
}

static void refuse(yalm_session_options options, yalm_status status, const char *words)
{
    yalm_error error = {0};
    assert_null(yalm_session_open(&the_model->model, &options, &error));
    assert_says(&error, status, words);
    yalm_memory memory;
    if (status == YALM_USAGE)
        assert_int_equal(yalm_session_memory(&the_model->model, &options, &memory, &error), status);
    assert_null(yalm_session_open(&the_model->model, &options, NULL)); // an error object is optional
}

static void test_bad_options_are_refused(void **state)
{
    (void)state;
    yalm_session_options o = small_options();
    o.device = "tpu", refuse(o, YALM_USAGE, "'tpu'"), o = small_options();
    o.isa = "sse2", refuse(o, YALM_USAGE, "'sse2'"), o = small_options();
    o.context = -1, refuse(o, YALM_USAGE, "context"), o = small_options();
    o.context = INT32_MAX, refuse(o, YALM_USAGE, "context"), o = small_options();
    o.n_threads = -2, refuse(o, YALM_USAGE, "threads"), o = small_options();
    o.n_threads = 1000000, refuse(o, YALM_USAGE, "threads"), o = small_options();
    o.n_threads_batch = 1000000, refuse(o, YALM_USAGE, "threads"), o = small_options();
    o.chunk = -1, refuse(o, YALM_USAGE, "chunk"), o = small_options();
    o.chunk = INT32_MAX, refuse(o, YALM_USAGE, "chunk"), o = small_options();
    o.n_sinks = -1, refuse(o, YALM_USAGE, "sinks"), o = small_options();
    o.kv = 7, refuse(o, YALM_USAGE, "KV");
}

// A model that has a row for each position has none past them, and a sanitizer sees who reads further.
static void test_learned_positions_end_a_session(void **state)
{
    struct random_model *const other = the_model;
    struct model_config config = other->model.config;
    yalm_session_options o = small_options();
    int32_t tokens[20];
    config.learned_positions = true;
    config.context_length = 20;
    the_model = random_model_make(config, DTYPE_FP32, 3);
    o.context = 21, refuse(o, YALM_USAGE, "context: found 21, expected 1 to 20: the model has no rows for later positions");
    o.context = 20, o.endless = true, refuse(o, YALM_USAGE, "found an endless session, expected one of at most 20 tokens");
    o.endless = false;
    yalm_session *session = open_with(o);
    some_tokens(tokens, 20, 1);
    assert_int_equal(yalm_eval(session, tokens, 20, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, NULL), YALM_USAGE);
    yalm_session_close(session);
    o.context = 0;
    session = open_with(o);
    assert_int_equal(yalm_session_facts(session)->context, 20);
    yalm_session_close(session);
    random_model_free(the_model);
    the_model = other;
    (void)state;
}

static void test_what_positions_exclude(void **state)
{
    struct random_model *const other = the_model;
    struct model_config config = other->model.config;
    yalm_session_options o = small_options();
    config.n_kv_heads = config.n_heads;
    config.alibi = true;
    the_model = random_model_make(config, DTYPE_FP32, 3);
    o.endless = true, refuse(o, YALM_USAGE, "endless session: not with a model that has ALiBi"), o = small_options();
    o.exact = true, refuse(o, YALM_USAGE, "exact bits: not with a model that has ALiBi"), o = small_options();
    o.attention = "sparq", refuse(o, YALM_USAGE, "this model's scores fall with the distance (ALiBi)");
    random_model_free(the_model);
    config.alibi = false;
    config.qk_norm = config.rotated_qk_norm = true;
    the_model = random_model_make(config, DTYPE_FP32, 3);
    o.attention = "dense", o.endless = true;
    refuse(o, YALM_USAGE, "endless session: not with a model that has norms behind its rotation");
    random_model_free(the_model);
    the_model = other;
    (void)state;
}

// Texts that fill a batch beyond an endless session's context: no text is another's attention sink.
static void test_texts_of_an_endless_session(void **state)
{
    (void)state;
    enum { DIM = 48, TEXTS = 12, N = 5 };
    the_model->model.config.pooling = POOLING_MEAN;
    the_model->model.config.pooling_end = -1;
    yalm_session_options o = small_options();
    o.context = 20;
    o.chunk = 64;
    o.endless = true;
    yalm_session *session = open_with(o);
    int32_t tokens[TEXTS * N];
    float together[TEXTS * DIM], alone[DIM];
    yalm_text texts[TEXTS];
    yalm_error error = {0};
    some_tokens(tokens, TEXTS * N, 1);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = (yalm_text){tokens + i * N, N};
    assert_int_equal(yalm_embed_texts(session, texts, TEXTS, together, &error), YALM_OK);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(yalm_embed(session, texts[i].tokens, N, alone, &error), YALM_OK);
        for (int j = 0; j < DIM; j++)
            assert_float_equal(together[i * DIM + j], alone[j], 1e-5);
    }
    yalm_session_close(session);
    the_model->model.config.pooling = POOLING_NONE;
}

static void test_memory_is_said_before_it_is_taken(void **state)
{
    (void)state;
    yalm_session_options o = small_options();
    yalm_memory small, large;
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &small, NULL), YALM_OK);
    // keys and values, 2 layers, 2 heads of 12, 40 positions, 4 bytes; each tensor's rows begin on a cache line
    assert_in_range(small.kv_cache, 2 * 2 * 2 * 12 * 40 * 4, 2 * 2 * 2 * 12 * 40 * 4 + 128);
    assert_true(small.scratch > 0 && small.available > 0);
    o.kv = YALM_KV_FP16;
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &large, NULL), YALM_OK);
    assert_in_range(large.kv_cache, 2 * 2 * 2 * 12 * 40 * 2, 2 * 2 * 2 * 12 * 40 * 2 + 128);
    o.kv = YALM_KV_INT8; // an element a byte, and a float for each row of 12
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &large, NULL), YALM_OK);
    assert_in_range(large.kv_cache, 2 * 2 * 2 * 40 * (12 + 4), 2 * 2 * 2 * 40 * (12 + 4) + 256);
    o.context = 1 << 30;
    o.chunk = 512;
    refuse(o, YALM_NO_MEMORY, "not enough memory for a context of 1073741824");
}

static void test_what_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    yalm_error error;
    int32_t tokens[64];
    some_tokens(tokens, 64, 1);
    assert_int_equal(yalm_eval(session, tokens, 30, YALM_LOGITS_LAST, &error), YALM_OK);
    assert_int_equal(yalm_eval(session, tokens, 11, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_says(&error, YALM_USAGE, "the context holds 40 tokens: 30 are there and 11 more were given");
    assert_int_equal(yalm_position(session), 30);
    tokens[3] = 53;
    assert_int_equal(yalm_eval(session, tokens, 5, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_says(&error, YALM_USAGE, "token 4 of 5: found id 53, expected 0 to 52");
    tokens[3] = -1;
    assert_int_equal(yalm_eval(session, tokens, 5, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_int_equal(yalm_eval(session, tokens, 0, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_int_equal(yalm_eval(session, tokens, -5, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_int_equal(yalm_position(session), 30);
    tokens[3] = 0;
    assert_int_equal(yalm_eval(session, tokens, 10, YALM_LOGITS_LAST, &error), YALM_OK); // exactly full
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, &error), YALM_USAGE);
    yalm_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_resolved),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_learned_positions_end_a_session),
        cmocka_unit_test(test_what_positions_exclude),
        cmocka_unit_test(test_texts_of_an_endless_session),
        cmocka_unit_test(test_memory_is_said_before_it_is_taken),
        cmocka_unit_test(test_what_does_not_fit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
