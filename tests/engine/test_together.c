// Sessions that are evaluated together: each gets the bits that it would have alone, whatever the others are.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/kinds.h"
#include "engine/random_model.h"
#include "engine/testing_devices.h"
#include "thorough.h"

enum { SESSIONS = 11, VOCAB = 67, STEPS = 9, MOST_PROMPT = 40 };

struct kind_of_model {
    enum dtype dtype;
    int n_experts, window;
    yalm_kv kv;
    yalm_activations activations;
    const char *attention;
    enum { LLAMA, GEMMA, LATENTS, OLDER } sort; // GEMMA: layers of four kinds, or with experts norms of their own
};

static const struct kind_of_model kinds[] = {
    {DTYPE_FP32, 0, 0, YALM_KV_FP32, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_FP16, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_BF16, 0, 20, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_Q8, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_Q4, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_Q4, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT8, "dense", LLAMA},
    {DTYPE_Q4N, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT8, "dense", LLAMA},
    {DTYPE_Q6, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_Q5, 5, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT8, "dense", LLAMA},
    {DTYPE_Q5U, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_Q4A, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT8, "dense", LLAMA},
    {DTYPE_FP8, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_FP32, "dense", LLAMA},
    {DTYPE_Q4, 5, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_FP16, 5, 12, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
    {DTYPE_FP16, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "sparq", LLAMA},
    {DTYPE_BF16, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", GEMMA},
    {DTYPE_Q4, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_INT8, "dense", GEMMA},
    {DTYPE_BF16, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LATENTS},
    {DTYPE_Q8, 5, 12, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", GEMMA},
    {DTYPE_BF16, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", OLDER},
    {DTYPE_Q8, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_INT16, "dense", OLDER},
};

static struct random_model *model_of(const struct kind_of_model *kind)
{
    struct model_config config = {.n_layers = 2,
                                  .hidden_dim = 160,
                                  .ffn_dim = 208,
                                  .n_heads = 6,
                                  .n_kv_heads = 2,
                                  .head_dim = 16,
                                  .vocab_size = VOCAB,
                                  .context_length = 64,
                                  .n_experts = kind->n_experts,
                                  .n_active_experts = kind->n_experts ? 2 : 0,
                                  .kinds = {{.sliding_window = kind->window}},
                                  .bos = -1};
    if (kind->sort == OLDER) { // blocks side by side, rows of positions, scores that fall with the distance
        config.n_kv_heads = config.n_heads;
        config.layer_norm = config.parallel = config.alibi = config.learned_positions = config.classifier_bias = true;
        config.activation = ACTIVATION_RELU2;
    }
    if (kind->sort == GEMMA && kind->n_experts) {
        config.norms_around = config.expert_norms = true;
        config.shared_ffn_dim = 96;
    } else if (kind->sort == GEMMA)
        give_kinds(&config);
    if (kind->sort == LATENTS)
        give_latents(&config);
    return random_model_make(config, kind->dtype, 11);
}

static yalm_session *open_session(const struct random_model *m, const struct kind_of_model *kind, const char *isa,
                                  int n_threads)
{
    static const char *const settings[] = {"sparq.from=1", "sparq.min_k=4"};
    yalm_session_options options = yalm_session_defaults();
    options.device = device;
    options.isa = isa;
    options.several = true;
    options.n_threads = n_threads;
    options.kv = kind->kv;
    options.activations = kind->activations;
    options.attention = kind->attention;
    options.settings = settings;
    options.n_settings = strcmp(kind->attention, "sparq") ? 0 : 2;
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session && error.status == YALM_USAGE && strstr(error.text, "activations"))
        return NULL; // these weights have no such activations
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static int32_t token_of(int session, int i)
{
    return (int32_t)((i * 37 + session * 11 + i * i) % VOCAB);
}

// Prompts of different lengths, so that positions differ.
static void read_prompt(yalm_session *session, int i)
{
    int32_t prompt[MOST_PROMPT];
    const int n = 1 + i * 7 % MOST_PROMPT;
    for (int j = 0; j < n; j++)
        prompt[j] = token_of(i, j);
    assert_int_equal(yalm_eval(session, prompt, n, YALM_LOGITS_LAST, NULL), YALM_OK);
}

static void check(const struct random_model *m, const struct kind_of_model *kind, const char *isa, int n, int n_threads)
{
    yalm_session *alone[SESSIONS], *together[SESSIONS];
    for (int i = 0; i < n; i++) {
        alone[i] = open_session(m, kind, isa, n_threads);
        together[i] = open_session(m, kind, isa, n_threads);
        if (!alone[i])
            return;
        read_prompt(alone[i], i);
        read_prompt(together[i], i);
    }
    for (int step = 0; step < (!on_gpu() ? STEPS : thorough() ? 4 : 2); step++) {
        int32_t tokens[SESSIONS];
        yalm_error error = {0};
        for (int i = 0; i < n; i++)
            tokens[i] = token_of(i, 100 + step);
        if (yalm_eval_each(together, tokens, n, &error) != YALM_OK)
            fail_msg("%s", error.text);
        for (int i = 0; i < n; i++) {
            assert_int_equal(yalm_eval(alone[i], &tokens[i], 1, YALM_LOGITS_LAST, NULL), YALM_OK);
            if (memcmp(yalm_logits(alone[i], 0), yalm_logits(together[i], 0), sizeof(float) * VOCAB))
                fail_msg("%s, dtype %d, session %d of %d, step %d: other bits than alone", isa, kind->dtype, i, n, step);
            assert_int_equal(yalm_position(alone[i]), yalm_position(together[i]));
        }
    }
    for (int i = 0; i < n; i++) {
        yalm_session_close(alone[i]);
        yalm_session_close(together[i]);
    }
}

static void test_bits_are_those_of_a_session_alone(void **state)
{
    (void)state;
    static const int numbers[] = {2, 5, 7, 8, SESSIONS};
    for (size_t k = on_gpu(); k < sizeof kinds / sizeof *kinds; k += on_gpu() ? 2 : 1) { // all are in test_ahead.c, too
        struct random_model *m = model_of(&kinds[k]);
        for (int isa = 0; isa_to_test(isa); isa++)
            for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                if (on_gpu() ? numbers[i] == (k == 1 ? SESSIONS : 2) : thorough() || (k + (size_t)isa + i) % 5 == 0)
                    check(m, &kinds[k], isa_to_test(isa), numbers[i], 1 + (int)i % 3);
        random_model_free(m);
    }
}

// On a GPU caches may differ, and a method is one that tokens follow one after another.
static void test_caches_and_methods_that_are_not_alike(void **state)
{
    (void)state;
    static const struct kind_of_model mixed[] = {
        {DTYPE_Q4, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
        {DTYPE_Q4, 0, 0, YALM_KV_INT8, YALM_ACTIVATIONS_INT16, "dense", LLAMA},
        {DTYPE_Q4, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "sparq", LLAMA},
    };
    struct random_model *m = model_of(&mixed[0]);
    yalm_session *alone[3], *together[3];
    for (int i = 0; i < 3; i++) {
        alone[i] = open_session(m, &mixed[i], "auto", 1);
        together[i] = open_session(m, &mixed[i], "auto", 1);
    }
    for (int round = 0; round < 3; round++) {
        const int32_t tokens[] = {token_of(0, round), token_of(1, round), token_of(2, round)};
        assert_int_equal(yalm_eval_each(together, tokens, 3, NULL), YALM_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(yalm_eval(alone[i], &tokens[i], 1, YALM_LOGITS_LAST, NULL), YALM_OK);
            assert_memory_equal(yalm_logits(together[i], 0), yalm_logits(alone[i], 0), sizeof(float) * VOCAB);
        }
    }
    for (int i = 0; i < 3; i++) {
        yalm_session_close(alone[i]);
        yalm_session_close(together[i]);
    }
    random_model_free(m);
}

// Threads, and what tokens become, may differ: then one after another.
static void test_sessions_that_are_not_alike(void **state)
{
    (void)state;
    if (on_gpu()) // which has neither
        skip();
    const struct kind_of_model kind = {DTYPE_Q4, 0, 0, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, "dense", false};
    struct random_model *m = model_of(&kind);
    yalm_session *sessions[] = {open_session(m, &kind, "scalar", 1), open_session(m, &kind, "scalar", 2)};
    for (int round = 0; round < 3; round++) {
        assert_int_equal(yalm_eval_each(sessions, (int32_t[]){5, 5}, 2, NULL), YALM_OK);
        assert_memory_equal(yalm_logits(sessions[0], 0), yalm_logits(sessions[1], 0), sizeof(float) * VOCAB);
        yalm_session *const turned[] = {sessions[1], sessions[0]};
        assert_int_equal(yalm_eval_each(turned, (int32_t[]){6, 6}, 2, NULL), YALM_OK);
    }
    assert_int_equal(yalm_position(sessions[0]), 6);
    yalm_session_close(sessions[0]);
    yalm_session_close(sessions[1]);
    random_model_free(m);
}

static void test_what_cannot_be_done_changes_nothing(void **state)
{
    (void)state;
    struct random_model *m = model_of(&kinds[1]), *other = model_of(&kinds[1]);
    yalm_session *a = open_session(m, &kinds[1], "auto", 2), *b = open_session(m, &kinds[1], "auto", 2),
                 *c = open_session(other, &kinds[1], "auto", 2);
    yalm_error error;
    assert_int_equal(yalm_eval_each((yalm_session *[]){a, b}, (int32_t[]){1, VOCAB}, 2, &error), YALM_USAGE);
    assert_int_equal(yalm_eval_each((yalm_session *[]){a, a}, (int32_t[]){1, 2}, 2, &error), YALM_USAGE);
    assert_string_equal(error.text, "sessions 1 and 2 are the same one");
    assert_int_equal(yalm_eval_each((yalm_session *[]){a, c}, (int32_t[]){1, 2}, 2, &error), YALM_USAGE);
    assert_int_equal(yalm_eval_each((yalm_session *[]){a}, (int32_t[]){1}, 0, &error), YALM_USAGE);
    yalm_session_cancel(b);
    assert_int_equal(yalm_eval_each((yalm_session *[]){a, b}, (int32_t[]){1, 2}, 2, &error), YALM_INTERRUPTED);
    assert_int_equal(yalm_position(a) + yalm_position(b) + yalm_position(c), 0);
    assert_int_equal(yalm_eval_each((yalm_session *[]){a, b}, (int32_t[]){1, 2}, 2, &error), YALM_OK);
    yalm_session_close(a); // the first, whose options the common state was opened by
    assert_int_equal(yalm_eval_each((yalm_session *[]){b}, (int32_t[]){1}, 1, &error), YALM_OK);
    yalm_session *d = open_session(m, &kinds[1], "auto", 2);
    assert_int_equal(yalm_eval_each((yalm_session *[]){b, d}, (int32_t[]){1, 2}, 2, &error), YALM_OK);
    yalm_session_close(b);
    yalm_session_close(c);
    yalm_session_close(d);
    random_model_free(m);
    random_model_free(other);
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_a_session_alone),
        cmocka_unit_test(test_caches_and_methods_that_are_not_alike),
        cmocka_unit_test(test_sessions_that_are_not_alike),
        cmocka_unit_test(test_what_cannot_be_done_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
