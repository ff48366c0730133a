// Sessions with NoMAD attention: against dense attention where it must be equal, against itself by another way where it must be
// the same to the bit, and what it refuses.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/calibrate.h"
#include "engine/session.h"
#include "engine/sessions.h"
#include "model/rope.h"
#include "settings_testing.h"

// One layer: in a second one, keys would differ a little by either way and fall to other centroids here and there.
enum { LAYERS = 1, DIM = 20, CONTEXT = 100 };

static char book_path[64], scratch_path[64];

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(LAYERS, DIM, CONTEXT);
    if (make_directory())
        return 1;
    snprintf(book_path, sizeof book_path, "%s/a.nomad", directory);
    snprintf(scratch_path, sizeof scratch_path, "%s/b.nomad", directory);
    calibrate(CONTEXT, 1, book_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(book_path);
    unlink(scratch_path);
    return end_sessions();
}

static yalm_session_options options_of(const char *attention, int context)
{
    yalm_session_options options = small_options(attention, context);
    options.codebooks = book_path;
    return options;
}

// 16 positions, and codebooks whose centroids are exactly their keys: nothing is lost but what 8-bit tables lose, and nothing
// at all with decoded keys.
static void test_keys_on_centroids(void **state)
{
    (void)state;
    static uint16_t keys[LAYERS * KV_HEADS * 16 * DIM];
    static float centroids[LAYERS * KV_HEADS * DIM * 16];
    const struct key_record record = {keys, 16, 0};
    yalm_session *dense = open_with(options_of("dense", 16));
    dense->backend->record(dense->state, &record);
    eval(dense, 0, 15);
    eval(dense, 15, 1);
    dense->backend->record(dense->state, NULL);
    double frequencies[DIM / 2];
    const double scale = rope_frequencies(frequencies, &the_model->model.config.kinds[0].rope, DIM, 1);
    for (int row = 0; row < LAYERS * KV_HEADS * 16; row++) {
        float cos[DIM / 2], sin[DIM / 2], key[DIM];
        rope_angles(cos, sin, frequencies, scale, DIM, row % 16);
        cpu_kernels_select("scalar")->to_fp32[DTYPE_FP16](key, keys + row * DIM, DIM);
        cpu_kernels_select("scalar")->rope(key, cos, sin, DIM);
        for (int c = 0; c < DIM; c++)
            centroids[(row / 16 * DIM + c) * 16 + row % 16] = key[c];
    }
    yalm_error error = {0};
    struct new_file writer;
    assert_int_equal(codebook_create(&writer, scratch_path, &error), YALM_OK);
    const yalm_status status =
        codebook_write(&writer, &(struct codebook){.d_sub = 1, .positions = 16, .samples = 16, .centroids = centroids},
                       &the_model->model.container, &the_model->model.config, &error);
    assert_int_equal(new_file_finish(&writer, status, &error), YALM_OK);

    yalm_session_options options = options_of("nomad", 16);
    options.codebooks = scratch_path;
    yalm_session *nomad = open_with(options), *bulk = open_with(options);
    for (int i = 0; i < 16; i++)
        eval(nomad, i, 1);
    eval(bulk, 0, 16);
    assert_true(distance(bulk, dense) < 3e-3); // keys were recorded in fp16
    assert_true(distance(nomad, dense) < 5e-2);
    yalm_session_close(nomad);
    yalm_session_close(bulk);
    yalm_session_close(dense);
}

// Look-ups in 8-bit tables against dense attention on decoded keys: the same codes, filled in, and one token by either way.
// What the tables lose at this model's large scores is 0.02 to 0.1; the kernels' tests have their exact bound.
static void compare_ways(yalm_session_options options, int depth, double tolerance)
{
    yalm_error error = {0};
    yalm_session *one = open_with(options), *two = open_with(options);
    assert_int_equal(yalm_fill_random(one, depth, 7, &error), YALM_OK);
    assert_int_equal(yalm_fill_random(two, depth, 7, &error), YALM_OK);
    int32_t tokens[2] = {token_at(1), token_at(2)};
    eval(one, 1, 1);
    assert_int_equal(yalm_eval(two, tokens, 2, YALM_LOGITS_ALL, &error), YALM_OK); // its first token sees what `one` sees
    const double found = distance(one, two);
    if (!(found < tolerance))
        fail_msg("depth %d: differ by %g", depth, found);
    assert_true(found > 0); // not the same way
    yalm_session_close(one);
    yalm_session_close(two);
}

static void test_equals_dense_on_decoded_keys(void **state)
{
    (void)state;
    static const int depths[] = {1, 15, 31, 32, 33, 63, 97};
    for (int kv = YALM_KV_FP16; kv <= YALM_KV_INT8; kv++)
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
            yalm_session_options options = options_of("nomad", CONTEXT);
            options.kv = (yalm_kv)kv;
            compare_ways(options, depths[i], 0.12);
        }
    for (int depth = 20; depth < 200; depth += 23) { // the ring goes round, sinks stand apart
        yalm_session_options options = options_of("nomad", 40);
        options.endless = true;
        options.n_sinks = depth % 2 ? 3 : 0;
        compare_ways(options, depth, 0.12);
    }
    the_model->model.config.kinds[0].sliding_window = 37;
    for (int depth = 30; depth < 95; depth += 9)
        compare_ways(options_of("nomad", CONTEXT), depth, 0.12);
    the_model->model.config.kinds[0].sliding_window = 0;
    for (int d_sub = 2; d_sub <= 4; d_sub *= 2) {
        calibrate(CONTEXT, d_sub, scratch_path);
        yalm_session_options options = options_of("nomad", CONTEXT);
        options.codebooks = scratch_path;
        compare_ways(options, 77, 0.12);
    }
}

// Codes written one by one and many at once, by one thread and by several, are the same; so is all that follows.
static void test_bulk_and_threads(void **state)
{
    (void)state;
    yalm_error error = {0};
    yalm_session *sessions[3];
    for (int i = 0; i < 3; i++) {
        yalm_session_options options = options_of("nomad", 2000);
        options.n_threads = i == 0 ? 1 : 4;
        options.chunk = i == 2 ? 500 : 3;
        sessions[i] = open_with(options);
        for (int done = 0; done < 1500; done += i == 1 ? 1 : 1500)
            assert_int_equal(yalm_fill_random(sessions[i], i == 1 ? 1 : 1500, 5, &error), YALM_OK);
        for (int t = 0; t < 40; t++)
            eval(sessions[i], t, 1);
    }
    assert_same(sessions[0], sessions[1]);
    assert_same(sessions[0], sessions[2]);
    for (int i = 0; i < 3; i++)
        yalm_session_close(sessions[i]);
}

static void test_rollback(void **state)
{
    (void)state;
    yalm_error error = {0};
    yalm_session *one = open_with(options_of("nomad", CONTEXT)), *two = open_with(options_of("nomad", CONTEXT));
    for (int i = 0; i < 60; i++)
        eval(one, i, 1);
    for (int i = 0; i < 45; i++)
        eval(two, i, 1);
    for (int i = 45; i < 70; i++)
        eval(two, i * 5, 1); // another text
    assert_int_equal(yalm_rollback(two, 45, &error), YALM_OK);
    for (int i = 45; i < 60; i++)
        eval(two, i, 1);
    assert_same(one, two);
    yalm_session_close(one);
    yalm_session_close(two);
}

// What is skipped has less than that share, so the result moves by about as much at most.
static void test_skip(void **state)
{
    (void)state;
    static const float skips[] = {0.001f, 0.1f, 0.5f};
    double found[3];
    yalm_error error = {0};
    yalm_session *all = open_with(options_of("nomad", CONTEXT));
    assert_int_equal(yalm_fill_random(all, 90, 7, &error), YALM_OK);
    eval(all, 1, 1);
    for (int i = 0; i < 3; i++) {
        yalm_session_options options = options_of("nomad", CONTEXT);
        SET(options, nomad.skip, skips[i]);
        yalm_session *some = open_with(options);
        assert_int_equal(yalm_fill_random(some, 90, 7, &error), YALM_OK);
        eval(some, 1, 1);
        found[i] = distance(some, all);
        yalm_session_close(some);
    }
    assert_true(found[0] < 0.005 && found[1] < 0.2 && found[2] < 1 && found[2] > 1e-6);
    yalm_session_close(all);
}

static void test_memory(void **state)
{
    (void)state;
    yalm_memory dense, nomad;
    yalm_error error = {0};
    yalm_session_options options = options_of("dense", 96);
    options.kv = YALM_KV_FP16;
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &dense, &error), YALM_OK);
    options.attention = "nomad";
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &nomad, &error), YALM_OK);
    assert_int_equal(nomad.kv_cache * 2, dense.kv_cache);
    assert_int_equal(nomad.attention, LAYERS * KV_HEADS * 96 * DIM / 2);
    yalm_session *session = open_with(options);
    // Codes of half a byte and values of two: a token's cost grows with the depth by that, and dense by four.
    const double grown = yalm_session_cost(session, 1, 90).bytes - yalm_session_cost(session, 1, 50).bytes;
    assert_true(fabs(grown - 40 * LAYERS * KV_HEADS * DIM * 2.5) < 1);
    yalm_session_close(session);
}

static void assert_refused(yalm_session_options options, yalm_status status, const char *words)
{
    yalm_error error = {0};
    yalm_memory memory;
    assert_null(yalm_session_open(&the_model->model, &options, &error));
    if (error.status != status || !strstr(error.text, words))
        fail_msg("status %d, '%s': expected '%s'", (int)error.status, error.text, words);
    assert_int_equal(yalm_session_memory(&the_model->model, &options, &memory, &error), status);
}

static void test_refusals(void **state)
{
    (void)state;
    yalm_session_options options = options_of("nomad", CONTEXT);
    SET(options, nomad.skip, 1);
    assert_refused(options, YALM_USAGE, "setting 'nomad.skip=1': expected a number or a fraction from 0 to 0.99");
    SET(options, nomad.skip, NAN);
    assert_refused(options, YALM_USAGE, "setting 'nomad.skip=nan'");
    SET(options, nomad.skip, 0);
    options.codebooks = "/nonexistent/a.nomad";
    assert_refused(options, YALM_FAILED, "/nonexistent/a.nomad: No such file");
    options.codebooks = NULL;
    assert_refused(options, YALM_FAILED, "the model.nomad: No such file");
    options.codebooks = book_path;
    the_model->model.container.metadata_checksum = 99;
    assert_refused(options, YALM_BAD_MODEL, "codebooks of another model");
    the_model->model.container.metadata_checksum = 0;
}

static void cancel_when_learning(void *context, const char *what, double part)
{
    (void)part;
    if (strstr(what, "learning"))
        yalm_session_cancel(context);
}

static void test_calibration_refusals(void **state)
{
    (void)state;
    yalm_error error = {0};
    int32_t tokens[64] = {0};
    yalm_session *session = open_with(options_of("dense", 40));
    yalm_calibration how = yalm_calibration_defaults();
    const struct {
        int d_sub, samples, positions, iterations;
        size_t n;
        const char *words;
    } bad[] = {{3, 64, 0, 5, 64, "d_sub: found 3"},
               {1, 15, 0, 5, 64, "samples: found 15"},
               {1, 64, -1, 5, 64, "positions: found -1"},
               {1, 64, 0, 0, 64, "iterations of k-means: found 0"},
               {1, 64, 0, 5, 15, "text: found 15 tokens"}};
    unlink(scratch_path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        how.d_sub = bad[i].d_sub;
        how.samples = bad[i].samples;
        how.positions = bad[i].positions;
        how.iterations = bad[i].iterations;
        assert_int_equal(yalm_calibrate(session, tokens, bad[i].n, &how, scratch_path, NULL, &error), YALM_USAGE);
        if (!strstr(error.text, bad[i].words))
            fail_msg("'%s' does not say '%s'", error.text, bad[i].words);
        assert_int_equal(access(scratch_path, F_OK), -1);
    }
    how = yalm_calibration_defaults();
    how.progress = cancel_when_learning;
    how.context = session;
    assert_int_equal(yalm_calibrate(session, tokens, 64, &how, scratch_path, NULL, &error), YALM_INTERRUPTED);
    assert_int_equal(access(scratch_path, F_OK), -1);
    how.progress = NULL; // the cancellation is over
    assert_int_equal(yalm_calibrate(session, tokens, 64, &how, scratch_path, NULL, &error), YALM_OK);
    assert_int_equal(access(scratch_path, F_OK), 0);
    yalm_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_on_centroids),
        cmocka_unit_test(test_equals_dense_on_decoded_keys),
        cmocka_unit_test(test_bulk_and_threads),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_calibration_refusals),
    };
    return cmocka_run_group_tests_name("NoMAD attention", tests, set_up, tear_down);
}
