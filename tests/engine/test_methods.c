// Attention methods on models of all kinds: where all keys are selected they equal dense attention, whatever else layers do;
// where few are, the same bits come by any way to the same cache. Layers that do not see the farthest are left as they are.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/scenarios.h"
#include "engine/sessions.h"
#include "settings_testing.h"

enum { N_SCENARIOS = sizeof scenarios / sizeof *scenarios, BOOK_CONTEXT = 100 };

static char book_path[64];

// Scenario i's model, and its codebooks.
static void take_model(int i)
{
    the_model = random_model_make(scenarios[i].config, scenarios[i].dtype, 3);
    the_model->model.config.bos = -1;
    the_model->model.container.mapping.path = "the model";
    calibrate(BOOK_CONTEXT, 1, book_path);
}

static void leave_model(void)
{
    unlink(book_path);
    random_model_free(the_model);
}

static yalm_session_options options_of(const struct scenario *c, const char *attention, const char *isa)
{
    yalm_session_options o = small_options(attention, c->context);
    o.chunk = 7;
    o.isa = isa;
    o.endless = c->endless;
    o.n_sinks = c->n_sinks;
    o.codebooks = book_path;
    SET_NONE(o);
    return o;
}

// Scores and keys of its own sort: by every instruction set; of others each by one. Latents no method serves: test_latents().
static bool is_special(const struct model_config *c)
{
    return c->latent.kv_rank == 0 && (c->attention_softcap > 0 || c->sink_logits || c->n_more_kinds > 0);
}

static void assert_near(const yalm_session *a, const yalm_session *b, const char *name, double tolerance)
{
    const double found = distance(a, b);
    if (!(found <= tolerance))
        fail_msg("%s: position %d: differ by %g", name, (int)yalm_position(a), found);
}

// Both methods that select, with all keys.
static void compare_with_dense(const struct scenario *c, const char *isa, bool tail)
{
    yalm_session_options of[3] = {options_of(c, "dense", isa), options_of(c, "sparq", isa), options_of(c, "hybrid", isa)};
    settings_use(&of[1], &(struct settings){.sparq = {.k = 1000, .from = 1, .tail = tail ? SWITCH_ON : SWITCH_OFF}});
    of[1].attention_ratio = of[2].attention_ratio = 1;
    settings_use(&of[2], &(struct settings){.hybrid = {.from = 1, .draw = tail ? SWITCH_ON : SWITCH_OFF}});
    yalm_session *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = open_with(of[i]);
    const int end = c->endless ? 70 : 110;
    for (int at = 0, n; at < end; at += n) {
        n = at % 5 == 2 ? 7 : 1;
        for (int i = 0; i < 3; i++)
            eval(s[i], at, n);
        const double tolerance = c->dtype == DTYPE_FP32 ? 1e-5 : 5e-4; // else what tokens are rounded to amplifies the last bit
        assert_near(s[1], s[0], c->name, tolerance);
        assert_near(s[2], s[0], c->name, tolerance);
    }
    for (int i = 0; i < 3; i++)
        yalm_session_close(s[i]);
}

static void test_all_keys_are_dense(void **state)
{
    (void)state;
    const struct cpu_kernels *const *usable = cpu_kernels_usable();
    int n_isas = 0;
    while (usable[n_isas])
        n_isas++;
    for (int i = 0; i < N_SCENARIOS; i++) {
        if (scenarios[i].config.latent.kv_rank)
            continue; // test_latents()
        take_model(i);
        for (int isa = 0; isa < n_isas; isa++)
            if (is_special(&scenarios[i].config) || isa == i % n_isas)
                compare_with_dense(&scenarios[i], usable[isa]->name, isa % 2);
        leave_model();
    }
}

// NoMAD's two ways: a token alone looks scores up, two together attend to decoded keys.
static void test_looked_up_is_decoded(void **state)
{
    (void)state;
    for (int i = 0; i < N_SCENARIOS; i++) {
        const struct scenario *c = &scenarios[i];
        if (!is_special(&c->config) || c->context < 2)
            continue;
        take_model(i);
        for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++) {
            yalm_session_options o = options_of(c, "nomad", (*k)->name);
            yalm_session *one = open_with(o), *two = open_with(o);
            yalm_error error = {0};
            const int32_t tokens[2] = {token_at(1), token_at(2)};
            fill(one, 60);
            fill(two, 60);
            eval(one, 1, 1);
            if (yalm_eval(two, tokens, 2, YALM_LOGITS_ALL, &error) != YALM_OK)
                fail_msg("%s", error.text);
            assert_near(one, two, c->name, 0.1); // what tables of bytes lose: test_nomad.c
            assert_true(distance(one, two) > 0);
            yalm_session_close(one);
            yalm_session_close(two);
        }
        leave_model();
    }
}

// Few keys, by tokens one by one, with detours that are taken back, behind a cache that was filled in other pieces.
static void go_two_ways(const struct scenario *c, yalm_session_options o)
{
    yalm_session *a = open_with(o), *b = open_with(o), *dense = open_with(options_of(c, "dense", o.isa));
    bool differs = false;
    fill(a, 60);
    fill(dense, 60);
    for (int n = 0; n < 60; n += 6)
        fill(b, 6);
    for (int at = 60; at < 100; at++) {
        eval(a, at, 1);
        eval(dense, at, 1);
        if (at % 6 == 3) { // other tokens
            eval(b, at + 500, 1 + at % 5);
            yalm_error error = {0};
            if (yalm_rollback(b, at, &error) != YALM_OK)
                fail_msg("%s: %s", c->name, error.text);
        }
        eval(b, at, 1);
        assert_same(a, b);
        differs |= distance(a, dense) > 0;
    }
    assert_true(differs);
    yalm_session_close(a);
    yalm_session_close(b);
    yalm_session_close(dense);
}

static void test_history_leaves_no_trace(void **state)
{
    (void)state;
    for (int i = 0; i < N_SCENARIOS; i++) {
        const struct scenario *c = &scenarios[i];
        if (!is_special(&c->config) || c->endless)
            continue;
        take_model(i);
        yalm_session_options sparq = options_of(c, "sparq", "auto"), hybrid = options_of(c, "hybrid", "auto");
        settings_use(&sparq, &(struct settings){.sparq = {.r = 5, .k = 20, .from = 30, .copy = i % 3, .tail = SWITCH_ON}});
        settings_use(&hybrid, &(struct settings){.hybrid = {.min_k = 12, .from = 30}});
        go_two_ways(c, sparq);
        go_two_ways(c, hybrid);
        go_two_ways(c, options_of(c, "nomad", "auto"));
        leave_model();
    }
}

static uint64_t bytes_kept(const char *attention, int i)
{
    yalm_memory memory;
    yalm_session_options o = options_of(&scenarios[i], attention, "auto");
    assert_int_equal(yalm_session_memory(&the_model->model, &o, &memory, NULL), YALM_OK);
    return memory.attention;
}

// What a method keeps is of the layers that see the farthest alone: of two layers one, with its own heads.
static void test_memory_of_far_layers(void **state)
{
    (void)state;
    static const char *const names[] = {"a window and a rotation of a layer's own", "shared keys, inputs of layers",
                                        "a recurrent layer"};
    for (size_t p = 0; p < sizeof names / sizeof *names; p++)
        for (int i = 0; i < N_SCENARIOS; i++) {
            if (strcmp(scenarios[i].name, names[p]) != 0)
                continue;
            take_model(i);
            const struct far_shape far = config_far(&the_model->model.config);
            assert_int_equal(far.n_layers, 1);
            // int8: a byte for each component in runs of 256 slots and a cache line; a scale for each slot
            const uint64_t heads = (uint64_t)far.n_layers * (uint64_t)far.n_kv_heads;
            assert_int_equal(bytes_kept("sparq", i), heads * (uint64_t)far.head_dim * (256 + 64) + heads * 256 * sizeof(float));
            assert_int_equal(bytes_kept("dense", i), 0);
            leave_model();
        }
}

// Of texts that share batches no token sees another's, whatever the layers are and whoever has their keys.
static void compare_texts(const struct scenario *c, const char *attention)
{
    enum { TEXTS = 9, DIM = 512 };
    static const int lengths[TEXTS] = {7, 1, 3, 6, 11, 2, 9, 5, 1};
    static float together[TEXTS * DIM], alone[DIM];
    yalm_session_options options = options_of(c, attention, "auto");
    options.chunk = 24;
    options.activations = YALM_ACTIVATIONS_FP32;
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&the_model->model, &options, &error);
    if (!session) { // weights that have no tokens in float32
        assert_non_null(strstr(error.text, "activations"));
        return;
    }
    const int dim = the_model->model.config.hidden_dim;
    assert_true(dim <= DIM);
    int32_t tokens[64];
    yalm_text texts[TEXTS];
    for (int i = 0; i < 64; i++)
        tokens[i] = token_at(i);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = (yalm_text){tokens + 5 * i, lengths[i] < c->context ? lengths[i] : c->context};
    if (yalm_embed_texts(session, texts, TEXTS, together, &error) != YALM_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < TEXTS; i++) {
        if (yalm_embed(session, texts[i].tokens, texts[i].n, alone, &error) != YALM_OK)
            fail_msg("%s", error.text);
        double cosine = 0;
        for (int j = 0; j < dim; j++)
            cosine += (double)together[i * dim + j] * (double)alone[j];
        if (!(cosine > 1 - 1e-3))
            fail_msg("%s, %s: text %d: cosine %g", c->name, attention, i, cosine);
    }
    yalm_session_close(session);
}

static void test_texts_together(void **state)
{
    (void)state;
    static const char *const attentions[] = {"dense", "sparq", "nomad", "hybrid"};
    for (int i = 0; i < N_SCENARIOS; i++) {
        if (scenarios[i].config.latent.kv_rank)
            continue; // test_latents()
        take_model(i);
        struct model_config *config = &the_model->model.config;
        config->pooling = POOLING_MEAN;
        config->pooling_end = -1;
        for (int j = 0; j < 4 && !config_kinds_share(config); j++)
            compare_texts(&scenarios[i], attentions[j]);
        leave_model();
    }
}

// Tokens that see those behind them come together: no method serves them.
static void test_both_ways(void **state)
{
    (void)state;
    struct model_config config = small_config(2, 20, 100);
    config.bidirectional = true;
    the_model = random_model_make(config, DTYPE_FP32, 3);
    yalm_session_options options = small_options("sparq", 100);
    yalm_memory memory;
    yalm_error error = {0};
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &memory, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "this model's tokens see those behind them, and come together: use dense"));
    random_model_free(the_model);
}

// Latents are kept in floats, for dense attention.
static void test_latents(void **state)
{
    (void)state;
    const struct model_config config = {SHAPE(4, 1, 30), LATENT(0)};
    the_model = random_model_make(config, DTYPE_FP32, 3);
    yalm_session_options sparq = small_options("sparq", 100), int8 = small_options("dense", 100), fp16 = int8, fp32 = int8;
    int8.kv = YALM_KV_INT8;
    fp16.kv = YALM_KV_FP16;
    fp32.kv = YALM_KV_FP32;
    yalm_memory memory;
    yalm_error error = {0};
    assert_int_equal(yalm_session_memory(&the_model->model, &sparq, &memory, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found sparq, but this model's tokens keep latents, not keys (MLA): use dense"));
    assert_int_equal(yalm_session_memory(&the_model->model, &int8, &memory, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "kv: found int8, but this model keeps latents (MLA)"));
    assert_int_equal(yalm_session_memory(&the_model->model, &fp16, &memory, &error), YALM_OK);
    const uint64_t half = memory.kv_cache;
    assert_int_equal(yalm_session_memory(&the_model->model, &fp32, &memory, &error), YALM_OK);
    assert_in_range(half, 2 * 100 * 30 * 2, 2 * 100 * 30 * 2 + 200); // layers, positions, one row each
    assert_true(memory.kv_cache > half);
    random_model_free(the_model);
}

int main(void)
{
    if (!mkdtemp(directory))
        return 1;
    snprintf(book_path, sizeof book_path, "%s/a.nomad", directory);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys_are_dense),
        cmocka_unit_test(test_looked_up_is_decoded),
        cmocka_unit_test(test_history_leaves_no_trace),
        cmocka_unit_test(test_memory_of_far_layers),
        cmocka_unit_test(test_texts_together),
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_latents),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
