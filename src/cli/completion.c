// Mode completion: continues a text, token by token, on stdout; the statistics go to stderr.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/speculation.h"
#include "cli/state_file.h"
#include "cli/text_out.h"
#include "grammar/mask.h"

struct completion {
    const struct options *options;
    const yalm_model *model;
    yalm_session *session;
    yalm_sampling sampling;
    uint64_t seed;

    struct text text;     // the prompt as given; none where it came as ids
    struct tokens prompt; // and as ids
    size_t n_known;       // of them the session has evaluated already
    int64_t limit;        // tokens to generate; INT64_MAX: no limit

    struct text_out out;
    bool ids_only; // no tokenizer: ids are printed instead of text

    struct grammar *grammar; // that the text follows; NULL: none
    struct token_tree *tree;
    struct masker *masker;

    struct speculation speculation;

    const char *why; // it stopped
    int64_t n_generated, n_decoded;
    double prefill_seconds, first_token_seconds, decode_seconds, decode_bytes;
};

// ---------------------------------------------------------------- context

// A user who asks for it gets the end of a prompt that is too long, with room for what is to come.
static yalm_status fit_prompt(struct completion *run, int64_t most, yalm_error *error)
{
    const struct options *options = run->options;
    struct tokens *prompt = &run->prompt;
    if (prompt->n == 0)
        return cli_error(error, YALM_USAGE, "the prompt has no tokens, and the model no bos token to begin with");
    if ((int64_t)prompt->n <= most)
        return YALM_OK;
    if (!options->truncate_prompt)
        return cli_error(
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
    run->why = "limit";
    if (options->n_predict == -1) {
        const int64_t usual = n + 256 > 4096 ? n + 256 : 4096;
        run->limit = INT64_MAX;
        how->endless = true;
        how->context = (int)(options->context ? most : usual < trained ? usual : trained);
    } else if (options->n_predict == -2 || (options->n_predict > room && !options_given(options, "n-predict"))) {
        run->limit = room;
        run->why = "full context";
        how->context = (int)most;
    } else {
        run->limit = options->n_predict;
        how->endless = run->limit > room;
        how->context = (int)(options->context || how->endless ? most : run->limit > 0 ? n + run->limit - 1 : n);
        if (how->endless && !options->quiet)
            say("past the context of %lld positions the oldest tokens give way", (long long)most);
    }
    return YALM_OK;
}

// ---------------------------------------------------------------- text

static yalm_status send_token(struct completion *run, int32_t token, yalm_error *error)
{
    char bytes[YALM_MAX_PIECE + 8];
    if (!run->ids_only)
        return text_out_token(&run->out, token, error);
    const int n = snprintf(bytes, sizeof bytes, "%s%d", run->out.any ? " " : "", token);
    return text_out_bytes(&run->out, bytes, (size_t)n, error);
}

static yalm_status send_prompt(struct completion *run, yalm_error *error)
{
    const bool echo = !run->options->no_echo;
    yalm_status status = YALM_OK;
    if (run->options->tokens == NULL) {
        run->out.stream.started = run->text.length > 0;
        return echo ? text_out_bytes(&run->out, run->text.bytes, run->text.length, error) : YALM_OK;
    }
    char bytes[YALM_MAX_PIECE + 8];
    for (size_t i = 0; i < run->prompt.n && status == YALM_OK; i++) {
        if (run->ids_only) {
            if (echo)
                status = send_token(run, run->prompt.ids[i], error);
            continue;
        }
        const size_t n = yalm_stream_token(run->model, &run->out.stream, run->prompt.ids[i], run->options->special, bytes);
        if (echo)
            status = text_out_bytes(&run->out, bytes, n, error);
    }
    return status;
}

static yalm_status send_rest(struct completion *run, yalm_error *error)
{
    if (!run->ids_only)
        return text_out_end(&run->out, error);
    return run->out.any ? text_out_bytes(&run->out, "\n", 1, error) : YALM_OK;
}

// ---------------------------------------------------------------- grammar

static yalm_status open_grammar(struct completion *run, yalm_error *error)
{
    struct text text;
    if (run->options->grammar == NULL)
        return YALM_OK;
    yalm_status status = text_read(&text, run->options->grammar, error);
    if (status != YALM_OK)
        return status;
    run->grammar = grammar_parse(text.bytes, text.length, error);
    free(text.bytes);
    if (run->grammar == NULL)
        return error->status;
    run->tree = token_tree_open(run->model);
    if (run->tree == NULL)
        return cli_no_memory(error);
    run->masker = masker_open(run->grammar, run->tree, run->model, error);
    return run->masker ? YALM_OK : error->status;
}

static void close_grammar(struct completion *run)
{
    masker_close(run->masker);
    token_tree_close(run->tree);
    grammar_free(run->grammar);
}

// False where the text is whole, and no token can follow.
static bool allow_tokens(struct completion *run)
{
    if (run->masker == NULL)
        return true;
    run->sampling.allowed = masker_allowed(run->masker);
    return run->sampling.allowed != NULL;
}

static yalm_status no_token(const struct completion *run, yalm_error *error)
{
    if (masker_accepts(run->masker))
        return YALM_OK;
    return cli_error(error, YALM_FAILED, "%s: no token of the vocabulary continues a text of the grammar",
                     run->options->grammar);
}

// ---------------------------------------------------------------- generation

static yalm_status prefill(struct completion *run, yalm_error *error)
{
    const double start = seconds_now();
    const size_t n = run->prompt.n, chunk = (size_t)yalm_session_facts(run->session)->chunk;
    yalm_status status = YALM_OK;
    for (size_t at = run->n_known, piece; at < n && status == YALM_OK; at += piece) { // after ^C whole pieces stay
        piece = n - at < chunk ? n - at : chunk;
        const bool last = at + piece == n;
        status = yalm_eval(run->session, run->prompt.ids + at, (int)piece, last ? YALM_LOGITS_LAST : YALM_LOGITS_NONE, error);
    }
    if (status == YALM_OK)
        status = yalm_finish(run->session, error);
    speculator_read(run->speculation.speculator, run->prompt.ids, n);
    run->prefill_seconds = seconds_now() - start;
    return status;
}

static yalm_status evaluate_token(struct completion *run, int32_t token, yalm_error *error)
{
    struct speculator *speculator = run->speculation.speculator;
    const struct speculation_counts before = speculator_counts(speculator);
    const int64_t depth = yalm_position(run->session);
    const yalm_status status = speculator_eval(speculator, run->session, token, error);
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
    const double start = seconds_now();
    yalm_status status = prefill(run, error);
    double before = 0;
    while (status == YALM_OK && run->n_generated < run->limit) {
        int32_t token;
        if (!allow_tokens(run)) {
            run->why = "end of the grammar";
            return no_token(run, error);
        }
        status = sample_token(run->session, &run->sampling, &token, error);
        if (status != YALM_OK)
            return status;
        if (!on_cpu && run->n_decoded) // there drawing is a part of the step, and only now is it over
            run->decode_seconds += seconds_now() - before;
        if (run->n_generated++ == 0)
            run->first_token_seconds = seconds_now() - start;
        if (yalm_is_eos(run->model, token) && (run->masker || !run->options->ignore_eos)) {
            run->why = "end of text";
            break;
        }
        if (run->masker && !masker_take(run->masker, token))
            return cli_no_memory(error);
        status = send_token(run, token, error);
        if (status != YALM_OK || run->n_generated == run->limit)
            break;
        if (run->out.filter.found) {
            run->why = "stop string";
            break;
        }
        status = keep_in_time(run, error);
        if (status != YALM_OK)
            return status;
        before = seconds_now();
        status = evaluate_token(run, token, error);
        if (status == YALM_OK) {
            run->decode_seconds += on_cpu ? seconds_now() - before : 0;
            run->n_decoded++;
        }
    }
    if (run->out.filter.found)
        run->why = "stop string";
    return status;
}

// ---------------------------------------------------------------- statistics

static double rate(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void say_statistics(struct completion *run)
{
    yalm_limits limits = {0};
    const bool measured = run->n_decoded > 0 && yalm_measure_limits(run->session, 0.2, &limits, NULL) == YALM_OK;
    const int64_t position = yalm_position(run->session), n_prompt = (int64_t)run->prompt.n, n_known = (int64_t)run->n_known;
    const int64_t prompted = position < n_prompt ? position : n_prompt; // fewer after ^C
    const int64_t prefilled = prompted > n_known ? prompted - n_known : 0;
    say("prefill: %lld tokens in %.3f s, %.1f tok/s", (long long)prefilled, run->prefill_seconds,
        rate(prefilled, run->prefill_seconds));
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
    say("generated: %lld tokens, the first after %.3f s; seed %llu; stopped by: %s", (long long)run->n_generated,
        run->first_token_seconds, (unsigned long long)run->seed, run->why);
}

// Text first, then numbers: also after ^C.
static yalm_status finish(struct completion *run, yalm_status status, yalm_error *error)
{
    const struct options *options = run->options;
    if (status == YALM_INTERRUPTED || (status == YALM_OK && interrupted())) {
        status = YALM_INTERRUPTED;
        run->why = "interrupt";
        *error = (yalm_error){.status = YALM_INTERRUPTED};
    } else if (status != YALM_OK) {
        return status;
    }
    yalm_error rest;
    const yalm_status sent = send_rest(run, &rest);
    if (sent != YALM_OK) {
        *error = rest;
        return sent;
    }
    if (run->out.any && run->out.last_byte != '\n' && isatty(STDOUT_FILENO))
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

// What a run before has left in the file of --session, as far as this prompt begins alike; nothing where a sliding window has gone past that point.
static yalm_status take_up(struct completion *run, yalm_error *error)
{
    struct tokens known;
    yalm_status status = state_open(run->options, run->session, &known, error);
    if (status == YALM_OK && known.n > 0) {
        run->n_known = (size_t)yalm_rollback_point(run->session, (int64_t)state_common(&known, &run->prompt));
        status = yalm_rollback(run->session, (int64_t)run->n_known, error);
    }
    free(known.ids);
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
    if (status == YALM_OK)
        status = take_up(run, error);
    if (status == YALM_OK)
        status = send_prompt(run, error);
    if (status == YALM_OK)
        status = keep(run, finish(run, generate(run, error), error), error);
    return status;
}

yalm_status run_completion(const struct options *options, yalm_error *error)
{
    yalm_model *model = open_model(options, error);
    if (model == NULL)
        return error->status;
    struct completion run = {.options = options,
                             .model = model,
                             .sampling = options->sampling,
                             .out = {.model = model, .filter = {.stops = &options->stops}, .special = options->special}};
    run.ids_only = strcmp(yalm_model_facts(model)->tokenizer, "none") == 0;
    yalm_status status = yalm_sampling_check(model, &run.sampling, error);
    if (status == YALM_OK && run.ids_only && options->stops.n)
        status = needs_tokenizer(options, model, "find stop strings", error);
    if (status == YALM_OK)
        status = open_grammar(&run, error);
    if (status == YALM_OK)
        status = input_read(&run.text, &run.prompt, options, model, true, error);
    if (status == YALM_OK)
        status = complete(&run, error);
    speculation_close(&run.speculation);
    close_session(run.session);
    free(run.text.bytes);
    free(run.prompt.ids);
    stop_filter_free(&run.out.filter);
    close_grammar(&run);
    yalm_model_close(model);
    return status;
}
