// Vectors of several texts: none shows in another's, and all are looked at before the first is evaluated.

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/random_model.h"

enum { TEXTS = 9, VOCAB = 67, CONTEXT = 32, DIM = 64 };

static struct random_model *make_model(void)
{
    struct model_config config = {.n_layers = 2,
                                  .hidden_dim = DIM,
                                  .ffn_dim = 96,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .head_dim = 16,
                                  .vocab_size = VOCAB,
                                  .context_length = CONTEXT,
                                  .pooling = POOLING_MEAN,
                                  .pooling_end = 2,
                                  .bos = -1};
    return random_model_make(config, DTYPE_FP32, 3);
}

static yalm_session *open_session(const struct random_model *m, bool endless, yalm_error *error)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.n_threads = 1;
    options.context = CONTEXT;
    options.chunk = 4 * CONTEXT;
    options.endless = endless;
    options.n_sinks = 4;
    options.kv = YALM_KV_FP32;
    options.activations = YALM_ACTIVATIONS_FP32;
    return yalm_session_open(&m->model, &options, error);
}

static int32_t tokens[TEXTS][CONTEXT];
static yalm_text texts[TEXTS];

static void make_texts(void)
{
    for (int i = 0; i < TEXTS; i++) {
        for (int t = 0; t < CONTEXT; t++)
            tokens[i][t] = (7 * i + 5 * t * (i + 1) + 3) % VOCAB;
        texts[i] = (yalm_text){tokens[i], 1 + 11 * i % (CONTEXT - 2)};
    }
}

// In an endless session, too, whose first tokens those behind its context go on to see.
static void test_alone_and_together(void **state)
{
    (void)state;
    struct random_model *m = make_model();
    make_texts();
    for (int endless = 0; endless < 2; endless++) {
        yalm_error error = {0};
        float together[TEXTS][DIM], alone[DIM];
        yalm_session *s = open_session(m, endless, &error);
        assert_non_null(s);
        assert_int_equal(yalm_embed_texts(s, texts, TEXTS, together[0], &error), YALM_OK);
        for (int i = 0; i < TEXTS; i++) {
            assert_int_equal(yalm_embed(s, texts[i].tokens, texts[i].n, alone, &error), YALM_OK);
            for (int k = 0; k < DIM; k++)
                assert_float_equal(together[i][k], alone[k], 1e-5);
        }
        yalm_session_close(s);
    }
    random_model_free(m);
}

static void test_refused_before_any_is_evaluated(void **state)
{
    (void)state;
    struct random_model *m = make_model();
    make_texts();
    yalm_error error = {0};
    float vectors[TEXTS][DIM] = {{0}};
    yalm_session *s = open_session(m, false, &error);
    assert_non_null(s);
    assert_int_equal(yalm_text_most(s), CONTEXT - 1);
    texts[TEXTS - 1].n = CONTEXT - 1;
    assert_int_equal(yalm_embed_texts(s, texts, TEXTS, vectors[0], &error), YALM_OK);
    memset(vectors, 0, sizeof vectors);
    texts[TEXTS - 1].n = CONTEXT;
    assert_int_equal(yalm_embed_texts(s, texts, TEXTS, vectors[0], &error), YALM_USAGE);
    assert_string_equal(error.text, "text 9 of 9: the text has 33 tokens, and the context holds 32");
    for (int i = 0; i < TEXTS; i++)
        assert_true(vectors[i][0] == 0);
    yalm_session_close(s);
    random_model_free(m);
}

// In place, and of length 1 again.
static void test_cut(void **state)
{
    (void)state;
    struct random_model *m = make_model();
    float vectors[3][4] = {{3, 4, 0, 0}, {0, 0, 5, 1}, {1, 1, 1, 1}}, *const flat = vectors[0];
    yalm_error error = {0};
    m->model.config.hidden_dim = 4;
    assert_int_equal(yalm_cut_vectors(&m->model, flat, 3, 2, &error), YALM_USAGE);
    assert_int_equal(yalm_cut_vectors(&m->model, flat, 3, 4, &error), YALM_OK);
    m->model.config.matryoshka = 2;
    assert_int_equal(yalm_cut_vectors(&m->model, flat, 3, 1, &error), YALM_USAGE);
    assert_int_equal(yalm_cut_vectors(&m->model, flat, 3, 5, &error), YALM_USAGE);
    assert_true(flat[0] == 3 && flat[11] == 1);
    assert_int_equal(yalm_cut_vectors(&m->model, flat, 3, 2, &error), YALM_OK);
    const float expected[] = {0.6f, 0.8f, 0, 0, sqrtf(0.5f), sqrtf(0.5f)};
    for (int i = 0; i < 6; i++)
        assert_float_equal(flat[i], expected[i], 1e-7);
    m->model.config.hidden_dim = DIM;
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_and_together),
        cmocka_unit_test(test_refused_before_any_is_evaluated),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
