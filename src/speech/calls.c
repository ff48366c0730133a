// Text, and calls in it whose arguments are JSON, which stays as the model wrote it: Hermes', Mistral's, and those without a
// mark.
#include "speech/reader.h"

static stage read_bare, read_hermes, read_mistral;
static stage read_member, read_key, read_colon, begin_value, read_value, read_hermes_end, read_next, read_name, read_mark,
    read_arguments;

// ---------------------------------------------------------------- text

size_t speech_first(struct speech *speech, struct span text)
{
    static const char tag[] = "<|python_tag|>";
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    buffer_add(&r->blanks, text.at, n);
    if (n > 0 || (!r->ended && may_become(text, tag)))
        return n;
    const bool tagged = begins(text, tag);
    if (speech->n_calls < MAX_CALLS && (tagged || (text.length > 0 && *text.at == '{')))
        speech_begin_call(speech, read_bare);
    else
        r->stage = speech_text;
    return tagged && r->stage == read_bare ? strlen(tag) : 0;
}

size_t speech_text(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *marks[2];
    stage *readers[2];
    int n = 0, which;
    if (r->forms & CALLS_HERMES && speech->n_calls < MAX_CALLS) {
        marks[n] = "<tool_call>";
        readers[n++] = read_hermes;
    }
    if (r->forms & CALLS_MISTRAL && speech->n_calls < MAX_CALLS) {
        marks[n] = "[TOOL_CALLS]";
        readers[n++] = read_mistral;
    }
    const size_t at = speech_find(speech, text, marks, n, &which);
    speech_say(speech, &speech->content, (struct span){text.at, at});
    if (r->forms == 0)
        speech_keep_blanks(speech);
    if (which < 0 || at > 0)
        return at;
    speech_begin_call(speech, readers[which]);
    return strlen(marks[which]);
}

// ---------------------------------------------------------------- the end of a call

static size_t end_call(struct speech *speech)
{
    struct reading *r = &speech->reading;
    speech_call(speech)->whole = true;
    speech_tell_call(speech);
    r->stage = r->is_list                ? read_next
               : r->form == CALLS_HERMES ? read_hermes_end
               : r->form == CALLS_BARE   ? speech_first
                                         : speech_text;
    return 0;
}

// Of a list, those before it stay calls.
static size_t no_call(struct speech *speech)
{
    struct reading *r = &speech->reading;
    if (r->unsure)
        return speech_no_call(speech);
    struct call *call = speech_call(speech);
    call->name.length = call->arguments.length = 0;
    r->stage = speech_text;
    return 0;
}

// What cannot be read follows: a call that has all it needs ends there, as where a model forgets the last brace.
static size_t break_off(struct speech *speech)
{
    const struct reading *r = &speech->reading;
    return r->told || (r->has_name && r->has_arguments) ? end_call(speech) : no_call(speech);
}

// ---------------------------------------------------------------- an object with a name and arguments

static size_t read_object(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at != '{')
        return no_call(speech);
    speech->reading.stage = read_member;
    return 1;
}

static size_t read_member(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at == ',')
        return 1;
    if (*text.at == '}' && speech->reading.has_name)
        return end_call(speech) + 1;
    if (*text.at == '}')
        return no_call(speech);
    if (*text.at != '"')
        return break_off(speech);
    speech->reading.stage = read_key;
    speech->reading.seen = 1;
    return 0;
}

static size_t read_key(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    while (r->seen < text.length && text.at[r->seen] != '"')
        if (text.at[r->seen] != '\\')
            r->seen++;
        else if (r->seen + 1 < text.length)
            r->seen += 2;
        else
            return 0;
    if (r->seen == text.length)
        return 0;
    r->key = ++r->seen;
    r->stage = read_colon;
    return 0;
}

static bool is_key(struct span key, const char *name)
{
    return key.length == strlen(name) + 2 && memcmp(key.at + 1, name, key.length - 2) == 0;
}

static size_t read_colon(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    r->seen += count_blanks(rest_of(text, r->seen));
    if (r->seen == text.length)
        return 0;
    if (text.at[r->seen] != ':')
        return break_off(speech);
    const struct span key = {text.at, r->key};
    struct call *call = speech_call(speech);
    r->value = NULL;
    if (!r->has_name && is_key(key, "name"))
        r->value = &call->name;
    if (!r->has_arguments && (is_key(key, "arguments") || is_key(key, "parameters"))) {
        r->value = &call->arguments;
        if (r->has_name)
            speech_tell_call(speech);
    }
    r->stage = begin_value;
    return r->seen + 1;
}

// ---------------------------------------------------------------- values

static size_t begin_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (strchr(",}]", *text.at)) // none
        return break_off(speech);
    if (r->value == &speech_call(speech)->name && *text.at != '"')
        r->value = NULL;
    r->depth = 0;
    r->in_string = r->escaped = false;
    r->stage = read_value;
    return 0;
}

// Whether the value ends before the byte; *after: behind it.
static bool ends_value(struct reading *r, char c, bool *after)
{
    *after = false;
    if (r->in_string) {
        const bool quote = c == '"' && !r->escaped;
        r->escaped = c == '\\' && !r->escaped;
        r->in_string = !quote;
        *after = quote && r->depth == 0;
    } else if (c == '"') {
        r->in_string = true;
    } else if (c == '{' || c == '[') {
        r->depth++;
    } else if (c == '}' || c == ']') {
        if (r->depth == 0) // of what is around it: a number or a word has ended
            return true;
        *after = --r->depth == 0;
    } else
        return r->depth == 0 && (c == ',' || isspace((unsigned char)c));
    return false;
}

static size_t end_value(struct speech *speech, size_t n)
{
    struct reading *r = &speech->reading;
    struct call *call = speech_call(speech);
    r->stage = read_member;
    if (r->value == &call->arguments) {
        r->has_arguments = true;
    } else if (r->value) { // a string, of which the quotes go
        call->name.length -= call->name.failed ? call->name.length : 2;
        memmove(call->name.at, call->name.at + 1, call->name.length);
        r->has_name = true;
        if (r->has_arguments)
            speech_tell_call(speech);
    }
    return r->form == CALLS_MISTRAL && !r->is_list ? end_call(speech) + n : n;
}

static size_t read_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    size_t n = 0;
    bool before = false, after = false;
    while (n < text.length && !before && !after) {
        before = ends_value(r, text.at[n], &after);
        n += !before;
    }
    if (r->value)
        buffer_add(r->value, text.at, n);
    return before || after ? end_value(speech, n) : n;
}

// ---------------------------------------------------------------- marks around calls

static size_t read_bare(struct speech *speech, struct span text)
{
    (void)text;
    speech->reading.form = CALLS_BARE;
    speech->reading.stage = read_object;
    return 0;
}

static size_t read_hermes(struct speech *speech, struct span text)
{
    (void)text;
    speech->reading.form = CALLS_HERMES;
    speech->reading.stage = read_object;
    return 0;
}

static size_t read_hermes_end(struct speech *speech, struct span text)
{
    static const char mark[] = "</tool_call>";
    const size_t n = count_blanks(text);
    if (n > 0)
        return n;
    if (may_become(text, mark))
        return speech->reading.ended ? text.length : 0;
    speech->reading.stage = speech_text;
    return begins(text, mark) ? strlen(mark) : 0;
}

static size_t read_mistral(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    r->form = CALLS_MISTRAL;
    r->is_list = *text.at == '[';
    r->stage = r->is_list ? read_object : read_name;
    return r->is_list;
}

// Behind a call of a list.
static size_t read_next(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    const bool more = *text.at == ',' && speech->n_calls < MAX_CALLS;
    if (more)
        r->told = r->has_name = r->has_arguments = false;
    r->stage = more ? read_object : speech_text;
    return *text.at == ',' || *text.at == ']';
}

// name[ARGS]{…}, perhaps with [CALL_ID]… before the arguments, or name{…}
static size_t read_name(struct speech *speech, struct span text)
{
    size_t n = 0;
    while (n < text.length && (isalnum((unsigned char)text.at[n]) || strchr("_-.", text.at[n])))
        n++;
    buffer_add(&speech_call(speech)->name, text.at, n);
    if (n < text.length)
        speech->reading.stage = read_mark;
    return n;
}

static size_t read_id(struct speech *speech, struct span text)
{
    static const char *const marks[] = {"[ARGS]"};
    int which;
    const size_t at = speech_find(speech, text, marks, 1, &which);
    if (which < 0)
        return at;
    speech->reading.stage = read_arguments;
    return at + strlen(marks[0]);
}

static size_t read_mark(struct speech *speech, struct span text)
{
    static const char id[] = "[CALL_ID]", arguments[] = "[ARGS]";
    if (may_become(text, id) || may_become(text, arguments))
        return 0;
    speech->reading.stage = begins(text, id) ? read_id : read_arguments;
    return begins(text, id) ? strlen(id) : begins(text, arguments) ? strlen(arguments) : 0;
}

static size_t read_arguments(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    struct call *call = speech_call(speech);
    if (call->name.length == 0 || *text.at != '{')
        return speech_no_call(speech);
    r->has_name = true;
    r->value = &call->arguments;
    r->stage = begin_value;
    speech_tell_call(speech);
    return 0;
}
