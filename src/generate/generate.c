// yalm_generate(): runs one text for a program that has nothing else to do meanwhile.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generate/generator.h"
#include "generate/learn_calls.h"
#include "util/error.h"

struct generation_run {
    struct generator generator;
    struct generator_options options;
    const yalm_generation *how;
    struct grammar *grammar;
    struct token_tree *tree;
    struct told told;
    struct call_form form;
    struct speech_calls calls;
    char tail[8 * YALM_MAX_PIECE]; // how the prompt ends
};

yalm_generation yalm_generation_defaults(void)
{
    return (yalm_generation){.size = sizeof(yalm_generation), .max_tokens = -1, .speculate = true};
}

// ------------------------------------------------------------------------------------------ opening

// Before anything else of them is read: they may be shorter than ours.
static yalm_status check_sizes(const yalm_generation *how, yalm_error *error)
{
    if (error_of_size(how->size, sizeof *how, "yalm_generation", error) != YALM_OK)
        return YALM_USAGE;
    return how->sampling ? error_of_size(how->sampling->size, sizeof *how->sampling, "yalm_sampling", error) : YALM_OK;
}

static yalm_status check(const yalm_session *session, size_t n, const yalm_generation *how, const yalm_sampling *sampling,
                         yalm_error *error)
{
    const int context = yalm_session_facts(session)->context;
    if (n == 0)
        return error_set(error, YALM_USAGE, "the prompt has no tokens");
    if (n > (size_t)context && !yalm_session_facts(session)->endless)
        return error_set(error, YALM_USAGE, "the prompt is longer than the context: %zu tokens, and %d fit", n, context);
    for (int i = 0; i < how->n_stops; i++)
        if (how->stops[i][0] == '\0')
            return error_set(error, YALM_USAGE, "stop string %d of %d is empty", i + 1, how->n_stops);
    return yalm_sampling_check(yalm_session_model(session), sampling, error);
}

static yalm_status open_grammar(struct generation_run *run, const yalm_model *model, yalm_error *error)
{
    const char *text = run->how->grammar;
    if (text == NULL)
        return YALM_OK;
    yalm_error own;
    error = error ? error : &own;
    run->grammar = grammar_parse(text, strlen(text), error);
    if (run->grammar == NULL)
        return error->status;
    run->tree = token_tree_open(model);
    if (run->tree == NULL)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a grammar");
    run->generator.masker = masker_open(run->grammar, run->tree, model, error);
    return run->generator.masker ? YALM_OK : error->status;
}

// What the chat template says about the parts, and what the prompt's last tokens have begun.
static void find_parts(struct generation_run *run, const yalm_model *model, const int32_t *prompt, size_t n)
{
    const char *template = yalm_model_facts(model)->chat_template;
    yalm_stream stream = {.started = true};
    size_t length = 0;
    for (size_t i = n < 7 ? 0 : n - 7; i < n; i++)
        length += yalm_stream_token(model, &stream, prompt[i], true, run->tail + length);
    run->options.parts = true;
    learn_calls(&run->form, model);
    run->calls = (struct speech_calls){.form = &run->form};
    run->options.calls = &run->calls;
    run->options.forms = speech_marks(template);
    run->options.reasoning_end = speech_reasoning_end(run->tail, length);
    run->options.grammar_after = speech_answer_mark(run->options.forms, run->options.reasoning_end);
    run->options.spell_control = run->options.forms != 0 || run->form.known;
}

static yalm_status open_run(struct generation_run *run, yalm_session *session, const int32_t *prompt, size_t n,
                            yalm_error *error)
{
    const yalm_model *model = yalm_session_model(session);
    const yalm_generation *how = run->how;
    run->options = (struct generator_options){.sampling = how->sampling ? *how->sampling : yalm_sampling_defaults(),
                                              .max_tokens = how->max_tokens,
                                              .stops = how->stops,
                                              .n_stops = how->n_stops,
                                              .ignore_eos = how->ignore_eos,
                                              .n_likely = how->log_probabilities ? 0 : -1};
    run->generator = (struct generator){.how = &run->options,
                                        .session = session,
                                        .prompt = prompt,
                                        .n_prompt = n,
                                        .stream = {.started = !how->parts}}; // an answer is a text of its own
    yalm_status status = check(session, n, how, &run->options.sampling, error);
    if (status == YALM_OK && how->parts)
        find_parts(run, model, prompt, n);
    status = status ?: open_grammar(run, model, error);
    if (status == YALM_OK && how->speculate && (run->generator.speculator = speculator_open(NULL, NULL)) == NULL)
        status = error_set(error, YALM_NO_MEMORY, "out of memory for the answer");
    return status;
}

static void close_run(struct generation_run *run)
{
    struct speculator *speculator = run->generator.speculator;
    generator_free(&run->generator);
    speculator_close(speculator);
    token_tree_close(run->tree);
    grammar_free(run->grammar);
    free(run);
}

// ------------------------------------------------------------------------------------------ telling

static bool tell(const struct generation_run *run, const yalm_event *event)
{
    return run->how->take == NULL || run->how->take(run->how->context, event);
}

static bool tell_token(const struct generation_run *run)
{
    const struct generator *g = &run->generator;
    const struct score *score = g->scores.n ? &g->scores.list[g->scores.n - 1] : NULL;
    return tell(run, &(yalm_event){
                         .kind = YALM_EVENT_TOKEN, .token = g->token, .log_probability = score ? score->log_probability : NAN});
}

static bool tell_text(struct generation_run *run)
{
    const struct generator *g = &run->generator;
    const size_t from = run->told.content;
    if (g->shown == from)
        return true;
    run->told.content = g->shown;
    return tell(
        run,
        &(yalm_event){.kind = YALM_EVENT_TEXT, .text = g->text.at + from, .length = g->shown - from, .log_probability = NAN});
}

static bool tell_parts(struct generation_run *run)
{
    static const enum yalm_event_kind kinds[] = {[PART_REASONING] = YALM_EVENT_REASONING,
                                                 [PART_TEXT] = YALM_EVENT_TEXT,
                                                 [PART_CALL] = YALM_EVENT_CALL,
                                                 [PART_ARGUMENTS] = YALM_EVENT_ARGUMENTS};
    struct piece piece;
    bool goes_on = true;
    while (goes_on && speech_news(&run->generator.speech, &run->told, &piece))
        goes_on = tell(run, &(yalm_event){.kind = kinds[piece.part],
                                          .text = piece.text.at,
                                          .length = piece.text.length,
                                          .call = piece.call,
                                          .log_probability = NAN});
    return goes_on;
}

// After a token, and at the end. The caller may end the text.
static void tell_news(struct generation_run *run)
{
    struct generator *g = &run->generator;
    if (!((!g->added || tell_token(run)) && (g->how->parts ? tell_parts(run) : tell_text(run))))
        g->stop = YALM_STOP_CALLER;
}

// ------------------------------------------------------------------------------------------ running

static yalm_status generate(struct generation_run *run, yalm_error *error)
{
    struct generator *g = &run->generator;
    const int chunk = yalm_session_facts(g->session)->chunk;
    generator_begin(g, true);
    speculator_read(g->speculator, g->prompt, g->n_cached);
    for (;;) {
        yalm_status status = generator_next(g, chunk, error);
        if (status == YALM_OK)
            tell_news(run);
        if (status == YALM_OK && !g->stop)
            status = generator_evaluate(g, error);
        if (status == YALM_INTERRUPTED && !generator_reads(g)) {
            generator_end(g);
            tell_news(run);
        }
        if (status != YALM_OK || g->stop)
            return status;
    }
}

static int number_of(const struct generator *g)
{
    int i = 0;
    while (i < g->how->n_stops && g->how->stops[i] != g->stop_string)
        i++;
    return i < g->how->n_stops ? i : -1;
}

yalm_status yalm_generate(yalm_session *session, const int32_t *prompt, size_t n, const yalm_generation *how,
                          yalm_generated *result, yalm_error *error)
{
    const yalm_generation defaults = yalm_generation_defaults();
    how = how ? how : &defaults;
    if (check_sizes(how, error) != YALM_OK)
        return YALM_USAGE;
    struct generation_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return error_set(error, YALM_NO_MEMORY, "out of memory for the answer");
    run->how = how;
    yalm_status status = open_run(run, session, prompt, n, error);
    status = status ?: generate(run, error);
    const struct generator *g = &run->generator;
    if (result)
        *result = (yalm_generated){g->stop, number_of(g), (int64_t)g->n_generated, g->n_cached};
    close_run(run);
    return status;
}
