// See speech.h.
#include "speech/speech.h"

#include "speech/gemma.h"
#include "speech/harmony.h"

unsigned speech_marks(const char *chat_template)
{
    if (chat_template == NULL)
        return 0;
    return (speech_forms(chat_template) & (SPEECH_HARMONY | SPEECH_GEMMA)) |
           (strstr(chat_template, "[THINK]") ? SPEECH_BRACKETS : 0);
}

unsigned speech_forms(const char *chat_template)
{
    if (chat_template == NULL)
        return 0;
    if (strstr(chat_template, "<|channel|>") && strstr(chat_template, "<|message|>"))
        return SPEECH_HARMONY;
    if (strstr(chat_template, "<|channel>") && strstr(chat_template, "<|tool_call>"))
        return SPEECH_GEMMA;
    unsigned forms = 0;
    forms |= strstr(chat_template, "<tool_call>") ? CALLS_HERMES : 0;
    forms |= strstr(chat_template, "[TOOL_CALLS]") ? CALLS_MISTRAL : 0;
    forms |= strstr(chat_template, "\"parameters\"") && strstr(chat_template, "ipython") ? CALLS_BARE : 0;
    return forms ? forms | CALLS_BARE : 0; // small models leave the marks out
}

// ---------------------------------------------------------------- JSON, as far as it has come

// The end of the string that begins at text.at; 0: it has not come yet.
static size_t string_end(struct span text)
{
    for (size_t at = 1; at < text.length; at++) {
        if (text.at[at] == '\\')
            at++;
        else if (text.at[at] == '"')
            return at + 1;
    }
    return 0;
}

// The end of the value that begins at text.at; 0: it has not come yet.
static size_t value_end(struct span text)
{
    int depth = 0;
    for (size_t at = 0; at < text.length; at++) {
        const char c = text.at[at];
        if (c == '"') {
            const size_t end = string_end(rest_of(text, at));
            if (end == 0)
                return 0;
            at += end - 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) // of what is around it: a number or a word has ended
                return at;
            depth--;
        } else if (depth == 0 && (c == ',' || isspace((unsigned char)c))) {
            return at;
        } else {
            continue;
        }
        if (depth == 0)
            return at + 1;
    }
    return 0;
}

static bool is_key(struct span key, const char *name)
{
    return key.length == strlen(name) + 2 && memcmp(key.at + 1, name, key.length - 2) == 0;
}

enum progress { WRONG, GOES_ON, WHOLE };

// What cannot be read follows: a call that has all it needs ends there, as where a model forgets the last brace.
static enum progress break_off(struct call *call, bool has_arguments)
{
    call->whole = call->name.at && has_arguments;
    return call->whole ? WHOLE : WRONG;
}

// An object with a name and arguments at text->at, as far as it has come; moves *text past what has been read.
static enum progress read_call(struct span *text, struct call *call)
{
    *text = skip_blanks(*text);
    if (text->length == 0)
        return GOES_ON;
    if (*text->at != '{')
        return WRONG;
    *text = rest_of(*text, 1);
    for (bool has_arguments = false;;) {
        *text = skip_blanks(*text);
        if (text->length && (*text->at == ',' || *text->at == '}')) {
            const bool end = *text->at == '}';
            *text = rest_of(*text, 1);
            if (end)
                return call->name.at ? (call->whole = true, WHOLE) : WRONG;
            continue;
        }
        if (text->length == 0)
            return GOES_ON;
        if (*text->at != '"')
            return break_off(call, has_arguments);
        const size_t key_end = string_end(*text);
        const struct span key = {text->at, key_end};
        struct span value = skip_blanks(rest_of(*text, key_end));
        if (key_end == 0 || value.length == 0)
            return GOES_ON;
        if (*value.at != ':')
            return break_off(call, has_arguments);
        value = skip_blanks(rest_of(value, 1));
        const size_t end = value_end(value);
        const bool is_arguments = !has_arguments && (is_key(key, "arguments") || is_key(key, "parameters"));
        if (is_arguments)
            call->arguments = (struct span){value.at, end ? end : value.length};
        if (end == 0)
            return GOES_ON;
        has_arguments |= is_arguments;
        if (!call->name.at && is_key(key, "name") && *value.at == '"')
            call->name = (struct span){value.at + 1, end - 2};
        *text = rest_of(value, end);
    }
}

// ---------------------------------------------------------------- calls

// Once its arguments begin it is a call: what is told of it is not taken back.
static bool is_told(const struct call *call, enum progress progress)
{
    return progress != WRONG && call->name.at && (call->arguments.at || progress == WHOLE);
}

static enum progress read_hermes(struct span *text, struct speech *speech)
{
    struct call *call = &speech->calls[speech->n_calls];
    *text = rest_of(*text, strlen("<tool_call>"));
    const enum progress progress = read_call(text, call);
    speech->n_calls += is_told(call, progress);
    if (progress != WHOLE)
        return progress;
    *text = skip_blanks(*text);
    if (begins(*text, "</tool_call>")) {
        *text = rest_of(*text, strlen("</tool_call>"));
        return WHOLE;
    }
    return text->length == 0 || may_become(*text, "</tool_call>") ? GOES_ON : WHOLE;
}

// name[ARGS]{…}, perhaps with [CALL_ID]… before the arguments, or name{…}
static enum progress read_named(struct span *text, struct call *call)
{
    size_t n = 0;
    while (n < text->length && (isalnum((unsigned char)text->at[n]) || strchr("_-.", text->at[n])))
        n++;
    if (n == text->length)
        return GOES_ON;
    struct span after = rest_of(*text, n);
    if (may_become(after, "[CALL_ID]") || may_become(after, "[ARGS]"))
        return GOES_ON;
    if (begins(after, "[CALL_ID]")) {
        bool found;
        after = rest_of(after, find_mark(after, "[ARGS]", &found));
        if (!found)
            return GOES_ON;
    }
    if (begins(after, "[ARGS]"))
        after = rest_of(after, strlen("[ARGS]"));
    after = skip_blanks(after);
    if (n == 0 || (after.length && *after.at != '{'))
        return WRONG;
    if (after.length == 0)
        return GOES_ON;
    call->name = (struct span){text->at, n};
    const size_t end = value_end(after);
    call->arguments = (struct span){after.at, end ? end : after.length};
    call->whole = end > 0;
    *text = rest_of(after, end);
    return end ? WHOLE : GOES_ON;
}

static enum progress read_mistral(struct span *text, struct speech *speech)
{
    *text = skip_blanks(rest_of(*text, strlen("[TOOL_CALLS]")));
    if (text->length == 0)
        return GOES_ON;
    if (*text->at != '[') {
        const enum progress progress = read_named(text, &speech->calls[speech->n_calls]);
        speech->n_calls += progress != WRONG && speech->calls[speech->n_calls].name.at;
        return progress;
    }
    *text = rest_of(*text, 1);
    const int before = speech->n_calls;
    while (speech->n_calls < MAX_CALLS) {
        struct call *call = &speech->calls[speech->n_calls];
        const enum progress progress = read_call(text, call);
        speech->n_calls += is_told(call, progress);
        if (progress == WRONG && speech->n_calls > before) { // those before it stay calls
            memset(call, 0, sizeof *call);
            return WHOLE;
        }
        if (progress != WHOLE)
            return progress;
        *text = skip_blanks(*text);
        if (text->length && *text->at != ',') {
            *text = rest_of(*text, *text->at == ']');
            return WHOLE;
        }
        *text = rest_of(*text, text->length > 0);
    }
    return WHOLE;
}

static enum progress read_bare(struct span *text, struct speech *speech)
{
    static const char tag[] = "<|python_tag|>";
    if (begins(*text, tag))
        *text = rest_of(*text, strlen(tag));
    struct call *call = &speech->calls[speech->n_calls];
    const enum progress progress = read_call(text, call);
    speech->n_calls += is_told(call, progress);
    return progress;
}

// Where the next call of one of the forms begins, or may begin; *read reads it where it does.
static size_t find_call(struct span text, unsigned forms, bool first, enum progress (**read)(struct span *, struct speech *))
{
    static const char tag[] = "<|python_tag|>";
    bool found;
    size_t at = text.length;
    *read = NULL;
    if (forms & CALLS_HERMES) {
        at = find_mark(text, "<tool_call>", &found);
        *read = found ? read_hermes : NULL;
    }
    if (forms & CALLS_MISTRAL) {
        const size_t other = find_mark(text, "[TOOL_CALLS]", &found);
        if (other < at) {
            at = other;
            *read = found ? read_mistral : NULL;
        }
    }
    if (forms & CALLS_BARE && first) {
        const struct span begin = skip_blanks(text);
        const bool call = begins(begin, tag) || (begin.length && *begin.at == '{');
        if (call || begin.length == 0 || may_become(begin, tag)) {
            at = text.length - begin.length;
            *read = call ? read_bare : NULL;
        }
    }
    return at;
}

// ---------------------------------------------------------------- the parts

static const struct {
    const char *open, *close;
} thoughts[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

const char *speech_reasoning_end(const char *prompt, size_t length)
{
    const struct span text = trim_end((struct span){prompt, length});
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        const size_t n = strlen(thoughts[i].open);
        if (text.length >= n && memcmp(text.at + text.length - n, thoughts[i].open, n) == 0)
            return thoughts[i].close;
    }
    return NULL;
}

// The text after the reasoning, which goes to the speech. close: the mark that ends it, where the prompt has begun it.
static struct span read_reasoning(struct speech *speech, struct span text, const char *close, bool whole)
{
    struct span inside = skip_blanks(text);
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        if (!whole && may_become(inside, thoughts[i].open))
            return rest_of(text, text.length);
        if (begins(inside, thoughts[i].open)) {
            inside = skip_blanks(rest_of(inside, strlen(thoughts[i].open)));
            close = thoughts[i].close;
            break;
        }
    }
    if (close == NULL)
        return text;
    bool found;
    const size_t end = find_mark(inside, close, &found);
    const struct span said = trim_end((struct span){inside.at, found || !whole ? end : inside.length});
    buffer_add(&speech->reasoning, said.at, said.length);
    return found ? skip_blanks(rest_of(inside, end + strlen(close))) : rest_of(inside, inside.length);
}

void speech_read(struct speech *speech, const char *bytes, size_t length, const char *reasoning_end, unsigned forms, bool whole)
{
    *speech = (struct speech){0};
    struct span text = {bytes ? bytes : "", length};
    if (forms & SPEECH_HARMONY) {
        harmony_read(speech, text, whole);
        return;
    }
    if (forms & SPEECH_GEMMA) {
        gemma_read(speech, text, whole);
        return;
    }
    text = read_reasoning(speech, text, reasoning_end, whole);
    enum progress (*read)(struct span *, struct speech *) = NULL;
    for (bool first = true; text.length > 0; first = read == read_bare) {
        size_t at = speech->n_calls < MAX_CALLS ? find_call(text, forms, first, &read) : text.length;
        if (read == NULL && whole)
            at = text.length;
        // Blanks before a call belong to neither.
        const struct span before =
            forms && !(whole && read == NULL) ? trim_end((struct span){text.at, at}) : (struct span){text.at, at};
        if (speech->n_calls == 0 || skip_blanks(before).length)
            buffer_add(&speech->content, before.at, before.length);
        text = rest_of(text, at);
        if (read == NULL)
            return;
        const struct span all = {before.at + before.length, (size_t)(text.at + text.length - before.at) - before.length};
        const int n_calls = speech->n_calls;
        const enum progress progress = read(&text, speech);
        if (progress == WRONG || (whole && progress == GOES_ON && speech->n_calls == n_calls)) {
            // No call after all: it is text, as soon as nothing can change that.
            speech->n_calls = n_calls;
            memset(&speech->calls[n_calls], 0, sizeof speech->calls[0]);
            if (progress == WRONG || whole)
                buffer_add(&speech->content, all.at, all.length);
            return;
        }
        if (progress == GOES_ON)
            return;
    }
}

void speech_free(struct speech *speech)
{
    buffer_free(&speech->content);
    buffer_free(&speech->reasoning);
    for (int i = 0; i < speech->n_calls; i++)
        buffer_free(&speech->calls[i].json);
}
