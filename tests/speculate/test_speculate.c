// Speculation changes no token and no bit, whatever it guesses and however the clock goes.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/random_model.h"
#include "speculate/draft.h"
#include "speculate/speculate.h"

enum { VOCAB = 67, TOKENS = 150 };

static struct model_config config_with(int vocab)
{
    return (struct model_config){.n_layers = 2,
                                 .hidden_dim = 64,
                                 .ffn_dim = 96,
                                 .n_heads = 4,
                                 .n_kv_heads = 2,
                                 .head_dim = 16,
                                 .vocab_size = vocab,
                                 .context_length = 512,
                                 .bos = -1};
}

static struct random_model *model_with_window(int window, int vocab, uint64_t seed)
{
    struct model_config config = config_with(vocab);
    config.kinds[0].sliding_window = window;
    return random_model_make(config, DTYPE_FP16, seed);
}

static struct random_model *model_with(int vocab, uint64_t seed)
{
    return model_with_window(0, vocab, seed);
}

static yalm_mtp own_head = YALM_MTP_OFF;

static yalm_session_options options_with(const char *attention)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.n_threads = 2;
    options.attention = attention;
    options.mtp = own_head;
    return options;
}

// One by which every evaluation takes a second, and one by which any takes anything.
static double ticks, chaos;
static double steady(void)
{
    return ticks += 0.5;
}
static double wild(void)
{
    chaos = chaos * 1.7 + 0.3;
    return chaos = chaos > 9 ? chaos - 9 : chaos;
}

struct written {
    int32_t tokens[TOKENS];
    float logits[VOCAB];
    struct speculation_counts counts;
};

static void write_text(const struct random_model *m, const char *attention, float temperature, struct speculator *speculator,
                       struct written *written)
{
    const yalm_session_options options = options_with(attention);
    yalm_error error;
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    assert_non_null(session);
    yalm_sampling sampling = yalm_sampling_defaults();
    sampling.temperature = temperature;
    sampling.presence_penalty = temperature > 0 ? 0.2f : 0;
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    const int n = sizeof prompt / sizeof *prompt;
    yalm_seed(session, 5);
    assert_int_equal(yalm_eval(session, prompt, n, YALM_LOGITS_LAST, NULL), YALM_OK);
    speculator_begin(speculator);
    speculator_read(speculator, prompt, n);
    for (int i = 0; i < TOKENS; i++) {
        written->tokens[i] = yalm_sample(session, &sampling);
        assert_int_equal(speculator_eval(speculator, session, written->tokens[i], NULL), YALM_OK);
        assert_int_equal(yalm_position(session), n + i + 1);
    }
    memcpy(written->logits, yalm_logits(session, 0), sizeof written->logits);
    written->counts = speculator_counts(speculator);
    yalm_session_close(session);
}

static void check_same(const struct written *one, const struct written *other)
{
    assert_memory_equal(one->tokens, other->tokens, sizeof one->tokens);
    assert_memory_equal(one->logits, other->logits, sizeof one->logits);
}

static void test_the_text_is_the_same(void **state)
{
    (void)state;
    struct random_model *m = model_with(VOCAB, 4);
    static const float temperatures[] = {0, 0.3f, 1};
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        struct written plain, guessed;
        write_text(m, "dense", temperatures[t], NULL, &plain);
        double (*const clocks[])(void) = {steady, wild, NULL};
        for (size_t c = 0; c < 3; c++) {
            struct speculator *speculator = speculator_open(NULL, clocks[c]);
            for (int round = 0; round < 2; round++) { // the second time it knows the text
                write_text(m, "dense", temperatures[t], speculator, &guessed);
                check_same(&plain, &guessed);
                assert_int_equal(guessed.counts.tokens, TOKENS * (round + 1));
            }
            if (clocks[c] == steady)
                assert_true(guessed.counts.evaluations < TOKENS * 3 / 2);
            speculator_forget(speculator);
            assert_int_equal(speculator_counts(speculator).tokens, 0);
            speculator_close(speculator);
        }
    }
    random_model_free(m);
}

// The model itself, which is always right, and ones that know nothing: the last two guess tokens that it has not, and are given
// tokens that they have not.
static void test_drafts(void **state)
{
    (void)state;
    struct random_model *m = model_with(VOCAB, 4);
    struct random_model *drafts[] = {m, model_with(VOCAB, 9), model_with(5 * VOCAB, 9), model_with(VOCAB / 2, 9)};
    yalm_error error;
    const yalm_session_options options = options_with("dense");
    struct written plain, guessed;
    write_text(m, "dense", 0, NULL, &plain);
    for (int i = 0; i < 4; i++) {
        struct draft *draft = draft_open(&drafts[i]->model, &options, &error);
        assert_non_null(draft);
        struct speculator *speculator = speculator_open(draft, steady);
        write_text(m, "dense", 0, speculator, &guessed);
        check_same(&plain, &guessed);
        if (i == 0)
            assert_true(guessed.counts.evaluations < TOKENS / 4);
        speculator_close(speculator);
        draft_close(draft);
    }
    for (int i = 0; i < 4; i++)
        random_model_free(drafts[i]);
}

// A model whose next token depends on the last one alone, with a head that says just that, or, of `others`, anything.
static struct random_model *model_with_head(bool others)
{
    struct model_config config = config_with(VOCAB);
    config.mtp = (struct mtp_config){true, true, true};
    struct random_model *m = random_model_make(config, DTYPE_FP32, 4);
    struct model_weights *w = &m->model.weights;
    for (int l = 0; l < 3; l++) {
        memset((void *)w->layers[l].o.data, 0, sizeof(float) * 64 * 64);
        memset((void *)w->layers[l].experts[0].down.data, 0, sizeof(float) * 64 * 96);
    }
    float *projection = (float *)w->mtp_projection.data; // x = rmsnorm(the token's row of the embedding)
    for (int i = 0; i < 64 * 128 && !others; i++)
        projection[i] = i % 128 == i / 128;
    for (int i = 0; i < 64; i++)
        ((float *)w->mtp_embedding_norm)[i] = 1;
    m->model.mtp_weights.norm = w->norm;
    return m;
}

static void test_the_models_own_head(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct random_model *m = model_with_head(others);
        for (int t = 0; t < 3; t++) {
            static const float temperatures[] = {0, 0.2f, 1};
            struct written plain, without, guessed;
            own_head = YALM_MTP_OFF;
            write_text(m, "dense", temperatures[t], NULL, &plain);
            struct speculator *suffix_alone = speculator_open(NULL, steady);
            write_text(m, "dense", temperatures[t], suffix_alone, &without);
            speculator_close(suffix_alone);
            own_head = YALM_MTP_ON;
            double (*const clocks[])(void) = {steady, wild, NULL};
            for (size_t c = 0; c < 3; c++) {
                struct speculator *speculator = speculator_open(NULL, clocks[c]);
                write_text(m, "dense", temperatures[t], speculator, &guessed);
                check_same(&plain, &guessed);
                if (clocks[c] == steady && !others && t < 2) // at 1 nobody knows what is drawn
                    assert_true(guessed.counts.evaluations < without.counts.evaluations * 9 / 10);
                if (clocks[c] == steady)
                    assert_true(guessed.counts.evaluations < without.counts.evaluations + TOKENS / 25);
                speculator_close(speculator);
            }
        }
        own_head = YALM_MTP_OFF;
        random_model_free(m);
    }
}

// It cannot go back to where another text begins alike, and reads that from its beginning.
static void test_a_draft_whose_window_has_gone_by(void **state)
{
    (void)state;
    struct random_model *m = model_with_window(8, VOCAB, 4);
    yalm_error error;
    yalm_session_options options = options_with("dense");
    options.chunk = 16;
    struct draft *draft = draft_open(&m->model, &options, &error);
    assert_non_null(draft);
    for (int i = 0; i < 2; i++) {
        struct written guessed;
        struct speculator *speculator = speculator_open(draft, steady);
        write_text(m, "dense", 0, speculator, &guessed);
        assert_true(guessed.counts.evaluations < TOKENS / 4);
        speculator_close(speculator);
    }
    draft_close(draft);
    random_model_free(m);
}

static void test_a_draft_must_have_the_vocabulary(void **state)
{
    (void)state;
    struct random_model *m = model_with(VOCAB, 4), *other = model_with(VOCAB + 1, 4);
    m->model.info = (yalm_model_info){.name = "one", .vocab_size = VOCAB};
    other->model.info = (yalm_model_info){.name = "other", .vocab_size = VOCAB + 1};
    yalm_error error;
    assert_int_equal(draft_check(&m->model, &m->model, &error), YALM_OK);
    assert_int_equal(draft_check(&other->model, &m->model, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "a draft must have the same"));
    random_model_free(m);
    random_model_free(other);
}

// A method that selects keys evaluates one by one: then there is nothing to guess.
static void test_where_nothing_is_evaluated_ahead(void **state)
{
    (void)state;
    struct random_model *m = model_with(VOCAB, 4);
    struct written plain, guessed;
    struct speculator *speculator = speculator_open(NULL, steady);
    write_text(m, "sparq", 0, NULL, &plain);
    write_text(m, "sparq", 0, speculator, &guessed);
    check_same(&plain, &guessed);
    assert_int_equal(guessed.counts.evaluations, TOKENS);
    assert_int_equal(guessed.counts.guessed, 0);
    speculator_close(speculator);
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_text_is_the_same),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_the_models_own_head),
        cmocka_unit_test(test_a_draft_whose_window_has_gone_by),
        cmocka_unit_test(test_a_draft_must_have_the_vocabulary),
        cmocka_unit_test(test_where_nothing_is_evaluated_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
