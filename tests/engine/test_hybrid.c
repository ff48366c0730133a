// Sessions with hybrid attention. They equal dense attention where all keys are selected, and are near to it where few are.
// Bits are the same however tokens came, and on any number of threads. And what it refuses.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/hybrid.h"
#include "engine/sessions.h"
#include "settings_testing.h"

enum { LAYERS = 2, DIM = 20, CONTEXT = 400 };

static char book_path[64];

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(LAYERS, DIM, CONTEXT);
    if (make_directory())
        return 1;
    snprintf(book_path, sizeof book_path, "%s/a.nomad", directory);
    calibrate(CONTEXT, 1, book_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(book_path);
    return end_sessions();
}

static yalm_session_options options_of(const char *attention, int context)
{
    yalm_session_options options = small_options(attention, context);
    options.codebooks = book_path;
    SET_NONE(options);
    SET(options, hybrid.from, 1);
    return options;
}

// One token behind `depth` random positions, by dense attention and by these options.
static double off_dense(yalm_session_options options, int depth)
{
    yalm_session_options plain = options;
    plain.attention = "dense";
    yalm_session *dense = open_with(plain), *hybrid = open_with(options);
    fill(dense, depth);
    fill(hybrid, depth);
    eval(dense, 1, 1);
    eval(hybrid, 1, 1);
    const double found = distance(hybrid, dense);
    yalm_session_close(dense);
    yalm_session_close(hybrid);
    return found;
}

static void test_all_keys_are_dense(void **state)
{
    (void)state;
    static const int depths[] = {1, 2, 31, 32, 33, 127, 300};
    for (int draw = SWITCH_ON; draw <= SWITCH_OFF; draw++) {
        yalm_session_options options = options_of("hybrid", CONTEXT);
        options.attention_ratio = 1;
        SET(options, hybrid.draw, draw);
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
            assert_true(off_dense(options, depths[i]) < 1e-5);
        options.context = 40;
        options.endless = true;
        for (int depth = 20; depth < 200; depth += 23) { // the ring goes round, sinks stand apart
            options.n_sinks = depth % 2 ? 3 : 0;
            assert_true(off_dense(options, depth) < 1e-5);
        }
        the_model->model.config.kinds[0].sliding_window = 37;
        for (int depth = 30; depth < 95; depth += 9)
            assert_true(off_dense(options_of("hybrid", CONTEXT), depth) < 1e-5); // the window is shorter than min_k
        the_model->model.config.kinds[0].sliding_window = 0;
    }
}

// Few keys, drawn or the best: the nearer the more there are, over several depths.
static void test_fewer_keys(void **state)
{
    (void)state;
    enum { DEPTHS = 8 };
    yalm_session_options options = options_of("hybrid", CONTEXT);
    double by_k[2][4] = {{0}};
    for (int draw = SWITCH_ON; draw <= SWITCH_OFF; draw++)
        for (int i = 0; i < 4; i++) {
            SET(options, hybrid.min_k, 8 << 2 * i);
            SET(options, hybrid.draw, draw);
            for (int j = 0; j < DEPTHS; j++)
                by_k[draw - 1][i] += off_dense(options, 330 + 7 * j) / DEPTHS;
        }
    for (int draw = 0; draw < 2; draw++) {
        assert_true(by_k[draw][0] > 1e-4 && by_k[draw][0] < 2); // something was left out
        assert_true(by_k[draw][2] < by_k[draw][0] && by_k[draw][3] < 1e-5);
    }
}

// Where it does not apply, it is dense attention to the bit.
static void test_dense_where_it_does_not_apply(void **state)
{
    (void)state;
    yalm_session_options options = options_of("hybrid", CONTEXT);
    SET(options, hybrid.min_k, 8);
    SET(options, hybrid.from, 200);
    assert_true(off_dense(options, 198) == 0 && off_dense(options, 199) > 0);
    SET(options, hybrid.from, 1);
    assert_true(off_dense(options, 300) > 0);
    SET_NONE(options); // below the length at which reading less pays
    assert_true(off_dense(options, 200) == 0);
}

// By default 768, but at most 3/16 and at least 1/8 of the keys, and 64; by a ratio its share, and at least 64. The most
// recent: a quarter of these, 16 at most.
static void test_how_many_keys(void **state)
{
    (void)state;
    static const int n[] = {100, 2048, 4096, 8192, 16384, 65536}, usual[] = {64, 384, 768, 1024, 2048, 8192};
    yalm_session_options options = yalm_session_defaults();
    struct hybrid h;
    yalm_error error;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        options.attention_ratio = 0;
        assert_int_equal(hybrid_resolve(&h, &options, &error), YALM_OK);
        assert_int_equal(hybrid_selected(&h, n[i]), usual[i]);
        assert_true(n[i] == 100 || hybrid_selected(&h, n[i]) <= n[i] * 3 / 16);
        options.attention_ratio = 1.0F / 32; // as asked for
        assert_int_equal(hybrid_resolve(&h, &options, &error), YALM_OK);
        assert_int_equal(hybrid_selected(&h, n[i]), n[i] / 32 < 64 ? 64 : n[i] / 32);
    }
    assert_int_equal(hybrid_local(&h, 20), 5);
    assert_int_equal(hybrid_local(&h, 64), 16);
    assert_int_equal(hybrid_local(&h, 1024), 16);
}

// By default it begins where reading less pays. What it reads is 8 bytes of codes, 3/16 of the rows of 160 bytes, and 192 KB
// for the steps. From 1,612 keys on that is less than all rows; lengths are tried in steps of 64.
static void test_the_break_even_length(void **state)
{
    (void)state;
    yalm_session_options options = options_of("hybrid", 2000);
    SET_NONE(options);
    static const int below[] = {1, 255, 256, 1000, 1662};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        assert_true(off_dense(options, below[i]) == 0);
    assert_true(off_dense(options, 1663) > 0);
    options.context = 1663; // so long it never gets
    assert_true(off_dense(options, 1662) == 0);
    options.context = 2000;
    for (int window = 256; window <= 448; window += 64) { // whatever multiple of 64 the window is
        the_model->model.config.kinds[0].sliding_window = window;
        assert_true(off_dense(options, 1500) == 0);
    }
    the_model->model.config.kinds[0].sliding_window = 0;
}

// One thread takes whole KV heads, four share out each step.
static void threads_and_rollback(enum setting_switch draw)
{
    yalm_error error = {0};
    yalm_session *sessions[4];
    for (int i = 0; i < 4; i++) {
        yalm_session_options options = options_of("hybrid", CONTEXT);
        options.n_threads = i == 0 ? 1 : 4;
        options.chunk = i == 2 ? 100 : 3;
        SET(options, hybrid.min_k, 20);
        SET(options, hybrid.draw, draw);
        sessions[i] = open_with(options);
        for (int done = 0; done < 300; done += i == 1 ? 1 : 300)
            assert_int_equal(yalm_fill_random(sessions[i], i == 1 ? 1 : 300, 5, &error), YALM_OK);
        for (int t = 0; t < 20; t++)
            eval(sessions[i], t, 1);
        if (i == 3) { // another text, taken back
            eval(sessions[i], 5, 40);
            eval(sessions[i], 7, 1);
            assert_int_equal(yalm_rollback(sessions[i], 320, &error), YALM_OK);
        }
        for (int t = 20; t < 40; t++)
            eval(sessions[i], t, 1);
    }
    for (int i = 1; i < 4; i++)
        assert_same(sessions[0], sessions[i]);
    for (int i = 0; i < 4; i++)
        yalm_session_close(sessions[i]);
}

static void test_bulk_threads_and_rollback(void **state)
{
    (void)state;
    threads_and_rollback(SWITCH_AUTO);
    threads_and_rollback(SWITCH_OFF);
}

static void test_memory_and_cost(void **state)
{
    (void)state;
    yalm_memory dense, hybrid;
    yalm_error error = {0};
    yalm_session_options options = options_of("dense", 384);
    options.kv = YALM_KV_FP16;
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &dense, &error), YALM_OK);
    yalm_session *plain = open_with(options);
    options.attention = "hybrid";
    SET(options, hybrid.min_k, 10);
    options.attention_ratio = 0.01f;
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &hybrid, &error), YALM_OK);
    assert_int_equal(hybrid.kv_cache, dense.kv_cache); // keys stay
    // Codes of 384 slots in runs and of 32 in a block, a line's rest behind that, and which tile it is of; what codes stand
    // for; whole cache lines of each.
    enum { RUNS = DIM * 384 / 2, BLOCK = DIM * 16 + 48, TABLES = DIM * 16, RANGES = DIM * 3 * 4 };
    assert_int_equal(hybrid.attention, LAYERS * KV_HEADS * (RUNS + BLOCK + TABLES + RANGES) + 64);
    yalm_session *session = open_with(options);
    const double saved = yalm_session_cost(plain, 1, 300).bytes - yalm_session_cost(session, 1, 300).bytes;
    // Of 301 keys and values in fp16, ten are read, and half a byte for each of 16 components of all keys.
    assert_true(fabs(saved - LAYERS * KV_HEADS * (DIM * 291 * 4 - 301 * 16 * 0.5)) < 1);
    yalm_session_close(plain);
    yalm_session_close(session);
}

static void assert_refused(const char *setting, const char *words)
{
    yalm_error error = {0};
    yalm_session_options options = options_of("hybrid", CONTEXT);
    options.settings = &setting;
    options.n_settings = 1;
    assert_null(yalm_session_open(&the_model->model, &options, &error));
    if (error.status != YALM_USAGE || !strstr(error.text, words))
        fail_msg("status %d, '%s': expected '%s'", (int)error.status, error.text, words);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("hybrid.codes=-1", "setting 'hybrid.codes=-1': expected a number or a fraction from 0 to 1");
    assert_refused("hybrid.codes=3/2", "setting 'hybrid.codes=3/2': expected a number or a fraction from 0 to 1");
    assert_refused("hybrid.codes=nan", "setting 'hybrid.codes=nan'");
    assert_refused("hybrid.codes=1/0", "setting 'hybrid.codes=1/0'");
    assert_refused("hybrid.min_k=-2", "setting 'hybrid.min_k=-2': expected an integer from 0");
    assert_refused("hybrid.local=2.5", "setting 'hybrid.local=2.5': expected an integer from 0");
    assert_refused("hybrid.from=", "setting 'hybrid.from='");
    assert_refused("hybrid.from=1x", "setting 'hybrid.from=1x'");
    assert_refused("hybrid.draw=often", "setting 'hybrid.draw=often': expected one of auto,on,off");
    assert_refused("hybrid.drew=on", "setting 'hybrid.drew=on': expected KEY=VALUE");
    assert_refused("hybrid.draw", "setting 'hybrid.draw': expected KEY=VALUE");
    yalm_error error = {0};
    yalm_session_options options = options_of("hybrid", CONTEXT);
    options.codebooks = "/nonexistent/a.nomad";
    assert_null(yalm_session_open(&the_model->model, &options, &error));
    assert_int_equal(error.status, YALM_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys_are_dense),
        cmocka_unit_test(test_fewer_keys),
        cmocka_unit_test(test_dense_where_it_does_not_apply),
        cmocka_unit_test(test_how_many_keys),
        cmocka_unit_test(test_the_break_even_length),
        cmocka_unit_test(test_bulk_threads_and_rollback),
        cmocka_unit_test(test_memory_and_cost),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("hybrid attention", tests, set_up, tear_down);
}
