// Mode chat: several turns with a model, typed or piped in.
#include "cli/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/line.h"
#include "cli/state_file.h"
#include "cli/wrap.h"

// ---------------------------------------------------------------- commands

struct talk {
    struct chat_session *chat;
    struct line_reader *reader;
    bool over;
};

typedef yalm_status command(struct talk *talk, const char *argument, yalm_error *error);

// On a terminal a command that shows nothing says that it is done.
static void remark(const struct talk *talk, const char *text)
{
    if (line_on_terminal(talk->reader))
        say("%s", text);
}

static yalm_status reset(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)argument;
    (void)error;
    conversation_reset(&talk->chat->conversation);
    remark(talk, "(begun anew)");
    return YALM_OK;
}

static yalm_status nothing_yet(const char *what, yalm_error *error)
{
    return error_set(error, YALM_USAGE, "/%s: nothing has been said yet", what);
}

static yalm_status undo(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)argument;
    struct conversation *conversation = &talk->chat->conversation;
    if (strcmp(conversation_last_role(conversation), "assistant") == 0)
        conversation_drop_last(conversation);
    if (strcmp(conversation_last_role(conversation), "user") != 0)
        return nothing_yet("undo", error);
    conversation_drop_last(conversation);
    remark(talk, "(your last message and its answer are taken back)");
    return YALM_OK;
}

// Another answer to the last message. Where none comes, the one before it stays.
static yalm_status answer_again(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)argument;
    struct conversation *conversation = &talk->chat->conversation;
    cJSON *before = NULL;
    if (strcmp(conversation_last_role(conversation), "assistant") == 0)
        before = conversation_take_last(conversation);
    const bool asked = strcmp(conversation_last_role(conversation), "user") == 0;
    const yalm_status status = asked ? chat_answer(talk->chat, error) : nothing_yet("regen", error);
    if (before && strcmp(conversation_last_role(conversation), "assistant") != 0)
        conversation_put_back(conversation, before);
    else
        cJSON_Delete(before);
    return status;
}

static yalm_status use_file(struct talk *talk, bool saves, const char *path, yalm_error *error)
{
    struct conversation *conversation = &talk->chat->conversation;
    if (*path == '\0')
        return error_set(error, YALM_USAGE, "/%s FILE: the file is missing", saves ? "save" : "load");
    const yalm_status status =
        saves ? conversation_save(conversation, path, error) : conversation_load(conversation, path, error);
    if (status == YALM_OK && line_on_terminal(talk->reader))
        say("%s: %d messages", path, conversation_length(conversation));
    return status;
}

static yalm_status save(struct talk *talk, const char *argument, yalm_error *error)
{
    return use_file(talk, true, argument, error);
}

static yalm_status load(struct talk *talk, const char *argument, yalm_error *error)
{
    return use_file(talk, false, argument, error);
}

static yalm_status set_system(struct talk *talk, const char *argument, yalm_error *error)
{
    const yalm_status status = conversation_set_system(&talk->chat->conversation, argument, error);
    if (status == YALM_OK)
        remark(talk, *argument ? "(another system message)" : "(no system message)");
    return status;
}

static yalm_status show_statistics(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)argument;
    (void)error;
    const struct answered *turn = &talk->chat->turn;
    const size_t read = turn->n_prompt - turn->n_kept;
    say("context: %lld of %d tokens", (long long)yalm_position(talk->chat->session),
        yalm_session_facts(talk->chat->session)->context);
    say("prefill: %zu tokens in %.3f s (%zu were known)", read, turn->prefill_seconds, turn->n_kept);
    say("generated: %lld tokens in %.3f s, %.1f tok/s; stopped by: %s", (long long)turn->n_generated, turn->decode_seconds,
        turn->decode_seconds > 0 ? (double)turn->n_generated / turn->decode_seconds : 0, turn->why ? turn->why : "");
    return YALM_OK;
}

static yalm_status leave(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)argument;
    (void)error;
    talk->over = true;
    return YALM_OK;
}

static yalm_status help(struct talk *talk, const char *argument, yalm_error *error);

static const struct {
    const char *name, *argument, *help; // no help: another name for the one before
    command *run;
} commands[] = {
    {"reset", "", "begin anew; the system message stays", reset},
    {"clear", "", NULL, reset},
    {"undo", "", "take back your last message and its answer", undo},
    {"regen", "", "another answer to your last message", answer_again},
    {"system", "TEXT", "another system message, or none", set_system},
    {"save", "FILE", "write the conversation, as JSON", save},
    {"load", "FILE", "go on with a conversation that was saved", load},
    {"stats", "", "tokens and seconds of the last answer", show_statistics},
    {"help", "", "this list", help},
    {"?", "", NULL, help},
    {"quit", "", "end, as ^D does", leave},
    {"exit", "", NULL, leave},
    {"bye", "", NULL, leave},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static yalm_status help(struct talk *talk, const char *argument, yalm_error *error)
{
    (void)talk;
    (void)argument;
    (void)error;
    for (size_t i = 0; i < COMMANDS; i++) {
        char names[32];
        int n = snprintf(names, sizeof names, "/%s", commands[i].name);
        for (size_t k = i + 1; k < COMMANDS && !commands[k].help; k++)
            n += snprintf(names + n, sizeof names - (size_t)n, " /%s", commands[k].name);
        snprintf(names + n, sizeof names - (size_t)n, " %s", commands[i].argument);
        if (commands[i].help)
            say("  %-18s %s", names, commands[i].help);
    }
    say("Lines that are pasted are one message. A line that ends with a backslash goes on in the next one; so does all between "
        "two \"\"\". ^C stops an answer.");
    return YALM_OK;
}

static yalm_status run_command(struct talk *talk, const char *text, yalm_error *error)
{
    const size_t length = strcspn(text, " ");
    const char *argument = text + length + strspn(text + length, " ");
    for (size_t i = 0; i < COMMANDS; i++)
        if (strlen(commands[i].name) == length && strncmp(commands[i].name, text, length) == 0)
            return commands[i].run(talk, argument, error);
    return error_set(error, YALM_USAGE, "/%.*s is no command (/help lists them; // begins a message with a /)", (int)length,
                     text);
}

// ---------------------------------------------------------------- messages

static bool append(struct text *message, const struct text *line, const char *end)
{
    char *grown = realloc(message->bytes, message->length + line->length + strlen(end) + 1);
    if (grown == NULL)
        return false;
    message->bytes = grown;
    memcpy(grown + message->length, line->bytes, line->length);
    strcpy(grown + message->length + line->length, end);
    message->length += line->length + strlen(end);
    return true;
}

// A message of one line, of lines that end with a backslash, or of a block between two """.
static enum line_result read_message(struct talk *talk, struct text *message)
{
    struct text line;
    const char *prompt = "> ";
    bool block = false, more = true;
    *message = (struct text){0};
    while (more) {
        const enum line_result result = line_read(talk->reader, prompt, &line);
        if (result != LINE_READ)
            return message->length && result == LINE_END ? LINE_READ : result;
        const bool opens = !block && message->length == 0 && strncmp(line.bytes, "\"\"\"", 3) == 0;
        if (opens) {
            line.bytes += 3;
            line.length -= 3;
            block = true;
        }
        const bool closes = block && line.length >= 3 && strcmp(line.bytes + line.length - 3, "\"\"\"") == 0;
        const bool continues = !block && line.length > 0 && line.bytes[line.length - 1] == '\\';
        line.length -= closes ? 3 : continues;
        more = (block && !closes) || continues;
        if (!(opens && line.length == 0 && more) && !append(message, &line, more ? "\n" : ""))
            return LINE_FAILED;
        prompt = ". ";
    }
    return LINE_READ;
}

// On a failure a message that was not answered is taken back.
static yalm_status ask(struct talk *talk, const char *text, yalm_error *error)
{
    struct conversation *conversation = &talk->chat->conversation;
    yalm_status status = conversation_add(conversation, "user", text, error);
    status = status ?: chat_answer(talk->chat, error);
    if (status != YALM_OK && strcmp(conversation_last_role(conversation), "user") == 0)
        conversation_drop_last(conversation);
    if (talk->chat->options->verbose && status == YALM_OK)
        show_statistics(talk, "", error);
    return status;
}

// What goes to the model, or a command.
static yalm_status take_message(struct talk *talk, const struct text *message, yalm_error *error)
{
    const char *text = message->bytes;
    if (strspn(text, " \t\n") == message->length)
        return YALM_OK;
    const yalm_status readable = conversation_check_text("the message", text, message->length, error);
    if (readable != YALM_OK)
        return readable;
    if (text[0] == '/' && text[1] != '/')
        return run_command(talk, text + 1, error);
    return ask(talk, text + (text[0] == '/'), error);
}

// -i or -f: one message, in which a / begins no command.
static yalm_status answer_once(struct talk *talk, yalm_error *error)
{
    const struct options *options = talk->chat->options;
    struct text file = {0};
    yalm_status status = options->file ? text_read(&file, options->file, error) : YALM_OK;
    if (status != YALM_OK)
        return status;
    if (file.length > 0 && file.bytes[file.length - 1] == '\n') // that of its last line
        file.bytes[--file.length] = 0;
    const char *text = options->file ? file.bytes : options->prompt;
    const size_t length = options->file ? file.length : strlen(text);
    if (length == 0)
        status = error_set(error, YALM_USAGE, "the message is empty");
    status = status ?: conversation_check_text("the message", text, length, error);
    status = status ?: ask(talk, text, error);
    free(file.bytes);
    return status;
}

// ---------------------------------------------------------------- the loop

// On a terminal a mistake is said, and the talk goes on; a script ends with it. ^C stops an answer; at the prompt the first
// one is forgiven.
static yalm_status go_on(struct talk *talk, yalm_status status, yalm_error *error)
{
    if (status == YALM_OK || !line_on_terminal(talk->reader) || talk->chat->session == NULL)
        return status;
    if (status == YALM_INTERRUPTED)
        say("(stopped)");
    else if (error->text[0])
        say_error(error);
    else
        return status; // nobody reads any more
    return status == YALM_NO_MEMORY ? status : YALM_OK;
}

static yalm_status talk_on(struct talk *talk, yalm_error *error)
{
    const bool quiet = talk->chat->options->quiet;
    yalm_status status = YALM_OK;
    bool warned = false, kept = true;
    if (!quiet)
        remark(talk, "(/? lists commands, ^D ends)");
    while (status == YALM_OK && !talk->over) {
        struct text message;
        const enum line_result result = read_message(talk, &message);
        if (result == LINE_READ) {
            if (!line_remember(talk->reader, message.bytes) && kept && !quiet)
                say("(what you type is not kept for later runs: %s)", strerror(errno));
            kept = false; // said once
            line_hold(talk->reader);
            status = take_message(talk, &message, error);
            line_release();
            status = go_on(talk, status, error);
            warned = false;
        } else if (result == LINE_INTERRUPTED && line_on_terminal(talk->reader) && !warned) {
            say("(^C once more ends; /help lists commands)");
            warned = true;
        } else if (result == LINE_INTERRUPTED) {
            *error = (yalm_error){.status = YALM_INTERRUPTED};
            status = YALM_INTERRUPTED;
        } else if (result == LINE_FAILED)
            status = error_set(error, YALM_FAILED, "standard input cannot be read");
        else
            talk->over = true;
        free(message.bytes);
    }
    return status;
}

// A model that cannot chat is refused before memory is taken for it.
static yalm_status check_template(const yalm_model *model, yalm_error *error)
{
    static const char probe[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    char *text;
    size_t length;
    const yalm_status status = yalm_chat_render(model, probe, sizeof probe - 1, &text, &length, error);
    free(text);
    return status;
}

yalm_status run_chat(const struct options *options, const yalm_model *model, yalm_error *error)
{
    static const char *words[COMMANDS + 1];
    for (size_t i = 0; i < COMMANDS; i++)
        words[i] = commands[i].name;
    struct talk talk = {.reader = line_open(words)};
    const bool terminal = isatty(STDOUT_FILENO);
    struct chat_session chat = {.options = options,
                                .model = model,
                                .forms = speech_marks(yalm_model_facts(model)->chat_template),
                                .reasoning = {.hidden = options->hide_reasoning,
                                              .coloured = terminal && colour_wanted(),
                                              .write = terminal ? wrap_output : output}};
    talk.chat = &chat;
    yalm_status status = talk.reader ? yalm_sampling_check(model, &options->sampling, error) : cli_no_memory(error);
    status = status ?: needs_tokenizer(options, model, "chat", error);
    status = status ?: check_template(model, error);
    status = status ?: chat_open(&chat, error);
    status = status ?: options->prompt || options->file ? answer_once(&talk, error) : talk_on(&talk, error);
    if (status == YALM_OK || status == YALM_INTERRUPTED) {
        yalm_error unsaved;
        const yalm_status saved = state_save(options, chat.session, &unsaved);
        if (saved != YALM_OK) {
            status = saved;
            *error = unsaved;
        }
    }
    line_close(talk.reader);
    chat_close(&chat);
    return status;
}
