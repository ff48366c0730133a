// One model on several ranks, here threads of one process: the logits of one process, whatever the model is made of; what is
// refused, and what happens when a rank is lost.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/group_runs.h"

// Sums in another order make the difference; of quantised weights also that activations are rounded.
static void test_each_type_of_weights(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPE_FP8,   DTYPE_FP8_E5M2,
                                       DTYPE_Q8,   DTYPE_Q4,   DTYPE_Q4N,  DTYPE_Q5,    DTYPE_Q6,
                                       DTYPE_Q5U,  DTYPE_Q4A,  DTYPE_Q5A,  DTYPE_MXFP4, DTYPE_IQ4NL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int n = 2; n <= 4; n++)
            check(plain(), types[i], n, 1 + n % 2, dtype_group_bytes[types[i]] ? 1e-3 : 1e-5);
}

// Types whose columns are cut 256 at a time.
static void test_types_in_eights(void **state)
{
    (void)state;
    struct model_config config = plain();
    config.hidden_dim = 256;
    config.ffn_dim = 512;
    config.n_heads = config.n_kv_heads = 8;
    config.head_dim = 64;
    static const enum dtype types[] = {DTYPE_Q4K,    DTYPE_Q5K, DTYPE_Q6K, DTYPE_IQ4XS, DTYPE_Q4Z32,
                                       DTYPE_Q4Z128, DTYPE_Q3K, DTYPE_Q2K, DTYPE_IQ2S};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check(config, types[i], 2, 1, 1e-3);
}

static void test_each_kind_of_model(void **state)
{
    (void)state;
    struct model_config kinds[N_SHARED_KINDS];
    shared_kinds(kinds);
    for (int i = 0; i < N_SHARED_KINDS; i++)
        for (int n = 2; n <= 4; n++)
            check(kinds[i], DTYPE_FP32, n, 1, 1e-5);
}

static void test_caches_and_sparse_attention(void **state)
{
    (void)state;
    static const char *const settings[] = {"sparq.from=1", "sparq.min_k=4"};
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 6);
    yalm_session_options options = options_of(YALM_KV_FP16, 2);
    assert_true(run(m, options, 3) < 1e-3);
    options.kv = YALM_KV_INT8;
    assert_true(run(m, options, 2) < 1e-2);
    options.kv = YALM_KV_FP32;
    options.attention = "sparq";
    options.settings = settings;
    options.n_settings = 2;
    assert_true(run(m, options, 4) < 1e-4);
    random_model_free(m);
}

// Each sum is rounded to 11 bits, and all ranks go on with the same.
static void test_fp16_on_the_wire(void **state)
{
    (void)state;
    struct model_config experts = plain();
    experts.n_experts = 5;
    experts.n_active_experts = 2;
    struct random_model *models[] = {random_model_make(plain(), DTYPE_FP32, 6), random_model_make(experts, DTYPE_FP32, 6)};
    fp16_on_the_wire = true;
    for (int i = 0; i < 2; i++)
        for (int n = 2; n <= 4; n++) {
            const double found = run(models[i], options_of(YALM_KV_FP32, 2), n);
            if (found < 1e-5 || found > 3e-3)
                fail_msg("%d ranks: off by %g of the range", n, found);
        }
    fp16_on_the_wire = false;
    random_model_free(models[0]);
    random_model_free(models[1]);
}

enum { MOST_FLOATS = 20001 };

struct summing {
    yalm_group *group;
    size_t n;
    float x[MOST_FLOATS + 1];
};

static void *sum_on_rank(void *context)
{
    struct summing *own = context;
    const struct cpu_kernels *kernels = cpu_kernels_select("scalar");
    const struct half_conversion halves = {kernels->to_fp16, kernels->to_fp32[DTYPE_FP16]};
    for (size_t i = 0; i < own->n; i++)
        own->x[i] = (float)(1 + own->group->transport.rank) * (float)(int)(i % 1000 + 1);
    assert_false(group_sum(own->group, &halves, own->x, own->n));
    return NULL;
}

// Short ones, which go directly, and long ones, by parts: right, and the same on all ranks.
static void test_sums(void **state)
{
    (void)state;
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 6);
    struct summing *each = calloc(MOST_THREADS, sizeof *each);
    static const size_t lengths[] = {1, 700, MOST_FLOATS};
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const int n = 2 + i / 6;
        const bool fp16 = i % 2;
        struct ranks ranks;
        ranks_make(&ranks, m, n, 1, 30);
        for (int r = 0; r < n; r++) {
            each[r].group = ranks.each[r].group;
            each[r].n = lengths[i / 2 % 3];
            yalm_group_use_fp16(each[r].group, fp16);
        }
        for (int r = 1; r < n; r++)
            pthread_create(&ranks.each[r].thread, NULL, sum_on_rank, &each[r]);
        sum_on_rank(&each[0]);
        for (int r = 1; r < n; r++)
            pthread_join(ranks.each[r].thread, NULL);
        const float largest = (float)(n * (n + 1) / 2) * 1000;
        for (size_t j = 0; j < each[0].n; j++) {
            const float expected = (float)(n * (n + 1) / 2) * (float)(int)(j % 1000 + 1);
            assert_true(fabsf(each[0].x[j] - expected) <= (fp16 ? largest * 0x1p-10f : 0));
        }
        for (int r = 0; r < n; r++) {
            assert_memory_equal(each[0].x, each[r].x, each[0].n * sizeof(float));
            yalm_group_leave(each[r].group);
        }
        post_empty(&ranks);
    }
    free(each);
    random_model_free(m);
}

// Sessions that are evaluated together, and tokens that are expected: as in one process.
static void test_several_sessions(void **state)
{
    (void)state;
    enum { SESSIONS = 3 };
    struct random_model *m = random_model_make(plain(), DTYPE_Q8, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 3, 1, 30);
    assert_int_equal(model_share_out(&ranks.each[0].model, &error), YALM_OK);
    const yalm_session_options options = options_of(YALM_KV_FP32, 1);
    yalm_session *together[SESSIONS], *alone[SESSIONS];
    int32_t next[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        together[i] = open_session(&ranks.each[0].model, &options);
        alone[i] = open_session(&m->model, &options);
        eval(together[i], i, 4 + 3 * i, YALM_LOGITS_NONE);
        eval(alone[i], i, 4 + 3 * i, YALM_LOGITS_NONE);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SESSIONS; i++)
            next[i] = token_of(50 + 7 * i + step);
        assert_int_equal(yalm_eval_each(together, next, SESSIONS, &error), YALM_OK);
        assert_int_equal(yalm_eval_each(alone, next, SESSIONS, &error), YALM_OK);
        for (int i = 0; i < SESSIONS; i++)
            assert_true(difference(together[i], alone[i], 1) < 1e-3);
    }
    const int32_t expected[] = {token_of(1), token_of(2)};
    assert_int_equal(yalm_expect(together[0], expected, 2), 2);
    for (int i = 0; i < 3; i++) {
        eval(together[0], i, 1, YALM_LOGITS_LAST);
        eval(alone[0], i, 1, YALM_LOGITS_LAST);
        assert_true(difference(together[0], alone[0], 1) < 1e-3);
    }
    for (int i = 0; i < SESSIONS; i++) {
        yalm_session_close(together[i]);
        yalm_session_close(alone[i]);
    }
    ranks_end(&ranks);
    random_model_free(m);
}

static void test_more_ranks_than_parts(void **state)
{
    (void)state;
    struct model_config few = plain();
    few.n_kv_heads = 2;
    few.n_heads = 2;
    struct random_model *m = random_model_make(few, DTYPE_FP32, 5);
    yalm_error error = {0};
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 2, &error), YALM_OK);
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 3, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found 3, expected at most 2"));
    random_model_free(m);
    m = random_model_make(few, DTYPE_Q4, 5); // whose groups of 32 columns are two heads'
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 2, &error), YALM_USAGE);
    random_model_free(m);
}

static void test_another_model(void **state)
{
    (void)state;
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 3, 1, 30);
    ranks.each[0].model.info.checksum = 1;
    assert_int_equal(model_share_out(&ranks.each[0].model, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "rank 1 (here): the model: another model"));
    ranks_end(&ranks);
    random_model_free(m);
}

static void test_cancelled(void **state)
{
    (void)state;
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 2, 1, 30);
    assert_int_equal(model_share_out(&ranks.each[0].model, &error), YALM_OK);
    const yalm_session_options options = options_of(YALM_KV_FP32, 1);
    yalm_session *together = open_session(&ranks.each[0].model, &options), *alone = open_session(&m->model, &options);
    eval(together, 0, 5, YALM_LOGITS_NONE);
    eval(alone, 0, 6, YALM_LOGITS_LAST);
    const int32_t next = token_of(5);
    float logits[VOCAB];
    const struct batch batch = {.tokens = &next, .n = 1, .position = 5, .logits = logits};
    yalm_session_cancel(together); // past the look that yalm_eval() has at it
    assert_int_equal(together->backend->evaluate(together->state, &batch, &error), YALM_INTERRUPTED);
    assert_int_equal(yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error), YALM_INTERRUPTED);
    assert_int_equal(yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error), YALM_OK);
    assert_true(difference(together, alone, 1) < 1e-5);
    yalm_session_close(together);
    yalm_session_close(alone);
    ranks_end(&ranks);
    random_model_free(m);
}

struct caller {
    yalm_group *group;
    const char *failure; // NULL: it can go on
    bool all_there;
};

// A rank that waits for something that does not come.
static void *call_on_rank(void *context)
{
    struct caller *own = context;
    struct heard heard;
    if (own->failure) {
        yalm_error mine = {YALM_FAILED, ""};
        snprintf(mine.text, sizeof mine.text, "%s", own->failure);
        group_hear(own->group, true, &heard.command, &heard.body, NULL);
        own->all_there = group_answer_roll(own->group, &mine);
    } else {
        own->all_there = group_call_roll(own->group);
    }
    return NULL;
}

// All ranks call; rank 2 fails, is dead, or is there.
static void call(const char *failure, bool dead, const char *expected)
{
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 6);
    struct ranks ranks;
    struct caller each[3];
    ranks_make(&ranks, m, 3, 1, 0.3);
    ranks.post.dead = dead ? 2 : -1;
    for (int r = 0; r < 3; r++)
        each[r] = (struct caller){ranks.each[r].group, r == 2 ? failure : NULL, false};
    for (int r = 1; r < 3; r++)
        pthread_create(&ranks.each[r].thread, NULL, call_on_rank, &each[r]);
    call_on_rank(&each[0]);
    for (int r = 1; r < 3; r++)
        pthread_join(ranks.each[r].thread, NULL);
    for (int r = 0; r < (dead ? 2 : 3); r++) {
        assert_int_equal(each[r].all_there, !expected);
        assert_int_equal(each[r].group->lost, expected != NULL);
        if (expected)
            if (!strstr(each[r].group->why.text, expected))
                fail_msg("rank %d: %s", r, each[r].group->why.text);
    }
    for (int r = 0; r < 3; r++) {
        each[r].group->lost = true; // they leave without a word
        yalm_group_leave(each[r].group);
    }
    post_empty(&ranks);
    random_model_free(m);
}

static void test_roll(void **state)
{
    (void)state;
    call(NULL, false, NULL);
    call(NULL, true, "rank 2 (here) has not answered for 0.3 seconds");
    call("its GPU is gone", false, "rank 2 (here): its GPU is gone");
}

// What a rank hears instead of the roll is not lost.
static void test_roll_that_nobody_calls(void **state)
{
    (void)state;
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 6);
    struct ranks ranks;
    ranks_make(&ranks, m, 2, 1, 0.3);
    const int32_t body = 41;
    assert_int_equal(group_tell(ranks.each[0].group, &(struct command){.kind = COMMAND_EVALUATE}, &body, sizeof body, NULL),
                     YALM_OK);
    assert_true(group_call_roll(ranks.each[1].group));
    struct heard heard;
    assert_int_equal(group_hear(ranks.each[1].group, true, &heard.command, &heard.body, NULL), YALM_OK);
    assert_int_equal(heard.command.kind, COMMAND_EVALUATE);
    assert_int_equal(*(int32_t *)heard.body, body);
    free(heard.body);
    assert_false(group_call_roll(ranks.each[1].group)); // nothing comes
    assert_non_null(strstr(ranks.each[1].group->why.text, "rank 0 (here)"));
    for (int r = 0; r < 2; r++)
        yalm_group_leave(ranks.each[r].group);
    post_empty(&ranks);
    random_model_free(m);
}

static void test_lost_rank(void **state)
{
    (void)state;
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 3, 1, 0.3);
    assert_int_equal(model_share_out(&ranks.each[0].model, &error), YALM_OK);
    const yalm_session_options options = options_of(YALM_KV_FP32, 1);
    yalm_session *together = open_session(&ranks.each[0].model, &options);
    eval(together, 0, 5, YALM_LOGITS_NONE);
    pthread_mutex_lock(&ranks.post.lock);
    ranks.post.dead = 2;
    pthread_mutex_unlock(&ranks.post.lock);
    const int32_t next = token_of(5);
    assert_int_equal(yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "rank 2 (here)"));
    error.text[0] = 0;
    assert_int_equal(yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error), YALM_FAILED); // and at once
    assert_non_null(strstr(error.text, "rank 2 (here)"));
    yalm_session_close(together);
    ranks_end(&ranks);
    assert_int_equal(ranks.each[1].status, YALM_FAILED);
    assert_non_null(strstr(ranks.each[1].error.text, "rank 2 (here)"));
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_type_of_weights),
        cmocka_unit_test(test_types_in_eights),
        cmocka_unit_test(test_each_kind_of_model),
        cmocka_unit_test(test_caches_and_sparse_attention),
        cmocka_unit_test(test_fp16_on_the_wire),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_several_sessions),
        cmocka_unit_test(test_more_ranks_than_parts),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_roll),
        cmocka_unit_test(test_roll_that_nobody_calls),
        cmocka_unit_test(test_lost_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
