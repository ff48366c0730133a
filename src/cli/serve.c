// Mode serve: the model behind HTTP, until a signal ends it.
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"

#ifdef YALM_SERVE

#include "cli/speculation.h"
#include "serve/serve.h"

static bool is_quiet;

static void say_line(const char *format, ...)
{
    char line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!is_quiet)
        say("%s", line);
}

// One that generates and makes vectors has a session for these besides.
static bool has_vectors(const yalm_model *model)
{
    const yalm_model_info *facts = yalm_model_facts(model);
    return (facts->pooling || facts->scores) && !facts->bidirectional;
}

static uint64_t count_sessions(const yalm_model *model, const struct serve_options *how)
{
    return (uint64_t)how->parallel + has_vectors(model);
}

// What the model was trained for, as far as half of the memory has room for the sessions.
static yalm_status choose_context(const yalm_model *model, struct serve_options *how, yalm_error *error)
{
    enum { LEAST = 4096 };
    yalm_memory memory;
    if (how->session.context != 0)
        return YALM_OK;
    for (how->session.context = yalm_model_facts(model)->context_length;; how->session.context /= 2) {
        const yalm_status status = yalm_session_memory(model, &how->session, &memory, error);
        const uint64_t each = memory.kv_cache + memory.attention + memory.scratch;
        if (status != YALM_OK || how->session.context < 2 * LEAST || each <= memory.available / 2 / count_sessions(model, how))
            return status;
    }
}

// Says what all sessions will take before the first of them takes it. What is kept beyond them gets at most half of the rest.
static yalm_status check_memory(const struct options *options, const yalm_model *model, struct serve_options *how,
                                yalm_error *error)
{
    yalm_memory memory;
    const yalm_status status = yalm_session_memory(model, &how->session, &memory, error);
    if (status != YALM_OK)
        return status;
    const uint64_t each = memory.kv_cache + memory.attention + memory.scratch, n = count_sessions(model, how);
    if (each > memory.available / n)
        return error_set(
            error, YALM_NO_MEMORY,
            "%llu sessions take %s, and %s are available: a shorter context (-T N) or fewer sessions (--parallel N)",
            (unsigned long long)n, human_bytes(each * n), human_bytes(memory.available));
    const uint64_t rest = (memory.available - each * n) / 2, asked = (uint64_t)options->cache_ram << 20;
    how->cache_bytes = asked < rest ? asked : rest;
    say_line("memory: weights %s, %llu sessions of %s%s; %s available", human_bytes(memory.weights), (unsigned long long)n,
             human_bytes(each), has_vectors(model) ? ", one for vectors" : "", human_bytes(memory.available));
    return YALM_OK;
}

yalm_status run_serve(const struct options *options, const yalm_model *model, yalm_error *error)
{
    is_quiet = options->quiet;
    struct serve_options how = {
        .host = options->host,
        .port = options->port,
        .key_file = options->key_file,
        .insecure = options->insecure,
        .parallel = options->parallel,
        .queue = options->queue,
        .cache_dir = options->cache_dir,
        .slot_dir = options->slot_dir,
        .drain = options->drain,
        .session = session_options(options),
        .speculate = strcmp(options->speculate, "off") != 0,
        .sampling = options->sampling,
        .seed = options_given(options, "seed") ? options->seed : UINT64_MAX,
        .say = say_line,
    };
    if (yalm_model_facts(model)->bidirectional)
        how.parallel = 1; // there is nothing that it goes on with
    yalm_model *draft = NULL;
    yalm_status status = yalm_sampling_check(model, &how.sampling, error);
    status = status ?: speculation_draft_model(options, model, &draft, error);
    how.draft = draft;
    status = status ?: choose_context(model, &how, error);
    status = status ?: check_memory(options, model, &how, error);
    status = status ?: serve(model, &how, error);
    if (draft)
        yalm_model_close(draft);
    return status;
}

#else

yalm_status run_serve(const struct options *options, const yalm_model *model, yalm_error *error)
{
    (void)options, (void)model;
    return error_set(error, YALM_FAILED,
                     "this yalm was built without its server: install libmicrohttpd (tools/setup.sh does), and run make again");
}

#endif
