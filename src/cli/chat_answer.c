// One answer: the conversation is rendered, what of it is new is evaluated, and tokens are drawn until the model ends its turn.
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/state_file.h"
#include "cli/wrap.h"
#include "generate/generator.h"
#include "util/clock.h"

// ---------------------------------------------------------------- the session

static yalm_status open_again(struct chat_session *chat, bool quiet, yalm_error *error)
{
    yalm_session_options how = session_options(chat->options);
    close_session(chat->session);
    chat->session = open_session(chat->options, chat->model, &how, quiet, error);
    if (chat->session == NULL)
        return error->status;
    yalm_seed(chat->session, chat->seed++);
    return YALM_OK;
}

yalm_status chat_open(struct chat_session *chat, yalm_error *error)
{
    const struct options *options = chat->options;
    const bool given = options_given(options, "seed") && options->seed != UINT64_MAX;
    chat->seed = given ? options->seed : random_seed();
    yalm_status status = open_again(chat, options->quiet, error);
    if (status != YALM_OK)
        return status;
    status = speculation_open(&chat->speculation, options, chat->model, chat->session, error);
    status = status ?: text_grammar_open(&chat->grammar, options, chat->model, error);
    status = status ?: state_open(options, chat->session, error);
    if (status != YALM_OK)
        return status;
    return conversation_new(&chat->conversation, options->system, error);
}

void chat_close(struct chat_session *chat)
{
    speculation_close(&chat->speculation);
    close_session(chat->session);
    conversation_free(&chat->conversation);
    text_grammar_close(&chat->grammar);
}

// ---------------------------------------------------------------- the prompt

// The conversation as the model reads it, as text and in tokens, both the caller's to free.
static yalm_status read_conversation(const struct chat_session *chat, struct text *text, struct tokens *prompt,
                                     yalm_error *error)
{
    char *variables = conversation_variables(&chat->conversation, &chat->options->variables);
    *text = (struct text){0};
    if (variables == NULL)
        return cli_no_memory(error);
    yalm_status status = yalm_chat_render(chat->model, variables, strlen(variables), &text->bytes, &text->length, error);
    free(variables);
    if (status == YALM_OK) // the template has spelled the bos token where the model wants one
        status = yalm_tokenize(chat->model, text->bytes, text->length, YALM_TOKENIZE_SPECIAL, &prompt->ids, &prompt->n, error);
    return status;
}

// -i or -f: there is nobody to type a command.
static bool answers_once(const struct chat_session *chat)
{
    return chat->options->prompt || chat->options->file;
}

static yalm_status check_room(const struct chat_session *chat, size_t n, yalm_error *error)
{
    const int context = yalm_session_facts(chat->session)->context;
    if (n == 0)
        return error_set(error, YALM_USAGE, "the conversation has no tokens");
    if (n < (size_t)context)
        return YALM_OK;
    return error_set(error, YALM_USAGE, "the conversation has %zu tokens, and the context holds %d: %s", n, context,
                     answers_once(chat)
                         ? "-T N makes it larger"
                         : "/undo takes the last turn back, /reset begins anew; -T N, at the start, makes it larger");
}

// ---------------------------------------------------------------- the answer

static const char *why(const struct generator *g)
{
    static const char *const reasons[] = {
        [YALM_GOES_ON] = "interrupt", [YALM_STOP_END] = "end of turn",      [YALM_STOP_STRING] = "stop string",
        [YALM_STOP_LIMIT] = "limit",  [YALM_STOP_CONTEXT] = "full context", [YALM_STOP_GRAMMAR] = "end of the grammar"};
    return reasons[g->stop];
}

static yalm_status evaluate(struct generator *g, yalm_error *error)
{
    const yalm_status status = generator_evaluate(g, error);
    if (status == YALM_INTERRUPTED && !interrupted()) // a ^C that the last answer's end has overtaken
        return generator_evaluate(g, error);
    return status;
}

static yalm_status read_prompt(struct chat_session *chat, struct generator *g, yalm_error *error)
{
    const double start = clock_seconds();
    const int chunk = yalm_session_facts(chat->session)->chunk;
    yalm_status status = YALM_OK;
    while (generator_reads(g) && status == YALM_OK) {
        if (g->n_prompt - g->n_read > (size_t)chunk)
            progress("reading: %zu of %zu tokens", g->n_read, g->n_prompt);
        status = generator_next(g, chunk, error);
        status = status ?: evaluate(g, error);
    }
    progress_clear();
    status = status ?: yalm_finish(chat->session, error);
    chat->turn.prefill_seconds = clock_seconds() - start;
    return status;
}

// Shows the answer while it comes.
static yalm_status write_answer(struct chat_session *chat, struct generator *g, yalm_error *error)
{
    const double start = clock_seconds();
    yalm_status status = YALM_OK;
    while (status == YALM_OK && !interrupted()) {
        status = generator_next(g, 1, error);
        status = status ?: reasoning_show(&chat->reasoning, &g->speech, false, error);
        if (status != YALM_OK || g->stop)
            break;
        status = evaluate(g, error);
    }
    chat->turn.decode_seconds = clock_seconds() - start;
    return status;
}

// As it was written, which its template reads again. Of channels, which a template refuses in a message, the parts.
static yalm_status add_answer(struct chat_session *chat, const struct generator *g, yalm_error *error)
{
    struct conversation *conversation = &chat->conversation;
    const struct buffer *content = &g->speech.content, *reasoning = &g->speech.reasoning;
    if (!(chat->forms & (SPEECH_HARMONY | SPEECH_GEMMA)))
        return conversation_add_answer(conversation, g->text.at, g->text.length, NULL, 0, error);
    return conversation_add_answer(conversation, content->at, content->length, reasoning->at, reasoning->length, error);
}

static void say_full(const struct chat_session *chat)
{
    const int context = yalm_session_facts(chat->session)->context, most = yalm_model_facts(chat->model)->context_length;
    char larger[64] = "";
    const bool once = answers_once(chat);
    if (context < most)
        snprintf(larger, sizeof larger, "%s-T N at the start makes it larger, up to %d", once ? ": " : "", most);
    say("(the context of %d tokens is full, and the answer ends here%s%s%s%s)", context, once ? "" : ": ", larger,
        !once && *larger ? "; " : "", once ? "" : "/undo or /reset makes room");
}

// An answer that was written becomes a message, whole or not.
static yalm_status keep_answer(struct chat_session *chat, yalm_status status, struct generator *g, yalm_error *error)
{
    yalm_error rest;
    if (status == YALM_INTERRUPTED || interrupted()) {
        status = YALM_INTERRUPTED;
        *error = (yalm_error){.status = YALM_INTERRUPTED};
        if (!g->stop)
            generator_end(g);
        g->stop = YALM_GOES_ON;
    } else if (status != YALM_OK) {
        wrap_end(&rest);
        return status;
    }
    chat->turn.why = why(g);
    yalm_status last = reasoning_show(&chat->reasoning, &g->speech, true, &rest);
    if (last == YALM_OK)
        last = wrap_end(&rest);
    if (g->stop == YALM_STOP_CONTEXT && !chat->options->quiet)
        say_full(chat);
    if (last == YALM_OK)
        last = add_answer(chat, g, &rest);
    if (last != YALM_OK)
        *error = rest;
    return last != YALM_OK ? last : status;
}

static struct generator_options answer_options(const struct chat_session *chat, const struct text *text)
{
    const struct options *options = chat->options;
    const bool limited = options_given(options, "n-predict") && options->n_predict >= 0;
    const char *reasoning_end = speech_reasoning_end(text->bytes, text->length);
    return (struct generator_options){.sampling = options->sampling,
                                      .max_tokens = limited ? options->n_predict : -1,
                                      .stops = options->stops.texts,
                                      .n_stops = options->stops.n,
                                      .ignore_eos = options->ignore_eos,
                                      .spell_control = options->special || chat->forms, // marks are control tokens
                                      .n_likely = -1,
                                      .grammar_after = speech_answer_mark(chat->forms, reasoning_end),
                                      .parts = true,
                                      .forms = chat->forms,
                                      .reasoning_end = reasoning_end};
}

static yalm_status answer(struct chat_session *chat, const struct text *text, const struct tokens *prompt, yalm_error *error)
{
    const struct generator_options how = answer_options(chat, text);
    struct generator g = {.how = &how,
                          .session = chat->session,
                          .speculator = chat->speculation.speculator,
                          .prompt = prompt->ids,
                          .n_prompt = prompt->n}; // a text of its own, without the space that some tokenizers begin one with
    yalm_status status = text_grammar_begin(&chat->grammar, chat->model, &g.masker, error);
    if (status == YALM_OK) {
        generator_begin(&g, true);
        if (!chat->begun) // a session that was loaded
            speculator_read(g.speculator, g.prompt, g.n_cached);
        chat->begun = true;
        chat->turn.n_kept = g.n_cached;
        watch_interrupt(chat->session);
        status = read_prompt(chat, &g, error);
    }
    status = status ?: keep_answer(chat, write_answer(chat, &g, error), &g, error);
    chat->turn.n_generated = (int64_t)g.n_generated;
    generator_free(&g);
    return status;
}

yalm_status chat_answer(struct chat_session *chat, yalm_error *error)
{
    struct tokens prompt = {0};
    struct text text;
    chat->turn = (struct answered){.why = ""};
    chat->reasoning.told = (struct told){0};
    chat->reasoning.inside = false;
    chat->reasoning.last = 0;
    yalm_status status = read_conversation(chat, &text, &prompt, error);
    status = status ?: check_room(chat, prompt.n, error);
    chat->turn.n_prompt = prompt.n;
    status = status ?: answer(chat, &text, &prompt, error);
    free(prompt.ids);
    free(text.bytes);
    return status;
}
