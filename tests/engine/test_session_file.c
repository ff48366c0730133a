// Sessions in files: what is loaded goes on as what was saved would have; everything that does not fit is refused.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "engine/sessions.h"

static char path[64];

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(2, 8, 100);
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/session", directory);
    return 0;
}

static int set_up_kinds(void **state)
{
    (void)state;
    the_model = model_of_kinds(8, 100);
    assert_non_null(mkdtemp(strcpy(directory, "/tmp/yalm-sessions-XXXXXX")));
    snprintf(path, sizeof path, "%s/session", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    random_model_free(the_model);
    unlink(path);
    return rmdir(directory); // nothing else may have been left there
}

static void save(yalm_session *session)
{
    yalm_error error = {0};
    if (yalm_session_save(session, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static void refused(yalm_session_options options, const char *why)
{
    yalm_error error = {0};
    yalm_session *session = open_with(options);
    eval(session, 0, 3);
    assert_int_equal(yalm_session_load(session, path, &error), YALM_USAGE);
    if (!strstr(error.text, why))
        fail_msg("found '%s', expected '%s'", error.text, why);
    assert_int_equal(yalm_position(session), 0);
    assert_null(yalm_logits(session, 0));
    eval(session, 0, 5); // and it is of use
    yalm_session_close(session);
}

static void check_goes_on(yalm_session_options saved, yalm_session_options loaded, int n)
{
    yalm_session *a = open_with(saved), *b = open_with(loaded);
    eval(b, 7, 9); // which the file takes the place of
    eval(a, 0, n);
    save(a);
    yalm_error error = {0};
    if (yalm_session_load(b, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(yalm_position(b), n);
    assert_null(yalm_logits(b, 0));
    int32_t tokens[512];
    assert_int_equal(yalm_session_tokens(b, tokens, 512), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(tokens[i], token_at(i));
    assert_int_equal(yalm_session_tokens(b, tokens, 2), 2);
    assert_int_equal(tokens[0], token_at(n - 2));
    for (int step = 0; step < 5; step++) {
        eval(a, n + step, 1);
        eval(b, n + step, 1);
        assert_memory_equal(yalm_logits(a, 0), yalm_logits(b, 0), VOCAB * sizeof(float));
    }
    assert_int_equal(yalm_rollback(a, n - 1, NULL), YALM_OK);
    assert_int_equal(yalm_rollback(b, n - 1, NULL), YALM_OK);
    eval(a, n + 3, 2);
    eval(b, n + 3, 2);
    assert_memory_equal(yalm_logits(a, 0), yalm_logits(b, 0), VOCAB * sizeof(float));
    yalm_session_close(a);
    yalm_session_close(b);
}

static void test_goes_on(void **state)
{
    (void)state;
    for (int kv = YALM_KV_FP16; kv <= YALM_KV_INT8; kv++) {
        yalm_session_options o = small_options("dense", 64);
        o.kv = (yalm_kv)kv;
        check_goes_on(o, o, 2);
        check_goes_on(o, o, 40);
        yalm_session_options larger = o;
        larger.context = 90;
        check_goes_on(o, larger, 40);
        check_goes_on(larger, o, 40);
    }
}

// What was taken back is not kept, so it may have gone further than the next session's context.
static void test_taken_back(void **state)
{
    (void)state;
    yalm_session_options o = small_options("dense", 64), larger = o;
    larger.context = 90;
    yalm_session *a = open_with(larger), *b = open_with(o);
    eval(a, 0, 80);
    assert_int_equal(yalm_rollback(a, 40, NULL), YALM_OK);
    save(a);
    yalm_error error = {0};
    if (yalm_session_load(b, path, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(yalm_position(b), 40);
    eval(a, 40, 5);
    eval(b, 40, 5);
    assert_memory_equal(yalm_logits(a, 0), yalm_logits(b, 0), VOCAB * sizeof(float));
    yalm_session_close(a);
    yalm_session_close(b);
}

static void test_windows_that_have_come_round(void **state)
{
    (void)state;
    struct random_model *plain = the_model;
    the_model = small_model(2, 8, 100);
    for (int i = 0; i < CONFIG_MAX_KINDS; i++)
        the_model->model.config.kinds[i].sliding_window = 12;
    yalm_session_options o = small_options("dense", 90), other = o;
    check_goes_on(o, o, 60);
    other.chunk = 7;
    refused(other, "whose cache has come round: remove the file, or name another");
    random_model_free(the_model);
    the_model = plain;
}

static void test_what_does_not_fit(void **state)
{
    (void)state;
    yalm_session_options o = small_options("dense", 64), other = o;
    yalm_session *session = open_with(o);
    eval(session, 0, 40);
    save(session);
    other.context = 39;
    refused(other, "a session of 40 tokens, and the context holds 39 (-T N makes it larger)");
    other = o;
    other.kv = YALM_KV_FP16;
    refused(other, "a session with another --kv or --activations: remove the file, or name another");
    the_model->model.info.checksum++;
    refused(o, "a session of another model: remove the file, or name another");
    the_model->model.info.checksum--;
    yalm_session_close(session);

    yalm_error error = {0};
    session = open_with(small_options("sparq", 64));
    eval(session, 0, 40);
    assert_int_equal(yalm_session_save(session, path, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "attention: 'sparq' keeps more than keys and values"));
    yalm_session_close(session);
    o.endless = true;
    session = open_with(o);
    eval(session, 0, 80);
    assert_int_equal(yalm_session_save(session, path, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "a session of 80 tokens is past its context of 64"));
    yalm_session_close(session);
}

// Every byte changed, and every length that is too short.
static void test_damage(void **state)
{
    (void)state;
    const yalm_session_options o = small_options("dense", 64);
    yalm_session *session = open_with(o);
    eval(session, 0, 5);
    save(session);
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(n > 1000 && n < sizeof bytes);
    for (size_t at = 0; at < n; at += at < 200 ? 1 : 61) {
        for (int cut = 0; cut < 2; cut++) {
            file = fopen(path, "wb");
            bytes[at] = (char)(bytes[at] ^ 0x40);
            assert_int_equal(fwrite(bytes, 1, cut ? at : n, file), cut ? at : n);
            bytes[at] = (char)(bytes[at] ^ 0x40);
            fclose(file);
            yalm_error error = {0};
            if (yalm_session_load(session, path, &error) == YALM_OK)
                fail_msg("byte %zu changed, and loaded", at);
            assert_int_equal(error.status, YALM_USAGE);
            assert_int_equal(yalm_position(session), 0);
        }
    }
    yalm_session_close(session);
}

static void test_files(void **state)
{
    (void)state;
    yalm_error error = {0};
    yalm_session *session = open_with(small_options("dense", 64));
    eval(session, 0, 5);
    assert_int_equal(yalm_session_save(session, "/no/such/directory/x", &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "/no/such/directory/x: No such file"));
    assert_int_equal(yalm_session_load(session, "/no/such/file", &error), YALM_FAILED);
    assert_int_equal(yalm_session_load(session, directory, &error), YALM_USAGE);
    assert_int_equal(yalm_session_save(session, directory, &error), YALM_FAILED);
    yalm_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_windows_that_have_come_round),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_files),
    };
    const struct CMUnitTest of_kinds[] = {cmocka_unit_test(test_goes_on)};
    const int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    return failed + cmocka_run_group_tests(of_kinds, set_up_kinds, tear_down);
}
