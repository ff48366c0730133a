// Sessions on models with recurrent layers: where they can go back to, what an interruption leaves, files, and several at once.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sessions.h"
#include "thorough.h"

static char path[64];

static struct model_config config_of(void)
{
    return (struct model_config){.n_layers = 3,
                                 .hidden_dim = 48,
                                 .ffn_dim = 71,
                                 .n_heads = HEADS,
                                 .n_kv_heads = KV_HEADS,
                                 .head_dim = 8,
                                 .vocab_size = VOCAB,
                                 .context_length = 300,
                                 .bos = -1};
}

static int make(const struct model_config *config)
{
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    the_model = random_model_make(*config, DTYPE_FP32, 3);
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/session", directory);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    struct model_config config = config_of();
    config.n_more_kinds = 1;
    config.kind_of_layer[0] = config.kind_of_layer[2] = 1;
    config.kinds[1].delta =
        (struct delta_config){.n_key_heads = 2, .n_value_heads = 4, .key_dim = 12, .value_dim = 40, .conv_width = 4};
    config.output_gate = true;
    return make(&config);
}

static int set_up_convolution(void **state)
{
    (void)state;
    struct model_config config = config_of();
    config.n_more_kinds = 1;
    config.kind_of_layer[0] = config.kind_of_layer[2] = 1;
    config.kinds[1].delta = (struct delta_config){.conv_width = 5, .conv_dim = 48, .conv_bias = true};
    return make(&config);
}

static int set_up_scan(void **state)
{
    (void)state;
    struct model_config config = config_of();
    give_scan(&config, false, 4);
    return make(&config);
}

static int set_up_beside(void **state)
{
    (void)state;
    struct model_config config = config_of();
    config.n_layers = 1; // as many caches as with the others
    give_scan(&config, true, 4);
    return make(&config);
}

static int set_up_kda(void **state)
{
    (void)state;
    struct model_config config = config_of();
    give_kda(&config, 4);
    return make(&config);
}

static int tear_down(void **state)
{
    (void)state;
    random_model_free(the_model);
    unlink(path);
    return rmdir(directory);
}

// An emulated GPU takes a second for what a CPU does in a hundredth.
static bool briefly(void)
{
    return strcmp(sessions_device, "cpu") != 0 && !thorough();
}

static void roll_back(yalm_session *session, int64_t position)
{
    yalm_error error = {0};
    if (yalm_rollback(session, position, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

// Both go on alike, n tokens, one by one.
static void assert_alike_for(int n, yalm_session *a, yalm_session *b)
{
    assert_int_equal(yalm_position(a), yalm_position(b));
    for (int i = 0; i < n; i++) {
        eval(a, 200 + i, 1);
        eval(b, 200 + i, 1);
        assert_same(a, b);
    }
}

static void assert_go_on_alike(yalm_session *a, yalm_session *b)
{
    assert_alike_for(6, a, b);
}

// A session that has evaluated the text's first n tokens in the pieces that `like` had: 0 ends them.
static yalm_session *fresh(const int *pieces)
{
    yalm_session *session = open_with(small_options("dense", 300));
    for (int at = 0; *pieces; at += *pieces++)
        eval(session, at, *pieces);
    return session;
}

static void test_back_to_where_evaluations_began(void **state)
{
    (void)state;
    yalm_session *session = fresh((int[]){10, 5, 1, 1, 1, 0}), *same;
    assert_int_equal(yalm_rollback_point(session, 18), 18);
    assert_int_equal(yalm_rollback_point(session, 17), 17);
    assert_int_equal(yalm_rollback_point(session, 16), 10); // where the last piece of several tokens began
    assert_int_equal(yalm_rollback_point(session, 9), 0);
    yalm_error error = {0};
    assert_int_equal(yalm_rollback(session, 15, &error), YALM_USAGE);
    assert_string_equal(error.text, "roll back to 15: the session no longer holds what that position saw (18 written)");
    assert_int_equal(yalm_position(session), 18);

    roll_back(session, 17);
    same = fresh((int[]){10, 5, 1, 1, 0});
    assert_go_on_alike(session, same);
    yalm_session_close(same);
    roll_back(session, 10); // still kept
    same = fresh((int[]){10, 0});
    assert_go_on_alike(session, same);
    roll_back(session, 0);
    roll_back(same, 0);
    assert_go_on_alike(session, same);
    yalm_session_close(same);
    yalm_session_close(session);
}

// What was evaluated and taken back leaves nothing behind, whatever comes in its place.
static void test_another_end(void **state)
{
    (void)state;
    yalm_session *session = fresh((int[]){20, 4, 0}), *same = fresh((int[]){20, 0});
    for (int i = 0; i < 5; i++)
        eval(session, 90 + i, 1);
    roll_back(session, 20);
    eval(session, 50, 12);
    eval(same, 50, 12);
    assert_same(session, same);
    assert_int_equal(yalm_rollback_point(session, 31), 20); // at 28 and 29 there was another text
    assert_go_on_alike(session, same);
    yalm_session_close(session);
    yalm_session_close(same);
}

// A long prompt's last piece is short, so that a conversation can come back to it.
static void test_near_the_end_of_a_prompt(void **state)
{
    (void)state;
    yalm_session_options options = small_options("dense", 300);
    options.chunk = 128;
    yalm_session *session = open_with(options), *same = open_with(options);
    eval(session, 0, 200);
    for (int i = 0; i < 9; i++)
        eval(session, 200 + i, 1);
    assert_int_equal(yalm_rollback_point(session, 199), 184);
    roll_back(session, 184);
    int32_t tokens[184]; // in pieces that give them the same bits
    for (int i = 0; i < 184; i++)
        tokens[i] = token_at(i);
    assert_int_equal(yalm_eval(same, tokens, 128, YALM_LOGITS_NONE, NULL), YALM_OK);
    assert_int_equal(yalm_eval(same, tokens + 128, 56, YALM_LOGITS_NONE, NULL), YALM_OK);
    assert_go_on_alike(session, same);
    yalm_session_close(session);
    yalm_session_close(same);
}

static void test_interruption_spoils_nothing(void **state)
{
    (void)state;
    yalm_session *session = fresh((int[]){10, 3, 0}), *same = fresh((int[]){10, 3, 0});
    int32_t tokens[40] = {0};
    yalm_error error = {0};
    for (int layer = 0; layer < 3; layer++) {
        yalm_session_cancel(session);
        assert_int_equal(yalm_eval(session, tokens, layer == 0 ? 1 : 40, YALM_LOGITS_LAST, &error), YALM_INTERRUPTED);
        assert_int_equal(yalm_position(session), 13);
    }
    assert_go_on_alike(session, same);
    yalm_session_close(session);
    yalm_session_close(same);
}

static void test_files(void **state)
{
    (void)state;
    yalm_session *saved = fresh((int[]){10, 13, 1, 0}), *loaded = fresh((int[]){7, 0});
    yalm_error error = {0};
    if (yalm_session_save(saved, path, &error) != YALM_OK || yalm_session_load(loaded, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_go_on_alike(saved, loaded);
    roll_back(loaded, yalm_position(loaded) - 1);
    roll_back(saved, yalm_position(saved) - 1);
    assert_go_on_alike(saved, loaded);
    assert_int_equal(yalm_rollback_point(loaded, 7), 0); // of the text that the file took the place of
    yalm_session *unused = open_with(small_options("dense", 300));
    if (yalm_session_save(saved, path, &error) != YALM_OK || yalm_session_load(unused, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_go_on_alike(saved, unused);
    yalm_session_close(unused);
    yalm_session_close(saved);
    yalm_session_close(loaded);
}

static void test_several_sessions_at_once(void **state)
{
    (void)state;
    enum { N = 3 };
    yalm_session *alone[N], *together[N];
    for (int i = 0; i < N; i++) {
        alone[i] = fresh((int[]){4 + 5 * i, 0});
        together[i] = fresh((int[]){4 + 5 * i, 0});
    }
    for (int step = 0; step < 9; step++) {
        const int32_t tokens[] = {step, step + 7, 50 - step};
        if (step == 5)
            for (int i = 0; i < N; i++) {
                roll_back(alone[i], 4 + 5 * i + 4);
                roll_back(together[i], 4 + 5 * i + 4);
            }
        assert_int_equal(yalm_eval_each(together, tokens, N, NULL), YALM_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(yalm_eval(alone[i], &tokens[i], 1, YALM_LOGITS_LAST, NULL), YALM_OK);
            assert_same(alone[i], together[i]);
        }
    }
    for (int i = 0; i < N; i++) {
        yalm_session_close(alone[i]);
        yalm_session_close(together[i]);
    }
}

// A file is written of a session that stands behind one of the tokens that were evaluated ahead.
static void test_files_of_what_lies_ahead(void **state)
{
    (void)state;
    yalm_session *session = fresh((int[]){10, 0}), *same = fresh((int[]){10, 0}), *loaded = fresh((int[]){16, 0});
    int32_t expected[6];
    for (int i = 0; i < 6; i++)
        expected[i] = token_at(11 + i);
    assert_int_equal(yalm_expect(session, expected, 6), 6);
    for (int i = 0; i < 3; i++) {
        eval(session, 10 + i, 1);
        eval(same, 10 + i, 1);
    }
    assert_int_equal(yalm_rollback_point(session, 12), 12);
    yalm_error error = {0};
    if (yalm_session_save(session, path, &error) != YALM_OK || yalm_session_load(loaded, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(yalm_rollback_point(loaded, 12), 0); // of another text
    assert_go_on_alike(loaded, same);
    for (int i = 3; i < 7; i++) // the rest of what was expected comes after all
        eval(session, 10 + i, 1);
    yalm_session *whole = fresh((int[]){10, 1, 1, 1, 1, 1, 1, 1, 0});
    assert_int_equal(yalm_rollback_point(session, 17), 17);
    assert_go_on_alike(session, whole);
    yalm_session_close(whole);
    yalm_session_close(session);
    session = fresh((int[]){10, 0});
    assert_int_equal(yalm_expect(session, expected, 6), 6);
    for (int i = 0; i < 3; i++)
        eval(session, 10 + i, 1);
    roll_back(same, 18);
    roll_back(session, 12); // behind another of them
    eval(session, 12, 1);
    for (int i = 0; i < 5; i++)
        eval(session, 200 + i, 1);
    assert_go_on_alike(session, same);
    yalm_session_close(session);
    yalm_session_close(same);
    yalm_session_close(loaded);
}

// Pages and what stood behind them bring a session there, whatever it held; not a bit is different.
static void test_pages(void **state)
{
    (void)state;
    enum { PAGE = 5, N = 4 };
    const int alike = briefly() ? 2 : 6;
    int32_t tokens[PAGE * N], expected[9];
    yalm_session *saved = fresh((int[]){10, 0});
    yalm_error error = {0};
    void *pages[N], *carried = malloc(yalm_state_bytes(saved)); // of the exact sizes: a sanitizer sees each byte past them
    for (int i = 0; i < 9; i++)
        expected[i] = token_at(11 + i);
    expected[8] = (expected[8] + 1) % VOCAB;
    const int most = strcmp(sessions_device, "cpu") == 0 ? 9 : 7;
    assert_int_equal(yalm_expect(saved, expected, 9), most); // the last page and the state lie within what is expected
    for (int i = 0; i < 10; i++)
        eval(saved, 10 + i, 1);
    for (int i = 0; i < N; i++) {
        pages[i] = malloc(yalm_page_bytes(saved, PAGE));
        assert_int_equal(yalm_page_save(saved, i * PAGE, PAGE, pages[i], &error), YALM_OK);
    }
    for (int i = 0; i < PAGE * N; i++)
        tokens[i] = token_at(i);
    assert_int_equal(yalm_state_save(saved, carried, &error), YALM_OK);
    const int held[][16] = {{0}, {10, 1, 1, 1, 0}, {10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {0}};
    for (int i = briefly(); i < 4; i += 1 + briefly()) {
        yalm_session *loaded = fresh(held[i]);
        if (i == 3)
            eval(loaded, 100, 33);
        const void *const *all = (const void *const *)pages;
        assert_int_equal(yalm_page_load(loaded, tokens, PAGE, all, N, NULL, &error), YALM_USAGE);
        assert_non_null(strstr(error.text, "the state of recurrent layers that belongs to them is missing"));
        if (yalm_page_load(loaded, tokens, PAGE, all, N, carried, &error) != YALM_OK)
            fail_msg("%s", error.text);
        assert_null(yalm_logits(loaded, 0));
        assert_int_equal(yalm_rollback_point(loaded, 19), 0); // what it had there is of another text
        assert_alike_for(alike, saved, loaded);
        roll_back(loaded, PAGE * N + alike - 1);
        roll_back(saved, PAGE * N + alike - 1);
        assert_alike_for(alike, saved, loaded);
        assert_int_equal(yalm_page_load(saved, tokens, PAGE, all, N, carried, &error), YALM_OK);
        yalm_session_close(loaded);
    }
    // Saving changes nothing, whatever lies ahead.
    yalm_session *same = fresh((int[]){10, 0}), *other = fresh((int[]){10, 0});
    assert_int_equal(yalm_expect(same, expected, 9), most);
    for (int i = 0; i < (briefly() ? 5 : 12); i++) {
        eval(same, 10 + i, 1);
        eval(other, 10 + i, 1);
        assert_same(same, other);
        void *of_other = malloc(yalm_state_bytes(other));
        assert_int_equal(yalm_state_save(same, carried, &error), YALM_OK);
        assert_int_equal(yalm_state_save(other, of_other, &error), YALM_OK);
        assert_memory_equal(carried, of_other, yalm_state_bytes(other));
        free(of_other);
    }
    assert_alike_for(alike, same, other);
    yalm_session_close(same);
    yalm_session_close(other);
    roll_back(saved, 0);
    assert_int_equal(yalm_state_save(saved, carried, &error), YALM_USAGE);
    for (int i = 0; i < N; i++)
        free(pages[i]);
    free(carried);
    yalm_session_close(saved);
}

static void test_filled_caches(void **state)
{
    (void)state;
    yalm_session *session = fresh((int[]){10, 0});
    fill(session, 200); // positions without contents go on all the same
    eval(session, 0, 1);
    assert_int_equal(yalm_position(session), 211);
    const yalm_cost few = yalm_session_cost(session, 1, 10), more = yalm_session_cost(session, 1, 20);
    const struct model_config *c = &the_model->model.config;
    const double row =
        (double)config_cached_rows(c) * c->n_kv_heads * c->head_dim * sizeof(float); // of the one layer with a cache
    assert_true(more.bytes - few.bytes == 10 * row);
    yalm_session_close(session);
}

static void test_logits_are_the_cpus(void **state)
{
    (void)state;
    const char *device = sessions_device;
    yalm_session *session = fresh((int[]){10, 1, 3, 0});
    sessions_device = "cpu";
    yalm_session *other = fresh((int[]){10, 1, 3, 0});
    sessions_device = device;
    assert_true(distance(session, other) < 1e-5);
    for (int i = 0; i < 3; i++) {
        eval(session, 50 + i, 1);
        eval(other, 50 + i, 1);
        assert_true(distance(session, other) < 1e-5);
    }
    yalm_session_close(session);
    yalm_session_close(other);
}

// On the CPU, or on the device that is named.
int main(int argc, char **argv)
{
    sessions_device = argc > 1 ? argv[1] : sessions_device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_to_where_evaluations_began),
        cmocka_unit_test(test_another_end),
        cmocka_unit_test(test_near_the_end_of_a_prompt),
        cmocka_unit_test(test_interruption_spoils_nothing),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_files_of_what_lies_ahead),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_several_sessions_at_once),
        cmocka_unit_test(test_filled_caches),
    };
    const struct CMUnitTest of_layers[] = {
        // what differs between kinds of layers on a GPU
        cmocka_unit_test(test_logits_are_the_cpus),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_several_sessions_at_once),
        cmocka_unit_test(test_filled_caches),
    };
    int failed = cmocka_run_group_tests_name("Gated DeltaNet", tests, set_up, tear_down);
    if (strcmp(sessions_device, "cpu") != 0) { // scans in attention's place add nothing to those beside it
        failed += cmocka_run_group_tests_name("a convolution alone", of_layers, set_up_convolution, tear_down);
        failed += cmocka_run_group_tests_name("scans beside attention", of_layers, set_up_beside, tear_down);
        return failed + cmocka_run_group_tests_name("KDA between latents", of_layers, set_up_kda, tear_down);
    }
    failed += cmocka_run_group_tests_name("a convolution alone", tests, set_up_convolution, tear_down);
    failed += cmocka_run_group_tests_name("scans", tests, set_up_scan, tear_down);
    failed += cmocka_run_group_tests_name("KDA between latents", tests, set_up_kda, tear_down);
    return failed + cmocka_run_group_tests_name("scans beside attention", tests, set_up_beside, tear_down);
}
