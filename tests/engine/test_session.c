// Sessions through the public API: rollback, cancellation, cost, sampling, threads.

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "engine/small_session.h"
#include "util/clock.h"

static void check_rollback(yalm_kv kv)
{
    yalm_session_options o = small_options();
    o.kv = kv;
    yalm_session *session = open_with(o);
    int32_t tokens[40], others[40];
    float before[53];
    some_tokens(tokens, 40, 1);
    some_tokens(others, 40, 5);
    assert_int_equal(yalm_eval(session, tokens, 20, YALM_LOGITS_LAST, NULL), YALM_OK);
    memcpy(before, yalm_logits(session, 0), sizeof before);
    assert_int_equal(yalm_eval(session, others, 20, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_int_equal(yalm_rollback(session, 19, NULL), YALM_OK);
    assert_null(yalm_logits(session, 0));
    assert_int_equal(yalm_position(session), 19);
    assert_int_equal(yalm_eval(session, tokens + 19, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    for (int i = 0; i < 53; i++) // another batch shape, another order of sums
        assert_true(fabsf(before[i] - yalm_logits(session, 0)[i]) < 1e-4f);
    yalm_error error;
    assert_int_equal(yalm_rollback(session, 21, &error), YALM_USAGE);
    assert_says(&error, YALM_USAGE, "found position 21, expected 0 to 20");
    assert_int_equal(yalm_rollback(session, -1, &error), YALM_USAGE);
    assert_int_equal(yalm_rollback(session, 0, NULL), YALM_OK);
    yalm_session_close(session);
}

static void test_rollback_gives_the_same_logits_again(void **state)
{
    (void)state;
    check_rollback(YALM_KV_FP32);
    check_rollback(YALM_KV_INT8);
}

static void test_rollback_past_what_the_ring_holds_is_refused(void **state)
{
    (void)state;
    yalm_session_options o = small_options();
    o.endless = true;
    yalm_session *session = open_with(o);
    int32_t tokens[100];
    some_tokens(tokens, 100, 2);
    assert_int_equal(yalm_eval(session, tokens, 100, YALM_LOGITS_LAST, NULL), YALM_OK);
    float before[53];
    memcpy(before, yalm_logits(session, 0), sizeof before);
    yalm_error error;
    assert_int_equal(yalm_rollback(session, 50, &error), YALM_USAGE);
    assert_says(&error, YALM_USAGE, "the session no longer holds");
    assert_int_equal(yalm_position(session), 100);
    assert_int_equal(yalm_rollback(session, 95, &error), YALM_OK); // within a chunk
    assert_int_equal(yalm_eval(session, tokens + 95, 5, YALM_LOGITS_LAST, NULL), YALM_OK);
    for (int i = 0; i < 53; i++)
        assert_true(fabsf(before[i] - yalm_logits(session, 0)[i]) < 1e-4f);
    assert_int_equal(yalm_rollback(session, 1, NULL), YALM_USAGE);
    assert_int_equal(yalm_rollback(session, 0, NULL), YALM_OK); // which sees nothing
    assert_int_equal(yalm_eval(session, tokens, 100, YALM_LOGITS_LAST, NULL), YALM_OK);
    for (int i = 0; i < 53; i++)
        assert_true(fabsf(before[i] - yalm_logits(session, 0)[i]) < 1e-4f);
    yalm_session_close(session);
}

static void test_cancel_stops_and_restores(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    int32_t tokens[30];
    some_tokens(tokens, 30, 1);
    assert_int_equal(yalm_eval(session, tokens, 3, YALM_LOGITS_LAST, NULL), YALM_OK);
    yalm_session_cancel(session);
    yalm_error error;
    assert_int_equal(yalm_eval(session, tokens, 30, YALM_LOGITS_LAST, &error), YALM_INTERRUPTED);
    assert_int_equal(error.status, YALM_INTERRUPTED);
    assert_int_equal(yalm_position(session), 3);
    assert_non_null(yalm_logits(session, 0));
    assert_int_equal(yalm_eval(session, tokens, 30, YALM_LOGITS_LAST, NULL), YALM_OK); // one cancellation, one call
    yalm_session_close(session);
}

struct canceller {
    yalm_session *session;
    pthread_t thread;
    atomic_bool ends;
};

static void *cancel_now_and_then(void *context)
{
    struct canceller *c = context;
    for (unsigned i = 0; !atomic_load(&c->ends); i++) {
        const struct timespec pause = {.tv_nsec = 1000 + i * 7919 % 300000};
        nanosleep(&pause, NULL);
        yalm_session_cancel(c->session);
    }
    return NULL;
}

// Members that lag behind must end a cancelled pass where the others do; else they take part in the next with the wrong work.
static void test_whatever_follows_a_cancellation_has_the_same_bits(void **state)
{
    (void)state;
    yalm_session_options options = small_options();
    options.isa = "scalar";                          // whose memory accesses ThreadSanitizer sees
    options.n_threads = options.n_threads_batch = 6; // more than many machines have cores: some lag
    struct canceller canceller = {.session = open_with(options)};
    int32_t tokens[30];
    some_tokens(tokens, 30, 1);
    assert_int_equal(yalm_eval(canceller.session, tokens, 30, YALM_LOGITS_LAST, NULL), YALM_OK);
    float right[53];
    memcpy(right, yalm_logits(canceller.session, 0), sizeof right);
    alarm(300); // where threads wait for each other in vain
    assert_int_equal(pthread_create(&canceller.thread, NULL, cancel_now_and_then, &canceller), 0);
    int n_cancelled = 0, n_wrong = 0;
    for (const double end = clock_seconds() + 2; clock_seconds() < end;) {
        yalm_rollback(canceller.session, 0, NULL);
        const yalm_status status = yalm_eval(canceller.session, tokens, 30, YALM_LOGITS_LAST, NULL);
        n_cancelled += status == YALM_INTERRUPTED;
        n_wrong += status == YALM_OK && memcmp(right, yalm_logits(canceller.session, 0), sizeof right) != 0;
    }
    atomic_store(&canceller.ends, true);
    pthread_join(canceller.thread, NULL);
    yalm_session_close(canceller.session);
    alarm(0);
    assert_true(n_cancelled > 0);
    assert_int_equal(n_wrong, 0);
}

static void test_logits_of_all_of_the_last_of_none(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    int32_t tokens[20];
    some_tokens(tokens, 20, 1);
    assert_int_equal(yalm_eval(session, tokens, 20, YALM_LOGITS_ALL, NULL), YALM_OK);
    assert_non_null(yalm_logits(session, 19));
    assert_null(yalm_logits(session, 20));
    assert_null(yalm_logits(session, -1));
    double all = 0; // probability
    for (int i = 0; i < 53; i++)
        all += exp((double)yalm_logits(session, 7)[i] - yalm_log_sum_exp(yalm_logits(session, 7), 53));
    assert_true(fabs(all - 1) < 1e-12);
    float last[53];
    memcpy(last, yalm_logits(session, 19), sizeof last);
    assert_int_equal(yalm_rollback(session, 0, NULL), YALM_OK);
    assert_int_equal(yalm_eval(session, tokens, 20, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_null(yalm_logits(session, 1));
    for (int i = 0; i < 53; i++)
        assert_true(fabsf(last[i] - yalm_logits(session, 0)[i]) < 1e-4f);
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_NONE, NULL), YALM_OK);
    assert_null(yalm_logits(session, 0));
    yalm_session_close(session);
}

static void test_sampling_uses_the_last_position_and_its_history(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    int32_t tokens[10];
    some_tokens(tokens, 10, 1);
    assert_int_equal(yalm_eval(session, tokens, 10, YALM_LOGITS_ALL, NULL), YALM_OK);
    yalm_sampling greedy = yalm_sampling_defaults();
    greedy.temperature = 0;
    greedy.penalty_last_n = 0;
    const float *logits = yalm_logits(session, 9);
    int best = 0;
    for (int i = 1; i < 53; i++)
        if (logits[i] > logits[best])
            best = i;
    assert_int_equal(yalm_sample(session, &greedy), best);
    const yalm_logit_bias ban = {best, -INFINITY};
    greedy.biases = &ban, greedy.n_biases = 1;
    assert_int_not_equal(yalm_sample(session, &greedy), best);
    // A token of the history, penalised beyond reason, is not drawn.
    greedy.biases = NULL, greedy.n_biases = 0;
    int32_t next = best;
    assert_int_equal(yalm_eval(session, &next, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    greedy.penalty_last_n = -1;
    greedy.presence_penalty = 1000;
    const int32_t drawn = yalm_sample(session, &greedy);
    for (int i = 0; i < 10; i++)
        assert_int_not_equal(drawn, tokens[i]);
    assert_int_not_equal(drawn, best);
    yalm_session_close(session);
}

static void check_random_fill(yalm_kv kv)
{
    yalm_session_options o = small_options();
    o.kv = kv;
    yalm_session *a = open_with(o), *b = open_with(o);
    int32_t token = 5;
    yalm_error error;
    assert_int_equal(yalm_fill_random(a, 30, 1, NULL), YALM_OK);
    assert_int_equal(yalm_fill_random(b, 10, 1, NULL), YALM_OK); // in two steps: the same
    assert_int_equal(yalm_fill_random(b, 20, 1, NULL), YALM_OK);
    assert_int_equal(yalm_position(a), 30);
    assert_int_equal(yalm_eval(a, &token, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_int_equal(yalm_eval(b, &token, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_memory_equal(yalm_logits(a, 0), yalm_logits(b, 0), sizeof(float) * 53);
    for (int i = 0; i < 53; i++)
        assert_true(isfinite(yalm_logits(a, 0)[i]));
    assert_int_equal(yalm_fill_random(a, 10, 1, &error), YALM_USAGE);
    yalm_session_close(a);
    yalm_session_close(b);
}

static void test_random_fill_is_depth(void **state)
{
    (void)state;
    check_random_fill(YALM_KV_FP32);
    check_random_fill(YALM_KV_FP16);
    check_random_fill(YALM_KV_INT8);
}

static void test_cost_counts_bytes_and_operations(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    const yalm_cost at0 = yalm_session_cost(session, 1, 0), at20 = yalm_session_cost(session, 1, 20);
    // 20 more keys and values: 2 layers, 2 heads of 12, 4 bytes; q k and p v: 2 multiply-adds an element and query head
    assert_true(fabs(at20.bytes - at0.bytes - 20.0 * 2 * 2 * 2 * 12 * 4) < 1e-6);
    assert_true(fabs(at20.ops - at0.ops - 20.0 * 4 * 2 * 4 * 12) < 1e-6);
    yalm_session_close(session);
    yalm_session_options o = small_options();
    o.kv = YALM_KV_INT8;
    session = open_with(o);
    const double bytes = yalm_session_cost(session, 1, 20).bytes - yalm_session_cost(session, 1, 0).bytes;
    assert_true(fabs(bytes - 20.0 * 2 * 2 * 2 * (12 + 4)) < 1e-6); // and a float, the scale
    yalm_session_close(session);
}

static void test_attention_is_timed_while_asked_for(void **state)
{
    (void)state;
    yalm_session *session = open_with(small_options());
    const int32_t tokens[] = {1, 2, 3};
    assert_int_equal(yalm_eval(session, tokens, 3, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_true(yalm_attention_seconds(session) == 0);
    assert_true(yalm_time_attention(session, true));
    assert_int_equal(yalm_eval(session, tokens, 3, YALM_LOGITS_LAST, NULL), YALM_OK);
    const double once = yalm_attention_seconds(session);
    assert_true(once > 0);
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_true(yalm_attention_seconds(session) > once);
    assert_true(yalm_time_attention(session, false));
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_true(yalm_attention_seconds(session) == 0);
    yalm_session_close(session);
}

struct writer {
    yalm_session *session;
    pthread_t thread;
    float logits[53];
};

static void write_text(struct writer *writer, int salt)
{
    int32_t tokens[30];
    some_tokens(tokens, 30, salt);
    assert_int_equal(yalm_eval(writer->session, tokens, 20, YALM_LOGITS_NONE, NULL), YALM_OK);
    for (int i = 20; i < 30; i++)
        assert_int_equal(yalm_eval(writer->session, tokens + i, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    memcpy(writer->logits, yalm_logits(writer->session, 0), sizeof writer->logits);
}

static void *write_on_a_thread(void *writer)
{
    write_text(writer, 3);
    return NULL;
}

static int n_tasks(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n - 2; // without . and ..
}

static void test_sessions_share_the_models_threads(void **state)
{
    (void)state;
    enum { WRITERS = 4 };
    yalm_session_options options = small_options();
    options.isa = "scalar"; // whose memory accesses ThreadSanitizer sees
    struct writer alone = {.session = open_with(options)}, writers[WRITERS];
    write_text(&alone, 3);
    const int before = n_tasks();
    for (int i = 0; i < WRITERS; i++)
        writers[i].session = open_with(options);
    assert_int_equal(n_tasks(), before);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_on_a_thread, &writers[i]), 0);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_memory_equal(writers[i].logits, alone.logits, sizeof alone.logits);
        yalm_session_close(writers[i].session); // while others still write
    }
    yalm_session_close(alone.session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rollback_gives_the_same_logits_again),
        cmocka_unit_test(test_rollback_past_what_the_ring_holds_is_refused),
        cmocka_unit_test(test_cancel_stops_and_restores),
        cmocka_unit_test(test_whatever_follows_a_cancellation_has_the_same_bits),
        cmocka_unit_test(test_logits_of_all_of_the_last_of_none),
        cmocka_unit_test(test_sampling_uses_the_last_position_and_its_history),
        cmocka_unit_test(test_random_fill_is_depth),
        cmocka_unit_test(test_cost_counts_bytes_and_operations),
        cmocka_unit_test(test_attention_is_timed_while_asked_for),
        cmocka_unit_test(test_sessions_share_the_models_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
