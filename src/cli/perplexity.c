// Mode perplexity: how well the model predicts a text.
//
// The text's tokens are cut into windows of --ctx tokens. A window is evaluated on its own, as bos and all its tokens but the
// last, and each of its tokens is predicted; ids from --tokens are used as they are, with no bos, so the first of a window is
// input only (and the last is fed only where its logits are saved or compared: a file has one row for each token). With
// perplexity.stride windows overlap, and only tokens that no window has scored yet count. With perplexity.decode_from=N the
// first N inputs of a window are a prompt, evaluated many at once and not scored; the others are fed one by one, as in
// generation, so that what is measured is the way that attention goes then.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/logits_file.h"
#include "util/clock.h"
#include "util/new_file.h"

// Of at most so many tokens, and so many bytes where that is fewer, logits are held at once: what is evaluated together is
// the faster the more it is.
enum { PIECE = 512, PIECE_LEAST = 64, PIECE_BYTES = 64 << 20 };

struct perplexity {
    const struct options *options;
    yalm_session *session;
    struct tokens tokens;
    int n_vocab, piece; // tokens that are evaluated together
    int32_t bos;        // -1: windows begin without
    int64_t window, stride;
    int64_t prompt; // inputs of each window before those that are fed one by one; 0: all go many at once

    int64_t n_scored, n_evaluated;
    double nll, nll_squares; // sums of -ln p and of its square
    struct new_file saved;   // --save-logits
    struct divergence divergence;
};

// Tokens [begin, end) of the text; those from `first` on are scored.
struct window {
    int64_t begin, end, first;
};

// The window after `last`, which is all zeros before the first. False at the end.
static bool next_window(const struct perplexity *run, struct window *last)
{
    const int64_t n = (int64_t)run->tokens.n;
    if (last->end >= n)
        return false;
    const int64_t begin = last->end == 0 ? 0 : last->begin + run->stride;
    const int64_t end = begin + run->window < n ? begin + run->window : n;
    const int64_t predictable = run->bos >= 0 ? begin : begin + 1;
    const int64_t decoded = run->prompt ? predictable + run->prompt : begin; // input i predicts token predictable + i
    const int64_t first = predictable > last->end ? predictable : last->end;
    *last = (struct window){begin, end, first > decoded ? first : decoded};
    return true;
}

static int64_t window_inputs(const struct perplexity *run, const struct window *window)
{
    const bool every_row = run->bos >= 0 || run->options->save_logits || run->options->kl_base;
    return window->end - window->begin - !every_row;
}

// How many rows of logits are saved or compared, and how many tokens are predicted, in all.
static void count(const struct perplexity *run, int64_t *rows, int64_t *scored, int64_t *windows)
{
    *rows = *scored = *windows = 0;
    for (struct window window = {0}; next_window(run, &window); ++*windows) {
        const int64_t decoded = window_inputs(run, &window) - run->prompt;
        *rows += decoded > 0 ? decoded : 0;
        *scored += window.end > window.first ? window.end - window.first : 0;
    }
}

static yalm_status score_row(struct perplexity *run, const float *logits, const struct window *window, int64_t predicted,
                             yalm_error *error)
{
    const bool counts = predicted >= window->first && predicted < window->end;
    if (run->divergence.file) {
        const int32_t next = counts ? run->tokens.ids[predicted] : -1;
        const yalm_status status = divergence_add(&run->divergence, logits, next, error);
        if (status != YALM_OK)
            return status;
    }
    if (!counts)
        return YALM_OK;
    const double nll = yalm_log_sum_exp(logits, run->n_vocab) - logits[run->tokens.ids[predicted]];
    if (!isfinite(nll))
        return error_set(error, YALM_FAILED, "the logits that predict token %lld are not finite", (long long)predicted);
    run->nll += nll;
    run->nll_squares += nll * nll;
    run->n_scored++;
    return YALM_OK;
}

// Feeds inputs [at, at + n) of a window; input 0 is bos where there is one.
static yalm_status run_piece(struct perplexity *run, const struct window *window, int64_t at, int n, yalm_error *error)
{
    int32_t ids[PIECE];
    const int64_t shift = run->bos >= 0; // input i is token begin + i - shift and predicts the one after
    for (int i = 0; i < n; i++)
        ids[i] = at + i < shift ? run->bos : run->tokens.ids[window->begin + at + i - shift];
    const int64_t last_predicted = window->begin + at + n - shift;
    const bool all = at >= run->prompt && (run->saved.file || run->divergence.file || last_predicted >= window->first);
    yalm_status status = yalm_eval(run->session, ids, n, all ? YALM_LOGITS_ALL : YALM_LOGITS_NONE, error);
    for (int i = 0; i < n && all && status == YALM_OK; i++) {
        const float *logits = yalm_logits(run->session, i);
        if (run->saved.file && fwrite(logits, sizeof *logits, (size_t)run->n_vocab, run->saved.file) != (size_t)run->n_vocab)
            status = error_set(error, YALM_FAILED, "%s: %s", run->saved.path, strerror(errno));
        status = status ?: score_row(run, logits, window, window->begin + at + i + 1 - shift, error);
    }
    run->n_evaluated += status == YALM_OK ? n : 0;
    return status;
}

static double standard_error(const struct perplexity *run)
{
    if (run->n_scored < 2)
        return 0;
    const double n = (double)run->n_scored, mean = run->nll / n, variance = run->nll_squares / n - mean * mean;
    return exp(mean) * sqrt(variance > 0 ? variance / (n - 1) : 0);
}

// Running values: written over on a terminal, else about twenty lines.
static void say_running(const struct perplexity *run, int64_t window, int64_t windows, bool whole)
{
    if (run->n_scored == 0)
        return;
    const double ppl = exp(run->nll / (double)run->n_scored);
    if (progress_wanted())
        progress("window %lld of %lld, %lld tokens: PPL %.4f", (long long)window, (long long)windows, (long long)run->n_scored,
                 ppl);
    else if (whole && !run->options->quiet && window % (windows / 20 + 1) == 0)
        say("[%lld/%lld] %.4f", (long long)window, (long long)windows, ppl);
}

static yalm_status run_windows(struct perplexity *run, int64_t windows, yalm_error *error)
{
    yalm_status status = YALM_OK;
    struct window window = {0};
    for (int64_t w = 1; status == YALM_OK && next_window(run, &window); w++) {
        status = yalm_rollback(run->session, 0, error);
        const int64_t n = window_inputs(run, &window);
        for (int64_t at = 0, piece; at < n && status == YALM_OK; at += piece) {
            piece = run->prompt && at >= run->prompt ? 1 : run->piece;
            const int64_t end = at < run->prompt && run->prompt < n ? run->prompt : n;
            piece = end - at < piece ? end - at : piece;
            status = run_piece(run, &window, at, (int)piece, error);
            say_running(run, w, windows, false);
        }
        if (status == YALM_OK)
            say_running(run, w, windows, true);
    }
    progress_clear();
    return status;
}

static void print_results(struct perplexity *run, double seconds)
{
    printf("Final estimate: PPL = %.4f +/- %.5f\n", exp(run->nll / (double)run->n_scored), standard_error(run));
    printf("nll: %.6f over %lld tokens, %.6f each\n", run->nll, (long long)run->n_scored, run->nll / (double)run->n_scored);
    printf("speed: %lld tokens in %.3f s, %.1f tokens per second\n", (long long)run->n_evaluated, seconds,
           seconds > 0 ? (double)run->n_evaluated / seconds : 0);
    if (run->divergence.file) {
        printf("KL divergence: mean %.9f, 99.9 %% quantile %.9f\n", divergence_mean(&run->divergence),
               divergence_quantile(&run->divergence, 0.999));
        printf("same top: %.3f %%\n", 100.0 * (double)run->divergence.same_top / (double)run->divergence.n);
        double standard_error;
        const double ratio = divergence_ratio(&run->divergence, &standard_error);
        printf("PPL ratio: %.6f +/- %.6f\n", ratio, standard_error);
    }
}

static yalm_status measure(struct perplexity *run, const yalm_model *model, yalm_error *error)
{
    const struct options *options = run->options;
    yalm_session_options how = session_options(options);
    how.context = (int)((size_t)run->window < run->tokens.n ? run->window : (int64_t)run->tokens.n);
    int64_t rows, scored, windows;
    count(run, &rows, &scored, &windows);
    if (scored == 0)
        return error_set(error, YALM_USAGE, "%zu tokens are too few to predict any", run->tokens.n);
    yalm_status status = YALM_OK;
    if (options->kl_base)
        status = divergence_open(&run->divergence, options->kl_base, rows, run->n_vocab, error);
    if (status != YALM_OK)
        return status;
    run->session = open_session(options, model, &how, options->quiet, error);
    if (run->session == NULL)
        return error->status;
    if (!options->quiet)
        say("%zu tokens in %lld windows of at most %lld%s", run->tokens.n, (long long)windows, (long long)run->window,
            run->bos >= 0 ? ", each behind bos" : "");
    if (options->save_logits)
        status = new_file_create(&run->saved, options->save_logits, NULL, NULL, error);
    const double start = clock_seconds();
    status = status ?: run_windows(run, windows, error);
    const double seconds = clock_seconds() - start;
    if (status == YALM_OK && interrupted())
        status = error_set(error, YALM_INTERRUPTED, "interrupted");
    status = new_file_finish(&run->saved, status, error);
    if (status == YALM_INTERRUPTED && run->n_scored) // the text so far
        say("interrupted after %lld tokens: PPL %.4f +/- %.5f", (long long)run->n_scored, exp(run->nll / (double)run->n_scored),
            standard_error(run));
    if (status == YALM_INTERRUPTED)
        *error = (yalm_error){.status = YALM_INTERRUPTED};
    if (status == YALM_OK)
        print_results(run, seconds);
    return status;
}

static int piece_of(int n_vocab)
{
    const int most = PIECE_BYTES / (int)sizeof(float) / n_vocab;
    return most > PIECE ? PIECE : most < PIECE_LEAST ? PIECE_LEAST : most;
}

yalm_status run_perplexity(const struct options *options, const yalm_model *model, yalm_error *error)
{
    const yalm_model_info *facts = yalm_model_facts(model);
    struct perplexity run = {.options = options, .n_vocab = facts->vocab_size, .piece = piece_of(facts->vocab_size), .bos = -1};
    if (!options->tokens && !options->no_bos && facts->add_bos)
        run.bos = facts->bos;
    struct text text;
    yalm_status status = input_read(&text, &run.tokens, options, model, false, error);
    if (status == YALM_OK) {
        if (options->max_tokens && run.tokens.n > (size_t)options->max_tokens)
            run.tokens.n = (size_t)options->max_tokens;
        run.window = options->context ? options->context : facts->context_length < 4096 ? facts->context_length : 4096;
        run.stride = options->stride ? options->stride : run.window;
        run.prompt = options->decode_from;
        if (run.prompt >= run.window)
            status =
                error_set(error, YALM_USAGE, "perplexity.decode_from: found %lld, expected less than the window's %lld tokens",
                          (long long)run.prompt, (long long)run.window);
        else if (run.stride > run.window)
            status = error_set(error, YALM_USAGE, "setting 'perplexity.stride': %lld is longer than the window of %lld tokens",
                               (long long)run.stride, (long long)run.window);
        else
            status = measure(&run, model, error);
    }
    free(text.bytes);
    free(run.tokens.ids);
    divergence_close(&run.divergence);
    close_session(run.session);
    return status;
}
