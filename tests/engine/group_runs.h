// A text on one process and on several ranks, and how far their logits are apart.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/rank_threads.h"
#include "engine/session.h"
#include "engine/shared_models.h"

enum { PROMPT = 21, STEPS = 5, CHUNK = 16 };

static yalm_session *open_session(const yalm_model *model, const yalm_session_options *options)
{
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(model, options, &error);
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static void eval(yalm_session *session, int from, int n, yalm_logits_of which)
{
    int32_t tokens[64];
    yalm_error error = {0};
    for (int i = 0; i < n; i++)
        tokens[i] = token_of(from + i);
    if (yalm_eval(session, tokens, n, which, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

// The largest difference of n tokens' logits, in parts of their range.
static double difference(const yalm_session *a, const yalm_session *b, int n)
{
    double most = 0, low = INFINITY, high = -INFINITY;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < VOCAB; i++) {
            const double x = (double)yalm_logits(a, t)[i], y = (double)yalm_logits(b, t)[i];
            most = fmax(most, fabs(x - y));
            low = fmin(low, y);
            high = fmax(high, y);
        }
    return most / (high - low);
}

static bool fp16_on_the_wire;

// A prompt with all its logits, some tokens one by one, and back: as one process has it.
static double run(struct random_model *m, yalm_session_options options, int n_ranks)
{
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, n_ranks, 1, 30);
    yalm_group_use_fp16(ranks.each[0].group, fp16_on_the_wire);
    if (model_share_out(&ranks.each[0].model, &error) != YALM_OK)
        fail_msg("%s", error.text);
    yalm_session *together = open_session(&ranks.each[0].model, &options), *alone = open_session(&m->model, &options);
    double most = 0;
    for (int turn = 0; turn < 2; turn++) {
        eval(together, turn, PROMPT, YALM_LOGITS_ALL);
        eval(alone, turn, PROMPT, YALM_LOGITS_ALL);
        most = fmax(most, difference(together, alone, PROMPT));
        for (int i = 0; i < STEPS; i++) {
            eval(together, PROMPT + i, 1, YALM_LOGITS_LAST);
            eval(alone, PROMPT + i, 1, YALM_LOGITS_LAST);
            most = fmax(most, difference(together, alone, 1));
        }
        const yalm_status back = yalm_rollback(alone, 3, &error); // which a short window has lost
        assert_int_equal(yalm_rollback(together, 3, &error), back);
        if (back != YALM_OK)
            break;
    }
    yalm_session_close(together);
    yalm_session_close(alone);
    ranks_end(&ranks);
    for (int r = 1; r < n_ranks; r++)
        assert_int_equal(ranks.each[r].status, YALM_OK);
    return most;
}

static yalm_session_options options_of(yalm_kv kv, int n_threads)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.n_threads = n_threads;
    options.chunk = CHUNK;
    options.kv = kv;
    return options;
}

static void check(struct model_config config, enum dtype dtype, int n_ranks, int n_threads, double most)
{
    struct random_model *m = random_model_make(config, dtype, 5);
    yalm_session_options options = options_of(YALM_KV_FP32, n_threads);
    options.activations = dtype_group_bytes[dtype] ? YALM_ACTIVATIONS_INT16 : YALM_ACTIVATIONS_FP32;
    const double found = run(m, options, n_ranks);
    if (!(found <= most))
        fail_msg("%s, %d ranks: off by %g of the range, at most %g", dtype_names[dtype], n_ranks, found, most);
    random_model_free(m);
}
