// Pages of the KV cache: a session that was given them goes on as the one that they were copied from.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sessions.h"
#include "thorough.h"

enum { PAGE = 4, MOST = 32, LONG = 60, SHORT = 28 };

// An emulated GPU takes a second for what a CPU does in a hundredth.
static bool briefly(void)
{
    return strcmp(sessions_device, "cpu") != 0 && !thorough();
}

static void *pages[MOST];

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(3, 8, 100);
    return 0;
}

static int set_up_kinds(void **state)
{
    (void)state;
    the_model = model_of_kinds(8, 100);
    return 0;
}

static int set_up_latents(void **state)
{
    (void)state;
    the_model = model_of_latents(100);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++) {
        free(pages[i]);
        pages[i] = NULL;
    }
    random_model_free(the_model);
    return 0;
}

static int32_t *text(int n)
{
    static int32_t tokens[200];
    for (int i = 0; i < n; i++)
        tokens[i] = token_at(i);
    return tokens;
}

static void save_page(yalm_session *session, int i)
{
    yalm_error error = {0};
    free(pages[i]);
    pages[i] = malloc(yalm_page_bytes(session, PAGE)); // of the exact size: a sanitizer sees each byte past it
    if (yalm_page_save(session, (int64_t)i * PAGE, PAGE, pages[i], &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static void load_pages(yalm_session *session, int n)
{
    yalm_error error = {0};
    if (yalm_page_load(session, text(n * PAGE), PAGE, (const void *const *)pages, n, NULL, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(yalm_position(session), n * PAGE);
    assert_null(yalm_logits(session, 0));
}

// Reads n tokens in pieces of a page, and keeps each page when it is whole.
static yalm_session *read_and_save(yalm_session_options options, int n)
{
    yalm_session *session = open_with(options);
    for (int i = 0; i < n; i += PAGE) {
        eval(session, i, PAGE);
        save_page(session, i / PAGE);
    }
    return session;
}

static void assert_go_on_alike(yalm_session *a, yalm_session *b, int from)
{
    for (int step = 0; step < (briefly() ? 4 : 20); step++) {
        eval(a, from + step, 1);
        eval(b, from + step, 1);
        assert_same(a, b);
    }
}

// What was loaded behind nothing, behind a part of the same text, and behind another text; briefly, one of these by turns.
static void check_load(yalm_session_options options, int n, int turn)
{
    for (int held = 0; held < 3; held++) {
        if (briefly() && held != turn % 3)
            continue;
        yalm_session *a = read_and_save(options, n), *b = open_with(options);
        if (held)
            for (int i = 0; i < 11; i += PAGE)
                eval(b, (held == 1 ? 0 : 3) + i, i < 8 ? PAGE : 3);
        load_pages(b, n / PAGE);
        assert_go_on_alike(a, b, n);
        yalm_session_close(a);
        yalm_session_close(b);
    }
}

static void test_all_types(void **state)
{
    (void)state;
    for (int kv = YALM_KV_FP16; kv <= YALM_KV_INT8; kv++) {
        if (kv == YALM_KV_INT8 && the_model->model.config.latent.kv_rank)
            continue;
        yalm_session_options o = small_options("dense", 90);
        o.kv = (yalm_kv)kv;
        check_load(o, briefly() ? SHORT : LONG, kv);
        check_load(o, PAGE, kv + 1);
    }
}

// Layers of two kinds, whose rings are shorter, as long, and longer than a page, and come round several times.
static void test_windows(void **state)
{
    (void)state;
    struct model_config *config = &the_model->model.config;
    yalm_session_options o = small_options("dense", 90);
    o.chunk = PAGE;
    config->n_more_kinds = 1;
    config->kinds[1] = config->kinds[0];
    config->kind_of_layer[0] = config->kind_of_layer[2] = 1;
    for (int window = 1; window <= 20; window += briefly() ? window == 1 ? 3 : 16 : window < 7 ? 1 : 13) {
        config->kinds[1].sliding_window = window;
        check_load(o, briefly() ? SHORT : LONG, window / 2);
    }
    config->n_more_kinds = 0;
    config->kind_of_layer[0] = config->kind_of_layer[2] = 0;
}

// After a load a ring has what the next position sees and no more; the pages before lead back.
static void test_going_back(void **state)
{
    (void)state;
    the_model->model.config.kinds[0].sliding_window = 12;
    const yalm_session_options o = small_options("dense", 90);
    yalm_session *a = read_and_save(o, 60), *b = open_with(o), *c = open_with(o);
    load_pages(b, 10);
    eval(b, 40, 10);
    assert_int_equal(yalm_rollback(b, 39, NULL), YALM_USAGE);
    assert_int_equal(yalm_rollback(b, 44, NULL), YALM_OK);
    save_page(b, 10);
    yalm_error error = {0};
    assert_int_equal(yalm_page_save(b, 36, PAGE, pages[9], &error), YALM_OK); // what was loaded can be saved again
    assert_int_equal(yalm_page_save(b, 32, PAGE, pages[8], &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "a window has dropped them"));
    load_pages(c, 11);
    assert_go_on_alike(b, c, 44);
    load_pages(b, 5);
    eval(b, 20, PAGE);
    load_pages(c, 6);
    assert_go_on_alike(b, c, 24);
    assert_int_equal(yalm_rollback(b, 0, NULL), YALM_OK);
    eval(b, 0, 3);
    yalm_session_close(a);
    yalm_session_close(b);
    yalm_session_close(c);
    the_model->model.config.kinds[0].sliding_window = 0;
}

static void refused(yalm_status status, const yalm_error *error, const char *why)
{
    assert_int_equal(status, YALM_USAGE);
    if (!strstr(error->text, why))
        fail_msg("found '%s', expected '%s'", error->text, why);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    yalm_error error = {0};
    yalm_session_options o = small_options("dense", 30);
    yalm_session *session = read_and_save(o, 28);
    int32_t *tokens = text(40);
    const void *const *all = (const void *const *)pages;
    refused(yalm_page_save(session, 25, PAGE, pages[0], &error), &error, "a page of 4 tokens from 25 on: the session has 28");
    refused(yalm_page_save(session, -1, PAGE, pages[0], &error), &error, "the session has 28");
    refused(yalm_page_load(session, tokens, PAGE, all, 8, NULL, &error), &error, "pages of 32 tokens: the context holds 30");
    tokens[5] = VOCAB;
    refused(yalm_page_load(session, tokens, PAGE, all, 7, NULL, &error), &error, "found token id 53, expected 0 to 52");
    assert_int_equal(yalm_position(session), 28);
    yalm_session_close(session);
    session = open_with(small_options("sparq", 30));
    assert_int_equal(yalm_page_bytes(session, PAGE), 0);
    refused(yalm_page_load(session, tokens, PAGE, all, 1, NULL, &error), &error, "this session has none");
    yalm_session_close(session);
    o.endless = true;
    session = open_with(o);
    assert_int_equal(yalm_page_bytes(session, PAGE), 0);
    yalm_session_close(session);
}

// On the CPU, or on the device that is named.
int main(int argc, char **argv)
{
    sessions_device = argc > 1 ? argv[1] : sessions_device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_going_back),
        cmocka_unit_test(test_what_is_refused),
    };
    const struct CMUnitTest of_kinds[] = {cmocka_unit_test(test_all_types)};
    return cmocka_run_group_tests(tests, set_up, tear_down) + cmocka_run_group_tests(of_kinds, set_up_kinds, tear_down) +
           cmocka_run_group_tests(of_kinds, set_up_latents, tear_down);
}
