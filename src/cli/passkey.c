// Mode passkey: hides a five-digit number in a long text of no interest and asks for it, greedily decoded. The text is the
// one of Mohtashami and Jaggi's test (arXiv 2305.16300) as llama.cpp and the blog's yalm have it.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/clock.h"

static const char intro[] = "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
                            "I will quiz you about the important information there.";
static const char junk_line[] = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
static const char question[] = " What is the pass key? The pass key is";

enum { KEY_LENGTH = 5, MAX_ANSWER = 16, USUAL_JUNK = 250 };

struct passkey {
    const struct options *options;
    const yalm_model *model;
    yalm_session *session;
    int most; // positions at hand
    int junk;
    uint64_t seed, random;
    struct text lines;  // of --tokens
    size_t at;          // in them
    struct tokens read; // the last prompt; owned
    size_t read_many;   // of it, evaluated many at once
};

struct trial {
    struct tokens prompt;
    int key, position;           // of a text
    int32_t answer[KEY_LENGTH];  // of ids
    char said[MAX_ANSWER * 128]; // what the model answered
};

// ---------------------------------------------------------------- prompts

static yalm_status encode(const struct passkey *run, int junk, int position, int key, struct tokens *prompt, yalm_error *error)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (file == NULL)
        return cli_no_memory(error);
    fputs(intro, file);
    for (int i = 0; i <= junk; i++) {
        if (i == position)
            fprintf(file, " The pass key is %d. Remember it. %d is the pass key.", key, key);
        if (i < junk)
            fputs(junk_line, file);
    }
    fputs(question, file);
    if (fclose(file) != 0) {
        free(text);
        return cli_no_memory(error);
    }
    const yalm_status status = yalm_tokenize(run->model, text, length, YALM_TOKENIZE_BOS, &prompt->ids, &prompt->n, error);
    free(text);
    return status;
}

// As many lines as the context holds beside the rest.
static yalm_status choose_junk(struct passkey *run, yalm_error *error)
{
    struct tokens one = {0}, two = {0};
    run->junk = run->options->junk;
    if (run->junk >= 0)
        return YALM_OK;
    yalm_status status = encode(run, 1, 0, 99999, &one, error);
    status = status ?: encode(run, 2, 0, 99999, &two, error);
    if (status == YALM_OK) {
        const int64_t line = (int64_t)(two.n - one.n), room = run->most - MAX_ANSWER - (int64_t)one.n;
        const int64_t fit = room < 0 ? 0 : 1 + room / (line > 0 ? line : 1);
        run->junk = fit < USUAL_JUNK ? (int)fit : USUAL_JUNK;
        if (run->options->position > run->junk)
            status = error_set(error, YALM_USAGE, "option '-l': the key's position %d is past the %d junk lines that fit",
                               run->options->position, run->junk);
    }
    free(one.ids);
    free(two.ids);
    return status;
}

// The next line of --tokens: the prompt's ids, and last the five that are asked for. False at the end.
static bool next_line(struct passkey *run, struct trial *trial, yalm_status *status, yalm_error *error)
{
    while (run->at < run->lines.length) {
        const char *line = run->lines.bytes + run->at;
        const char *newline = memchr(line, '\n', run->lines.length - run->at);
        const size_t length = newline ? (size_t)(newline - line) : run->lines.length - run->at;
        run->at += length + 1;
        *status =
            tokens_parse(&trial->prompt, line, length, yalm_model_facts(run->model)->vocab_size, run->options->tokens, error);
        if (*status != YALM_OK)
            return false;
        if (trial->prompt.n == 0) {
            free(trial->prompt.ids);
            continue;
        }
        if (trial->prompt.n <= KEY_LENGTH) {
            *status =
                error_set(error, YALM_USAGE, "%s: a trial of %zu ids: expected a prompt and %d ids to be found, on one line",
                          run->options->tokens, trial->prompt.n, KEY_LENGTH);
            free(trial->prompt.ids);
            return false;
        }
        trial->prompt.n -= KEY_LENGTH;
        memcpy(trial->answer, trial->prompt.ids + trial->prompt.n, sizeof trial->answer);
        return true;
    }
    return false;
}

// False at the end and on failure. The caller frees the prompt.
static bool next_trial(struct passkey *run, int index, struct trial *trial, yalm_status *status, yalm_error *error)
{
    memset(trial, 0, sizeof *trial);
    if (run->options->tokens)
        return next_line(run, trial, status, error);
    if (index == run->options->trials)
        return false;
    trial->key = 10000 + (int)(random_next(&run->random) % 90000);
    const int drawn = (int)(random_next(&run->random) % ((uint64_t)run->junk + 1));
    trial->position = run->options->position >= 0 ? run->options->position : drawn;
    *status = encode(run, run->junk, trial->position, trial->key, &trial->prompt, error);
    return *status == YALM_OK;
}

// ---------------------------------------------------------------- answers

// The key, whole: what follows it is no digit.
static bool says_key(const char *said, int key)
{
    char digits[16];
    const int n = snprintf(digits, sizeof digits, "%d", key);
    said += strspn(said, " ");
    return strncmp(said, digits, (size_t)n) == 0 && !isdigit((unsigned char)said[n]);
}

// How many tokens of a prompt's first `many` need not be read again. Tokens that were decoded one by one do.
static size_t read_before(const struct passkey *run, const struct tokens *prompt, size_t many)
{
    const size_t most = run->read_many < many ? run->read_many : many;
    size_t same = 0;
    while (same < most && run->read.ids[same] == prompt->ids[same])
        same++;
    return same;
}

// The prompt, its last passkey.decode_last tokens one by one: so a sparse way of attending has read the question when it
// answers. The session keeps what the last prompt began with too. The trial's ids go to run->read.
static yalm_status read_prompt(struct passkey *run, struct tokens *prompt, yalm_error *error)
{
    const size_t last = (size_t)run->options->decode_last < prompt->n ? (size_t)run->options->decode_last : prompt->n;
    const size_t many = prompt->n - last;
    size_t before = read_before(run, prompt, many);
    if (before > 0 && before == prompt->n) // the last token's logits are wanted
        before--;
    free(run->read.ids);
    run->read = *prompt;
    run->read_many = many;
    *prompt = (struct tokens){.n = run->read.n};
    const int32_t *ids = run->read.ids;
    before = (size_t)yalm_rollback_point(run->session, (int64_t)before);
    yalm_status status = yalm_rollback(run->session, (int64_t)before, error);
    if (status == YALM_OK && many > before)
        status =
            yalm_eval(run->session, ids + before, (int)(many - before), last > 0 ? YALM_LOGITS_NONE : YALM_LOGITS_LAST, error);
    for (size_t i = many; i < run->read.n && status == YALM_OK; i++)
        status = yalm_eval(run->session, ids + i, 1, YALM_LOGITS_LAST, error);
    return status;
}

// Decodes greedily until the answer is longer than a key. Ids are the answer's text where the prompt came as ids.
static yalm_status answer(struct passkey *run, struct trial *trial, bool *found, yalm_error *error)
{
    yalm_sampling greedy = yalm_sampling_defaults();
    greedy.temperature = 0;
    char bytes[YALM_MAX_PIECE + 8];
    yalm_stream stream = {.started = true};
    const bool ids = run->options->tokens != NULL;
    size_t length = 0;
    int same = 0;
    yalm_status status = read_prompt(run, &trial->prompt, error);
    for (int i = 0; i < (ids ? KEY_LENGTH : MAX_ANSWER) && status == YALM_OK; i++) {
        int32_t token;
        status = sample_token(run->session, &greedy, &token, error);
        if (status != YALM_OK || (!ids && yalm_is_eos(run->model, token)))
            break;
        size_t n = 0;
        if (ids) {
            n = (size_t)snprintf(bytes, sizeof bytes, "%s%d", i ? " " : "", token);
            same += token == trial->answer[i];
        } else {
            n = yalm_stream_token(run->model, &stream, token, false, bytes);
        }
        const size_t room = sizeof trial->said - 1 - length;
        n = n < room ? n : room;
        memcpy(trial->said + length, bytes, n);
        length += n;
        if ((!ids && length - strspn(trial->said, " ") > KEY_LENGTH) ||
            yalm_position(run->session) >= yalm_session_facts(run->session)->context)
            break;
        status = yalm_eval(run->session, &token, 1, YALM_LOGITS_LAST, error);
    }
    *found = ids ? same == KEY_LENGTH : says_key(trial->said, trial->key);
    return status;
}

static void print_trial(const struct passkey *run, const struct trial *trial, int index, bool found)
{
    printf("trial %d: ", index + 1);
    if (run->options->tokens)
        printf("%zu tokens: ", trial->prompt.n);
    else
        printf("key %d after %d of %d lines, %zu tokens: ", trial->key, trial->position, run->junk, trial->prompt.n);
    if (found) {
        puts("found");
        return;
    }
    fputs("not found, said \"", stdout);
    for (const char *at = trial->said; *at; at++)
        putchar((unsigned char)*at < 32 ? ' ' : *at);
    puts("\"");
}

// ---------------------------------------------------------------- trials

static yalm_status open_for(struct passkey *run, size_t n, yalm_error *error)
{
    if (run->session == NULL) { // later prompts differ by a few tokens, as keys do; lines of ids may be of any length
        yalm_session_options how = session_options(run->options);
        const int64_t needed = (int64_t)n + MAX_ANSWER + 64;
        how.context = run->options->tokens || needed > run->most ? run->most : (int)needed;
        run->session = open_session(run->options, run->model, &how, run->options->quiet, error);
        if (run->session == NULL)
            return error->status;
    }
    const int context = yalm_session_facts(run->session)->context;
    if (n > (size_t)context)
        return error_set(error, YALM_USAGE,
                         "the prompt is longer than the context: %zu tokens, and %d fit (-n gives fewer junk lines)", n,
                         context);
    return YALM_OK;
}

static yalm_status run_trial(struct passkey *run, struct trial *trial, int index, int *n_found, yalm_error *error)
{
    bool found;
    if (trial->prompt.n > (size_t)run->most)
        return error_set(error, YALM_USAGE,
                         "the prompt is longer than the context: %zu tokens, and %d fit (-n gives fewer junk lines)",
                         trial->prompt.n, run->most);
    yalm_status status = open_for(run, trial->prompt.n, error);
    if (status != YALM_OK)
        return status;
    progress("trial %d", index + 1);
    status = answer(run, trial, &found, error);
    progress_clear();
    if (status != YALM_OK)
        return status;
    print_trial(run, trial, index, found);
    *n_found += found;
    return output_end(error);
}

static yalm_status run_trials(struct passkey *run, yalm_error *error)
{
    yalm_status status = YALM_OK;
    int n = 0, n_found = 0;
    struct trial trial;
    const double start = clock_seconds();
    for (; status == YALM_OK && !interrupted() && next_trial(run, n, &trial, &status, error); n++) {
        status = run_trial(run, &trial, n, &n_found, error);
        free(trial.prompt.ids);
        if (status != YALM_OK)
            break;
    }
    if (status == YALM_OK && interrupted())
        status = YALM_INTERRUPTED;
    if (status != YALM_OK && status != YALM_INTERRUPTED)
        return status;
    if (status == YALM_INTERRUPTED)
        *error = (yalm_error){.status = YALM_INTERRUPTED};
    if (n == 0)
        return status != YALM_OK ? status : error_set(error, YALM_USAGE, "%s: no trials in it", run->options->tokens);
    printf("found %d/%d, %.1f %%\n", n_found, n, 100.0 * n_found / n);
    if (!run->options->quiet)
        say("%d trials in %.1f s; seed %llu", n, clock_seconds() - start, (unsigned long long)run->seed);
    if (status == YALM_OK && n_found < n)
        status = error_set(error, YALM_FAILED, "%d of %d pass keys were missed", n - n_found, n);
    return status;
}

yalm_status run_passkey(const struct options *options, const yalm_model *model, yalm_error *error)
{
    struct passkey run = {.options = options, .model = model};
    run.most = options->context ? options->context : yalm_model_facts(model)->context_length;
    run.seed = options_given(options, "seed") && options->seed != UINT64_MAX ? options->seed : random_seed();
    run.random = run.seed;
    yalm_status status = YALM_OK;
    if (options->tokens) {
        status = text_read(&run.lines, options->tokens, error);
    } else {
        status = needs_tokenizer(options, model, "read the test's text", error);
        status = status ?: choose_junk(&run, error);
    }
    status = status ?: run_trials(&run, error);
    close_session(run.session);
    free(run.read.ids);
    free(run.lines.bytes);
    return status;
}
