// Mode completion: continues a text, token by token, on stdout; the statistics go to stderr.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/speculation.h"
#include "cli/state_file.h"
#include "cli/text_grammar.h"
#include "generate/generator.h"
#include "util/clock.h"

struct completion {
    const struct options *options;
    const yalm_model *model;
    yalm_session *session;
    uint64_t seed;

    struct text text;     // the prompt as given; none where it came as ids
    struct tokens prompt; // and as ids

    struct text_grammar grammar;
    struct speculation speculation;
    struct generator_options how;
    struct generator generator;
    bool ids_only; // no tokenizer: ids are printed instead of text
    size_t sent;   // bytes of the generated text
    bool any;      // text has gone out
    char last;     // byte of it

    int64_t n_decoded;
    bool interrupted;
    double prefill_seconds, decode_seconds, decode_bytes;
};

// ---------------------------------------------------------------- context

// A user who asks for it gets the end of a prompt that is too long, with room for what is to come.
static yalm_status fit_prompt(struct completion *run, int64_t most, yalm_error *error)
{
    const struct options *options = run->options;
    struct tokens *prompt = &run->prompt;
    if (prompt->n == 0)
        return error_set(error, YALM_USAGE, "the prompt has no tokens, and the model no bos token to begin with");
    if ((int64_t)prompt->n <= most)
        return YALM_OK;
    if (!options->truncate_prompt)
        return error_set(
            error, YALM_USAGE,
            "the prompt is longer than the context: %zu tokens, and %lld fit (--set text.truncate=on keeps its end)", prompt->n,
            (long long)most);
    const int64_t half = most / 2;
    const size_t kept = (size_t)(most - (options->n_predict >= 0 && options->n_predict < half ? options->n_predict : half));
    const bool has_bos = !options->tokens && prompt->ids[0] == yalm_model_facts(run->model)->bos;
    const size_t head = has_bos && kept > 1; // a text keeps its bos
    const size_t cut = prompt->n - kept;
    memmove(prompt->ids + head, prompt->ids + head + cut, (kept - head) * sizeof *prompt->ids);
    prompt->n = kept;
    say("the prompt's first %zu tokens are cut off, its last %zu are kept", cut, kept - head);
    return YALM_OK;
}

// How much to generate and how far to look back. A number of tokens that the user asked for goes on past the context; a default
// does not. The last token that is generated is not evaluated, so it takes no position.
static yalm_status plan(struct completion *run, yalm_session_options *how, yalm_error *error)
{
    const struct options *options = run->options;
    const int64_t trained = yalm_model_facts(run->model)->context_length;
    const int64_t most = options->context ? options->context : trained;
    const yalm_status status = fit_prompt(run, most, error);
    if (status != YALM_OK)
        return status;

    const int64_t n = (int64_t)run->prompt.n, room = most - n + 1;
    run->how.max_tokens = options->n_predict;
    if (options->n_predict == -1) {
        const int64_t usual = n + 256 > 4096 ? n + 256 : 4096;
        how->endless = true;
        how->context = (int)(options->context ? most : usual < trained ? usual : trained);
    } else if (options->n_predict == -2 || (options->n_predict > room && !options_given(options, "n-predict"))) {
        run->how.max_tokens = -1;
        how->context = (int)most;
    } else {
        const int64_t limit = options->n_predict;
        how->endless = limit > room;
        how->context = (int)(options->context || how->endless ? most : limit > 0 ? n + limit - 1 : n);
        if (how->endless && !options->quiet)
            say("past the context of %lld positions the oldest tokens give way", (long long)most);
    }
    return YALM_OK;
}

// ---------------------------------------------------------------- text

static yalm_status send(struct completion *run, const char *bytes, size_t length, yalm_error *error)
{
    if (length == 0)
        return YALM_OK;
    run->any = true;
    run->last = bytes[length - 1];
    return output(bytes, length, error);
}

static yalm_status send_id(struct completion *run, int32_t id, yalm_error *error)
{
    char bytes[16];
    return send(run, bytes, (size_t)snprintf(bytes, sizeof bytes, "%s%d", run->any ? " " : "", id), error);
}

static yalm_status send_prompt(struct completion *run, yalm_error *error)
{
    const bool echo = !run->options->no_echo;
    yalm_stream *stream = &run->generator.stream;
    yalm_status status = YALM_OK;
    if (run->options->tokens == NULL) {
        stream->started = run->text.length > 0;
        return echo ? send(run, run->text.bytes, run->text.length, error) : YALM_OK;
    }
    char bytes[YALM_MAX_PIECE + 8];
    for (size_t i = 0; i < run->prompt.n && status == YALM_OK; i++) {
        const size_t n = yalm_stream_token(run->model, stream, run->prompt.ids[i], run->options->special, bytes);
        if (echo)
            status = run->ids_only ? send_id(run, run->prompt.ids[i], error) : send(run, bytes, n, error);
    }
    return status;
}

// What has been generated since.
static yalm_status send_news(struct completion *run, yalm_error *error)
{
    const struct generator *g = &run->generator;
    if (run->ids_only)
        return g->added ? send_id(run, g->token, error) : YALM_OK;
    const size_t from = run->sent;
    run->sent = g->shown;
    return g->shown > from ? send(run, g->text.at + from, g->shown - from, error) : YALM_OK;
}

// ---------------------------------------------------------------- generation

static yalm_status read_prompt(struct completion *run, yalm_error *error)
{
    struct generator *g = &run->generator;
    const double start = clock_seconds();
    const int chunk = yalm_session_facts(run->session)->chunk;
    yalm_status status = YALM_OK;
    generator_begin(g, true);
    speculator_read(g->speculator, g->prompt, g->n_cached);
    while (generator_reads(g) && status == YALM_OK) { // after ^C whole pieces stay
        if (g->n_prompt - g->n_read > (size_t)chunk && !run->options->quiet)
            progress("reading: %zu of %zu tokens", g->n_read, g->n_prompt);
        status = generator_next(g, chunk, error);
        status = status ?: generator_evaluate(g, error);
    }
    status = status ?: yalm_finish(run->session, error);
    progress_clear();
    run->prefill_seconds = clock_seconds() - start;
    return status;
}

static yalm_status evaluate_token(struct completion *run, yalm_error *error)
{
    struct speculator *speculator = run->speculation.speculator;
    const struct speculation_counts before = speculator_counts(speculator);
    const int64_t depth = yalm_position(run->session);
    const yalm_status status = generator_evaluate(&run->generator, error);
    const struct speculation_counts after = speculator_counts(speculator);
    if (status == YALM_OK && (speculator == NULL || after.evaluations > before.evaluations))
        run->decode_bytes += yalm_session_cost(run->session, 1 + (int)(after.guessed - before.guessed), depth).bytes;
    return status;
}

// Past the context a session cannot be kept any more: the file of --session gets what there is before.
static yalm_status keep_in_time(const struct completion *run, yalm_error *error)
{
    const bool full = yalm_position(run->session) == yalm_session_facts(run->session)->context;
    return full ? state_save(run->options, run->session, error) : YALM_OK;
}

static yalm_status generate(struct completion *run, yalm_error *error)
{
    const bool on_cpu = strcmp(yalm_session_facts(run->session)->device, "cpu") == 0;
    struct generator *g = &run->generator;
    yalm_status status = read_prompt(run, error);
    if (status == YALM_OK) // not before: what is read shows progress, on the same line of a terminal
        status = send_prompt(run, error);
    double before = 0;
    while (status == YALM_OK) {
        status = generator_next(g, 1, error);
        if (!on_cpu && run->n_decoded) // there drawing is a part of the step, and only now is it over
            run->decode_seconds += clock_seconds() - before;
        status = status ?: send_news(run, error);
        if (status != YALM_OK || g->stop)
            break;
        status = keep_in_time(run, error);
        if (status != YALM_OK)
            break;
        before = clock_seconds();
        status = evaluate_token(run, error);
        if (status == YALM_OK) {
            run->decode_seconds += on_cpu ? clock_seconds() - before : 0;
            run->n_decoded++;
        }
    }
    return status;
}

// ---------------------------------------------------------------- statistics

static double rate(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static const char *why(const struct completion *run)
{
    static const char *const reasons[] = {[YALM_STOP_END] = "end of text",
                                          [YALM_STOP_STRING] = "stop string",
                                          [YALM_STOP_LIMIT] = "limit",
                                          [YALM_STOP_CONTEXT] = "full context",
                                          [YALM_STOP_GRAMMAR] = "end of the grammar"};
    return run->interrupted ? "interrupt" : reasons[run->generator.stop];
}

static void say_statistics(struct completion *run)
{
    yalm_limits limits = {0};
    const bool measured = run->options->verbose && run->n_decoded > 0 && // which takes a second
                          yalm_measure_limits(run->session, 0.2, &limits, NULL) == YALM_OK;
    const struct generator *g = &run->generator;
    const size_t prefilled = g->n_read - g->n_cached; // fewer than the prompt's after ^C
    say("prefill: %zu tokens in %.3f s, %.1f tok/s", prefilled, run->prefill_seconds,
        rate((int64_t)prefilled, run->prefill_seconds));
    char reached[96] = "";
    if (run->n_decoded > 0) {
        const double gb_per_s = run->decode_bytes / 1e9 / run->decode_seconds;
        const int n = snprintf(reached, sizeof reached, ", %.2f GB/s", gb_per_s);
        if (measured && gb_per_s > limits.read_gb_per_s) // a model that fits the caches
            snprintf(reached + n, sizeof reached - (size_t)n, " (from the caches: memory reads %.2f GB/s)",
                     limits.read_gb_per_s);
        else if (measured)
            snprintf(reached + n, sizeof reached - (size_t)n, " (%.0f %% of the %.2f GB/s that this machine reads)",
                     100 * gb_per_s / limits.read_gb_per_s, limits.read_gb_per_s);
    }
    say("decode: %lld tokens in %.3f s, %.1f tok/s%s", (long long)run->n_decoded, run->decode_seconds,
        rate(run->n_decoded, run->decode_seconds), reached);
    const struct speculation_counts counts = speculator_counts(run->speculation.speculator);
    if (counts.tokens > 0)
        say("speculation: %lld of %lld guessed tokens came; %lld tokens took %lld evaluations",
            (long long)(counts.tokens - counts.evaluations), (long long)counts.guessed, (long long)counts.tokens,
            (long long)counts.evaluations);
    say("generated: %zu tokens, the first after %.3f s; seed %llu; stopped by: %s", g->n_generated,
        g->n_generated ? g->first_token - g->began : 0, (unsigned long long)run->seed, why(run));
}

// Text first, then numbers: also after ^C.
static yalm_status finish(struct completion *run, yalm_status status, yalm_error *error)
{
    const struct options *options = run->options;
    if (status == YALM_INTERRUPTED || (status == YALM_OK && interrupted())) {
        status = YALM_INTERRUPTED;
        run->interrupted = true;
        if (!run->generator.stop)
            generator_end(&run->generator);
        *error = (yalm_error){.status = YALM_INTERRUPTED};
    } else if (status != YALM_OK) {
        return status;
    }
    yalm_error rest;
    run->generator.added = false;
    const yalm_status sent = send_news(run, &rest);
    if (sent != YALM_OK) {
        *error = rest;
        return sent;
    }
    if (run->any && run->last != '\n' && (run->ids_only || isatty(STDOUT_FILENO)))
        output("\n", 1, &rest);
    if (options->quiet)
        return status;
    const float *logits = yalm_logits(run->session, 0);
    const uint64_t hash = logits ? logits_hash(logits, yalm_model_facts(run->model)->vocab_size) : 0;
    say_statistics(run);
    if (logits)
        say("last logits: %016llx", (unsigned long long)hash);
    return status;
}

static yalm_status keep(struct completion *run, yalm_status status, yalm_error *error)
{
    yalm_error unsaved;
    const int context = yalm_session_facts(run->session)->context;
    if (status != YALM_OK && status != YALM_INTERRUPTED)
        return status;
    if (run->options->session && yalm_position(run->session) > context) {
        if (!run->options->quiet)
            say("%s: the first %d tokens; what goes past the context is not kept", run->options->session, context);
        return status;
    }
    const yalm_status saved = state_save(run->options, run->session, &unsaved);
    if (saved != YALM_OK)
        *error = unsaved;
    return saved != YALM_OK ? saved : status;
}

static yalm_status complete(struct completion *run, yalm_error *error)
{
    const struct options *options = run->options;
    yalm_session_options how = session_options(options);
    yalm_status status = plan(run, &how, error);
    if (status != YALM_OK)
        return status;
    const int usual = yalm_model_facts(run->model)->context_length < 4096 ? yalm_model_facts(run->model)->context_length : 4096;
    if (options->session && !options->context && how.context < usual)
        how.context = usual; // for the next run's prompt, which may be longer
    if (!options->quiet && isatty(STDOUT_FILENO) && !options_given(options, "mode") &&
        yalm_model_facts(run->model)->chat_template)
        say("(continues the text; -m chat -i TEXT asks the model)");
    run->session = open_session(options, run->model, &how, options->quiet, error);
    if (run->session == NULL)
        return error->status;
    run->seed = options_given(options, "seed") && options->seed != UINT64_MAX ? options->seed : random_seed();
    yalm_seed(run->session, run->seed);
    if (options->verbose) {
        fprintf(stderr, "prompt:");
        for (size_t i = 0; i < run->prompt.n; i++)
            fprintf(stderr, " %d", run->prompt.ids[i]);
        fputc('\n', stderr);
    }
    status = speculation_open(&run->speculation, options, run->model, run->session, error);
    status = status ?: state_open(options, run->session, error);
    status = status ?: text_grammar_begin(&run->grammar, run->model, &run->generator.masker, error);
    run->generator.how = &run->how;
    run->generator.session = run->session;
    run->generator.speculator = run->speculation.speculator;
    run->generator.prompt = run->prompt.ids;
    run->generator.n_prompt = run->prompt.n;
    status = status ?: keep(run, finish(run, generate(run, error), error), error);
    return status;
}

yalm_status run_completion(const struct options *options, const yalm_model *model, yalm_error *error)
{
    struct completion run = {.options = options,
                             .model = model,
                             .how = {.sampling = options->sampling,
                                     .stops = options->stops.texts,
                                     .n_stops = options->stops.n,
                                     .ignore_eos = options->ignore_eos,
                                     .spell_control = options->special,
                                     .n_likely = -1}};
    run.ids_only = strcmp(yalm_model_facts(model)->tokenizer, "none") == 0;
    yalm_status status = yalm_sampling_check(model, &run.how.sampling, error);
    if (status == YALM_OK && run.ids_only && options->stops.n)
        status = needs_tokenizer(options, model, "find stop strings", error);
    status = status ?: text_grammar_open(&run.grammar, options, model, error);
    status = status ?: input_read(&run.text, &run.prompt, options, model, true, error);
    status = status ?: complete(&run, error);
    generator_free(&run.generator);
    speculation_close(&run.speculation);
    close_session(run.session);
    free(run.text.bytes);
    free(run.prompt.ids);
    text_grammar_close(&run.grammar);
    return status;
}
