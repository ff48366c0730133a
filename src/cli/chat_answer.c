// One answer: the conversation is rendered, what of it is new is evaluated, and tokens are drawn until the model ends its turn.
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/state_file.h"
#include "cli/text_out.h"
#include "speech/speech.h"

// ---------------------------------------------------------------- the session

static yalm_status open_again(struct chat *chat, bool quiet, yalm_error *error)
{
    yalm_session_options how = session_options(chat->options);
    close_session(chat->session);
    chat->known.n = 0;
    chat->session = open_session(chat->options, chat->model, &how, quiet, error);
    if (chat->session == NULL)
        return error->status;
    yalm_seed(chat->session, chat->seed++);
    return YALM_OK;
}

yalm_status chat_open(struct chat *chat, yalm_error *error)
{
    const struct options *options = chat->options;
    const bool given = options_given(options, "seed") && options->seed != UINT64_MAX;
    chat->seed = given ? options->seed : random_seed();
    yalm_status status = open_again(chat, options->quiet, error);
    if (status != YALM_OK)
        return status;
    status = speculation_open(&chat->speculation, options, chat->model, chat->session, error);
    if (status == YALM_OK)
        status = state_open(options, chat->session, &chat->known, error);
    speculator_read(chat->speculation.speculator, chat->known.ids, chat->known.n);
    if (status != YALM_OK)
        return status;
    return conversation_new(&chat->conversation, options->system, error);
}

void chat_close(struct chat *chat)
{
    speculation_close(&chat->speculation);
    close_session(chat->session);
    conversation_free(&chat->conversation);
    free(chat->known.ids);
    free(chat->answer);
}

// ---------------------------------------------------------------- the prompt

// The conversation as the model reads it, as text and in tokens, both the caller's to free.
static yalm_status read_conversation(const struct chat *chat, struct text *text, struct tokens *prompt, yalm_error *error)
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

static yalm_status check_room(const struct chat *chat, size_t n, yalm_error *error)
{
    const int context = yalm_session_facts(chat->session)->context;
    if (n == 0)
        return cli_error(error, YALM_USAGE, "the conversation has no tokens");
    if (n < (size_t)context)
        return YALM_OK;
    return cli_error(
        error, YALM_USAGE,
        "the conversation has %zu tokens, and the context holds %d: /undo takes the last turn back, /reset begins anew; -T N, "
        "at the start, makes it larger",
        n, context);
}

// Takes the session back to where the conversation differs from what it has evaluated, or before that, to what it still holds.
static yalm_status keep_prefix(struct chat *chat, const struct tokens *prompt, yalm_error *error)
{
    const size_t n = (size_t)yalm_rollback_point(chat->session, (int64_t)state_common(&chat->known, prompt));
    if (n < chat->known.n)
        speculator_begin(chat->speculation.speculator);
    chat->turn.n_kept = chat->known.n = n;
    return yalm_rollback(chat->session, (int64_t)n, error);
}

static yalm_status evaluate(struct chat *chat, const int32_t *ids, size_t n, yalm_error *error)
{
    yalm_status status = yalm_eval(chat->session, ids, (int)n, YALM_LOGITS_LAST, error);
    if (status == YALM_INTERRUPTED && !interrupted()) // a ^C that the last answer's end has overtaken
        status = yalm_eval(chat->session, ids, (int)n, YALM_LOGITS_LAST, error);
    if (status != YALM_OK)
        return status;
    speculator_read(chat->speculation.speculator, ids, n);
    memcpy(chat->known.ids + chat->known.n, ids, n * sizeof *ids);
    chat->known.n += n;
    return YALM_OK;
}

static yalm_status prefill(struct chat *chat, const struct tokens *prompt, yalm_error *error)
{
    const double start = seconds_now();
    const size_t chunk = (size_t)yalm_session_facts(chat->session)->chunk;
    yalm_status status = YALM_OK;
    while (chat->known.n < prompt->n && status == YALM_OK) {
        const size_t left = prompt->n - chat->known.n, piece = left < chunk ? left : chunk;
        if (left > chunk)
            progress("reading: %zu of %zu tokens", chat->known.n, prompt->n);
        status = evaluate(chat, prompt->ids + chat->known.n, piece, error);
    }
    progress_clear();
    if (status == YALM_OK)
        status = yalm_finish(chat->session, error);
    chat->turn.prefill_seconds = seconds_now() - start;
    return status;
}

// ---------------------------------------------------------------- the answer

// Keeps the text, and shows it.
static yalm_status take(void *context, const char *bytes, size_t length, yalm_error *error)
{
    struct chat *chat = context;
    if (chat->room - chat->n_answer <= length) {
        const size_t room = 2 * (chat->n_answer + length + 64);
        char *grown = realloc(chat->answer, room);
        if (grown == NULL)
            return cli_no_memory(error);
        chat->answer = grown;
        chat->room = room;
    }
    memcpy(chat->answer + chat->n_answer, bytes, length);
    chat->n_answer += length;
    chat->answer[chat->n_answer] = '\0';
    return reasoning_show(&chat->reasoning, chat->answer, chat->n_answer, false, error);
}

static yalm_status generate(struct chat *chat, struct text_out *out, yalm_error *error)
{
    const struct options *options = chat->options;
    const bool limited = options_given(options, "n-predict") && options->n_predict >= 0;
    const int context = yalm_session_facts(chat->session)->context;
    const double start = seconds_now();
    yalm_status status = YALM_OK;
    struct turn *turn = &chat->turn;
    turn->why = "limit";
    while (status == YALM_OK && !interrupted() && !(limited && turn->n_generated >= options->n_predict)) {
        int32_t token;
        status = sample_token(chat->session, &options->sampling, &token, error);
        if (status != YALM_OK)
            break;
        turn->n_generated++;
        if (yalm_is_eos(chat->model, token) && !options->ignore_eos) {
            turn->why = "end of turn";
            break;
        }
        status = text_out_token(out, token, error);
        if (status != YALM_OK || out->filter.found) {
            turn->why = "stop string";
            break;
        }
        if (chat->known.n == (size_t)context) {
            turn->why = "full context";
            break;
        }
        status = speculator_eval(chat->speculation.speculator, chat->session, token, error);
        if (status == YALM_OK)
            chat->known.ids[chat->known.n++] = token;
    }
    turn->decode_seconds = seconds_now() - start;
    return status;
}

// As it was written, which its template reads again. Of channels, which a template refuses in a message, the parts.
static yalm_status add_answer(struct chat *chat, yalm_error *error)
{
    struct conversation *conversation = &chat->conversation;
    const unsigned forms = chat->reasoning.forms & (SPEECH_HARMONY | SPEECH_GEMMA);
    if (!forms)
        return conversation_add_answer(conversation, chat->answer, chat->n_answer, NULL, 0, error);
    struct speech speech;
    speech_read(&speech, chat->answer, chat->n_answer, NULL, forms, true);
    yalm_status status = speech.reasoning.failed || speech.content.failed ? cli_no_memory(error) : YALM_OK;
    if (status == YALM_OK)
        status = conversation_add_answer(conversation, speech.content.at, speech.content.length, speech.reasoning.at,
                                         speech.reasoning.length, error);
    speech_free(&speech);
    return status;
}

// An answer that was written becomes a message, whole or not.
static yalm_status keep_answer(struct chat *chat, yalm_status status, struct text_out *out, yalm_error *error)
{
    yalm_error rest;
    if (status == YALM_INTERRUPTED || interrupted()) {
        status = YALM_INTERRUPTED;
        *error = (yalm_error){.status = YALM_INTERRUPTED};
        chat->turn.why = "interrupt";
    } else if (status != YALM_OK)
        return status;
    yalm_status last = text_out_end(out, &rest);
    if (last == YALM_OK)
        last = reasoning_show(&chat->reasoning, chat->answer, chat->n_answer, true, &rest);
    if (last == YALM_OK)
        last = add_answer(chat, &rest);
    if (last != YALM_OK)
        *error = rest;
    return last != YALM_OK ? last : status;
}

yalm_status chat_answer(struct chat *chat, yalm_error *error)
{
    struct tokens prompt = {0};
    struct text_out out = {.model = chat->model,
                           .filter = {.stops = &chat->options->stops},
                           .special = chat->options->special || chat->reasoning.forms, // marks are control tokens
                           .take = take,
                           .context = chat}; // a text of its own, without the space that some tokenizers begin one with
    struct text text;
    chat->turn = (struct turn){.why = ""};
    chat->n_answer = 0;
    yalm_status status = read_conversation(chat, &text, &prompt, error);
    if (status == YALM_OK)
        status = check_room(chat, prompt.n, error);
    chat->turn.n_prompt = prompt.n;
    if (status == YALM_OK)
        status = keep_prefix(chat, &prompt, error);
    watch_interrupt(chat->session);
    if (status == YALM_OK)
        status = prefill(chat, &prompt, error);
    if (status == YALM_OK)
        reasoning_begin(&chat->reasoning, text.bytes, text.length);
    if (status == YALM_OK)
        status = keep_answer(chat, generate(chat, &out, error), &out, error);
    stop_filter_free(&out.filter);
    free(prompt.ids);
    free(text.bytes);
    return status;
}
