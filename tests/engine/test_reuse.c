// Hybrid attention that attends to earlier selections again, over layers and over steps: off it is the same to the bit; dense attention where all keys are
// selected; near to a selection at each place where few are; the same on any number of threads and after a rollback.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sessions.h"

enum { LAYERS = 5, DIM = 20, CONTEXT = 400 };

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

static yalm_session_options options_of(const char *attention, int layers, int steps)
{
    yalm_session_options options = small_options(attention, CONTEXT);
    options.nomad.codebooks = book_path;
    options.hybrid.from = 1;
    options.hybrid.min_k = 24;
    options.hybrid.reuse_layers = layers;
    options.hybrid.reuse_steps = steps;
    return options;
}

// The most, or the mean, distance of n tokens behind `depth` random positions.
struct apart {
    double most, mean;
};

static struct apart apart(yalm_session_options a, yalm_session_options b, int depth, int n)
{
    yalm_session *x = open_with(a), *y = open_with(b);
    struct apart found = {0};
    fill(x, depth);
    fill(y, depth);
    for (int i = 0; i < n; i++) {
        eval(x, i, 1);
        eval(y, i, 1);
        const double d = distance(x, y);
        found.most = fmax(found.most, d);
        found.mean += d / n;
    }
    yalm_session_close(x);
    yalm_session_close(y);
    return found;
}

static void test_off_is_the_same(void **state)
{
    (void)state;
    assert_true(apart(options_of("hybrid", 0, 0), options_of("hybrid", 1, 1), 300, 10).most == 0);
    yalm_memory plain, one, layers, steps;
    yalm_error error = {0};
    yalm_session_options options[] = {options_of("hybrid", 0, 0), options_of("hybrid", 1, 1), options_of("hybrid", 2, 0),
                                      options_of("hybrid", 2, 4)};
    yalm_memory *memory[] = {&plain, &one, &layers, &steps};
    for (int i = 0; i < 4; i++)
        assert_int_equal(yalm_session_memory(&the_model->model, &options[i], memory[i], &error), YALM_OK);
    assert_int_equal(one.attention, plain.attention);
    assert_int_equal(layers.attention, plain.attention);
    // What three layers keep is said: 24 numbers of keys and more for each KV head.
    assert_true(steps.attention - plain.attention >= sizeof(int) * 3 * KV_HEADS * 24);
    assert_true(steps.attention - plain.attention < 2048);
}

// With ring and sinks, and with a window, which are passed in the middle of what is attended to again.
static void test_all_keys_are_dense(void **state)
{
    (void)state;
    static const int how[][2] = {{2, 1}, {3, 1}, {99, 1}, {1, 2}, {1, 7}, {1, 1000}, {2, 5}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        yalm_session_options hybrid = options_of("hybrid", how[i][0], how[i][1]), dense = options_of("dense", 0, 0);
        hybrid.hybrid.ratio = 1;
        assert_true(apart(hybrid, dense, 270, 20).most < 1e-5);
        hybrid.hybrid.dense_layers = 1;
        assert_true(apart(hybrid, dense, 1, 20).most < 1e-5);
        dense.endless = hybrid.endless = true;
        dense.context = hybrid.context = 40;
        dense.n_sinks = hybrid.n_sinks = 3;
        assert_true(apart(hybrid, dense, 25, 90).most < 1e-5);
        dense.n_sinks = hybrid.n_sinks = 0;
        assert_true(apart(hybrid, dense, 33, 30).most < 1e-5);
        the_model->model.config.sliding_window = 37;
        assert_true(apart(hybrid, dense, 30, 60).most < 1e-5);
        the_model->model.config.sliding_window = 0;
    }
}

// Few keys: something else is attended to, and the nearer to dense attention the more keys there are. (Queries of a random model's tokens have
// nothing in common, so that it shows no more than that.)
static void test_few_keys(void **state)
{
    (void)state;
    const yalm_session_options plain = options_of("hybrid", 1, 1), dense = options_of("dense", 0, 0);
    static const int how[][2] = {{2, 1}, {1, 4}, {2, 4}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        yalm_session_options again = options_of("hybrid", how[i][0], how[i][1]);
        assert_true(apart(again, plain, 300, 32).mean > 1e-4);
        double by_k[3];
        for (int j = 0; j < 3; j++) {
            again.hybrid.min_k = j == 0 ? 24 : j == 1 ? 160 : 300;
            by_k[j] = apart(again, dense, 300, 32).mean;
        }
        assert_true(by_k[1] < 0.8 * by_k[0] && by_k[2] < 0.5 * by_k[1]);
    }
    // Where tokens select nothing is different: the first behind a prefill, whatever its position.
    assert_true(apart(options_of("hybrid", 1, 8), plain, 301, 1).most == 0);
    assert_true(apart(options_of("hybrid", 1, 8), plain, 301, 2).most > 0);
}

// An endless text: 200 tokens through a ring of 40 positions.
static void test_threads(void **state)
{
    (void)state;
    for (int endless = 0; endless < 2; endless++) {
        yalm_session *sessions[3];
        for (int i = 0; i < 3; i++) {
            yalm_session_options options = options_of("hybrid", 2, 3);
            options.n_threads = 1 + 2 * i;
            options.hybrid.min_k = 12;
            if (endless) {
                options.endless = true;
                options.context = 40;
                options.n_sinks = 3;
            }
            sessions[i] = open_with(options);
            eval(sessions[i], 0, 33);
        }
        for (int t = 33; t < 233; t++)
            for (int i = 0; i < 3; i++) {
                eval(sessions[i], t, 1);
                assert_same(sessions[0], sessions[i]);
            }
        for (int i = 0; i < 3; i++)
            yalm_session_close(sessions[i]);
    }
}

// What was selected for a text that was taken back is not attended to again.
static void test_rollback(void **state)
{
    (void)state;
    yalm_error error = {0};
    for (int batch = 0; batch < 2; batch++)
        for (int other = 0; other < 7; other++) {
            yalm_session *a = open_with(options_of("hybrid", 1, 8)), *b = open_with(options_of("hybrid", 1, 8));
            fill(a, 300);
            fill(b, 300);
            for (int t = 0; t < other; t++) // another text
                eval(b, 90 + t, 1);
            assert_int_equal(yalm_rollback(b, 300, &error), YALM_OK);
            if (batch) {
                eval(a, 0, 5);
                eval(b, 0, 5);
            }
            for (int t = 5 * batch; t < 16; t++) {
                eval(a, t, 1);
                eval(b, t, 1);
                assert_same(a, b);
            }
            assert_int_equal(yalm_rollback(a, 0, &error), YALM_OK); // from the beginning, where nothing was selected yet
            yalm_session *fresh = open_with(options_of("hybrid", 1, 8));
            eval(a, 3, 1);
            eval(fresh, 3, 1);
            assert_same(a, fresh);
            yalm_session_close(a);
            yalm_session_close(b);
            yalm_session_close(fresh);
        }
}

static double bytes(int layers, int steps)
{
    yalm_session *session = open_with(options_of("hybrid", layers, steps));
    const double found = yalm_session_cost(session, 1, 300).bytes;
    yalm_session_close(session);
    return found;
}

static void test_cost(void **state)
{
    (void)state;
    const double codes = KV_HEADS * 16 / 2.0 * 301, // half of a key's 20, in whole eights
        row = KV_HEADS * DIM * 2.0 * sizeof(float); // of a layer; of a key and its value
    assert_true(bytes(0, 0) == bytes(1, 1));
    assert_true(fabs(bytes(1, 1) - bytes(2, 1) - 2 * codes) < 1); // three layers of five score
    assert_true(fabs(bytes(1, 1) - bytes(1, 5) - LAYERS * (codes * 4 / 5 - 2 * row)) < 1);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const words[] = {"hybrid reuse layers: found -1", "hybrid reuse steps: found -1"};
    for (int i = 0; i < 2; i++) {
        yalm_error error = {0};
        const yalm_session_options options = options_of("hybrid", i == 0 ? -1 : 0, i == 1 ? -1 : 0);
        assert_null(yalm_session_open(&the_model->model, &options, &error));
        assert_int_equal(error.status, YALM_USAGE);
        assert_non_null(strstr(error.text, words[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_is_the_same), cmocka_unit_test(test_all_keys_are_dense), cmocka_unit_test(test_few_keys),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_rollback),           cmocka_unit_test(test_cost),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("selections that are attended to again", tests, set_up, tear_down);
}
