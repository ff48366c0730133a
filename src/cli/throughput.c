// Mode throughput: times prefill and decode at several lengths and depths, beside what the machine can do at most.
#include <stdlib.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/speculation.h"
#include "cli/throughput.h"
#include "util/clock.h"

static const double limits_seconds = 0.5;  // for each of two measurements, before and after
static const double soon_seconds = 1;      // sooner after the first, the second would say the same, and is left out
static const double reading_seconds = 0.1; // of plain reading, before each repetition and after the last

struct bench {
    const struct options *options;
    const yalm_model *model;
    struct tokens given; // --tokens; else ids are pseudo-random
    int32_t *ids;        // (depth + length) of the current test
    struct report report;
    bool limits_known;
    double limits_at; // when they were measured last
    int stated;       // context of the largest session whose memory has been stated
};

static yalm_status fill_ids(struct bench *bench, int n, yalm_error *error)
{
    int32_t *grown = realloc(bench->ids, (size_t)n * sizeof *grown);
    if (grown == NULL)
        return cli_no_memory(error);
    bench->ids = grown;
    const uint64_t n_vocab = (uint64_t)yalm_model_facts(bench->model)->vocab_size;
    uint64_t state = 1;
    for (int i = 0; i < n; i++)
        grown[i] = bench->given.n ? bench->given.ids[(size_t)i % bench->given.n] : (int32_t)(random_next(&state) % n_vocab);
    return YALM_OK;
}

static yalm_status measure_limits(struct bench *bench, yalm_session *session, yalm_error *error)
{
    yalm_limits limits;
    progress("measuring the machine's limits");
    const yalm_status status = yalm_measure_limits(session, limits_seconds, &limits, error);
    bench->limits_at = clock_seconds();
    if (status == YALM_OK)
        limits_merge(&bench->report.limits, &limits);
    return status;
}

// Waits for each token, as one must who draws the next from its logits.
static yalm_status eval_token(struct speculator *speculator, yalm_session *session, int32_t token, yalm_error *error)
{
    return speculator_eval(speculator, session, token, error) ?: yalm_finish(session, error);
}

static yalm_status go_to_depth(const struct bench *bench, const struct test *test, yalm_session *session, yalm_error *error)
{
    if (test->depth == 0)
        return YALM_OK;
    progress("filling %d positions", test->depth);
    if (bench->options->fill == FILL_RANDOM)
        return yalm_fill_random(session, test->depth, 1, error);
    return yalm_eval(session, bench->ids, test->depth, YALM_LOGITS_NONE, error);
}

// To where a test begins. Recurrent layers may not be able to go back there: then all is filled again.
static yalm_status back_to_depth(const struct bench *bench, const struct test *test, yalm_session *session, yalm_error *error)
{
    if (yalm_rollback_point(session, test->depth) == test->depth)
        return yalm_rollback(session, test->depth, error);
    return yalm_rollback(session, 0, error) ?: go_to_depth(bench, test, session, error);
}

// The timed part: prefill in one call, decode one token at a time. `attention` (NULL: nobody wants to know): seconds of them
// that it took.
static yalm_status run_once(const struct bench *bench, const struct test *test, yalm_session *session,
                            struct speculator *speculator, int n, double *seconds, double *attention, yalm_error *error)
{
    const int32_t *ids = bench->ids + test->depth;
    yalm_status status = YALM_OK;
    if (attention)
        yalm_time_attention(session, true);
    speculator_forget(speculator); // the last repetition
    speculator_read(speculator, bench->ids, test->n_prompt ? 0 : (size_t)test->depth);
    const double start = clock_seconds();
    if (test->n_prompt)
        status = yalm_eval(session, ids, n, YALM_LOGITS_LAST, error);
    else
        for (int i = 0; i < n && status == YALM_OK; i++)
            status = eval_token(speculator, session, ids[i], error);
    status = status ?: yalm_finish(session, error);
    *seconds = clock_seconds() - start;
    if (attention)
        *attention = yalm_attention_seconds(session);
    return status ?: back_to_depth(bench, test, session, error);
}

static void add_cost(struct test *test, const yalm_session *session, int n, int depth)
{
    const yalm_cost all = yalm_session_cost(session, n, depth);
    const yalm_attention_cost attention = yalm_session_attention_cost(session, n, depth);
    test->cost.bytes += all.bytes;
    test->cost.ops += all.ops;
    test->attention_cost.bytes += attention.bytes;
    test->attention_cost.dense_bytes += attention.dense_bytes;
}

static void count_costs(struct test *test, const yalm_session *session)
{
    if (test->n_prompt)
        add_cost(test, session, test->n_prompt, test->depth);
    for (int i = 0; i < test->n_gen; i++)
        add_cost(test, session, 1, test->depth + i);
}

// What plain reading has at this moment. False where that is not told.
static bool take_reading(struct test *test, yalm_session *session)
{
    const double gb_per_s = test->reads ? yalm_measure_reading(session, reading_seconds) : 0;
    if (gb_per_s > 0)
        test->reads[test->n_reads++] = gb_per_s;
    return gb_per_s > 0;
}

static yalm_status run_repetition(struct bench *bench, struct test *test, yalm_session *session, struct speculator *speculator,
                                  yalm_error *error)
{
    const int n = test->n_prompt + test->n_gen;
    const bool cold = test->n == 0 && bench->options->cold;
    yalm_status status = YALM_OK;
    double ignored;
    progress("%s%d @ d%d: %d of %d", test->n_gen ? "tg" : "pp", n, test->depth, test->n + 1, bench->options->repetitions);
    if (take_reading(test, session) && !cold) // a token that is not timed leaves in the caches what decode does
        status = run_once(bench, test, session, speculator, 1, &ignored, NULL, error);
    if (status == YALM_OK)
        status = run_once(bench, test, session, speculator, n, &test->seconds[test->n],
                          test->attention ? &test->attention[test->n] : NULL, error);
    test->n += status == YALM_OK;
    return status;
}

static yalm_status repeat(struct bench *bench, struct test *test, yalm_session *session, struct speculator *speculator,
                          yalm_error *error)
{
    const int n = test->n_prompt + test->n_gen;
    yalm_status status = go_to_depth(bench, test, session, error);
    double ignored;
    if (status == YALM_OK && !bench->options->cold) // decode is warm after a few tokens
        status = run_once(bench, test, session, speculator, test->n_gen > 8 ? 8 : n, &ignored, NULL, error);
    const time_t now = time(NULL);
    struct tm utc;
    strftime(test->time, sizeof test->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    while (test->n < bench->options->repetitions && status == YALM_OK)
        status = run_repetition(bench, test, session, speculator, error);
    if (status == YALM_OK)
        take_reading(test, session);
    count_costs(test, session);
    return status;
}

static yalm_status run_test(struct bench *bench, struct test *test, bool last, yalm_error *error)
{
    const struct options *options = bench->options;
    const int length = test->depth + test->n_prompt + test->n_gen;
    yalm_session_options how = session_options(options);
    if (how.context && how.context < length)
        return error_set(error, YALM_USAGE, "a test of %d tokens at depth %d needs a context of %d, and --ctx says %d",
                         length - test->depth, test->depth, length, how.context);
    if (how.context == 0)
        how.context = length;
    struct speculation speculation = {0};
    yalm_status status = fill_ids(bench, length, error);
    if (status != YALM_OK)
        return status;
    test->seconds = calloc((size_t)options->repetitions, sizeof *test->seconds);
    test->attention = calloc((size_t)options->repetitions, sizeof *test->attention);
    if (test->n_gen)
        test->reads = calloc((size_t)options->repetitions + 1, sizeof *test->reads);
    if (test->seconds == NULL || test->attention == NULL || (test->n_gen && test->reads == NULL))
        return cli_no_memory(error);
    yalm_session *session = open_session(options, bench->model, &how, options->quiet || how.context <= bench->stated, error);
    if (session == NULL)
        return error->status;
    if (!yalm_time_attention(session, true)) {
        free(test->attention);
        test->attention = NULL;
    }
    bench->stated = how.context > bench->stated ? how.context : bench->stated;
    bench->report.how = *yalm_session_facts(session);
    snprintf(bench->report.machine, sizeof bench->report.machine, "%s", yalm_session_machine(session));
    if (!bench->limits_known)
        status = measure_limits(bench, session, error);
    bench->limits_known = true;
    status = status ?: speculation_open(&speculation, options, bench->model, session, error);
    status = status ?: repeat(bench, test, session, speculation.speculator, error);
    speculation_close(&speculation);
    if (status == YALM_OK && last && clock_seconds() > bench->limits_at + soon_seconds)
        status = measure_limits(bench, session, error);
    if (status == YALM_OK && interrupted())
        status = YALM_INTERRUPTED;
    close_session(session);
    progress_clear();
    return status;
}

// llama-bench's order: at each depth the prompts, then the generations.
static int list_tests(struct test *tests, const struct options *options)
{
    int n = 0;
    for (int d = 0; d < options->depth.n; d++) {
        for (int i = 0; i < options->n_prompt.n; i++)
            if (options->n_prompt.values[i])
                tests[n++] = (struct test){.n_prompt = options->n_prompt.values[i], .depth = options->depth.values[d]};
        for (int i = 0; i < options->n_gen.n; i++)
            if (options->n_gen.values[i])
                tests[n++] = (struct test){.n_gen = options->n_gen.values[i], .depth = options->depth.values[d]};
    }
    return n;
}

static yalm_status run_tests(struct bench *bench, yalm_error *error)
{
    struct report *report = &bench->report;
    yalm_status status = YALM_OK;
    for (int i = 0; i < report->n_tests && status == YALM_OK; i++)
        status = run_test(bench, &report->tests[i], i + 1 == report->n_tests, error);
    if (status != YALM_OK && status != YALM_INTERRUPTED)
        return status;
    if (status == YALM_INTERRUPTED) { // the tests that were finished are worth having
        *error = (yalm_error){.status = YALM_INTERRUPTED};
        int n = 0;
        while (n < report->n_tests && report->tests[n].n == bench->options->repetitions)
            n++;
        report->n_tests = n;
    }
    yalm_error failed;
    const yalm_status written = report->n_tests ? report_write(report, bench->options->format, &failed) : YALM_OK;
    if (written != YALM_OK)
        *error = failed;
    return written != YALM_OK ? written : status;
}

yalm_status run_throughput(const struct options *options, const yalm_model *model, yalm_error *error)
{
    struct test tests[2 * MAX_LIST * MAX_LIST] = {0};
    const int n_tests = list_tests(tests, options);
    if (n_tests == 0)
        return error_set(error, YALM_USAGE, "nothing to time: -p and -n are both 0");
    struct bench bench = {.options = options, .model = model};
    bench.report =
        (struct report){.path = options->model, .facts = yalm_model_facts(model), .tests = tests, .n_tests = n_tests};
    yalm_status status = YALM_OK;
    if (options->tokens)
        status = tokens_read(&bench.given, options->tokens, bench.report.facts->vocab_size, error);
    status = status ?: run_tests(&bench, error);
    for (int i = 0; i < n_tests; i++) {
        free(tests[i].seconds);
        free(tests[i].attention);
        free(tests[i].reads);
    }
    free(bench.given.ids);
    free(bench.ids);
    return status;
}
