// Text, and calls in it, by the frame that form.h describes. Here are the marks, the name, and arguments that are JSON, which
// stays as the model wrote it; members.c reads the others.
#include "speech/reader.h"

static stage read_begin, read_name, read_object, read_member, read_key, read_colon, begin_value, read_value, read_fence;
static stage begin_arguments, after_call, no_such_tool;

// ---------------------------------------------------------------- literals of the frame

size_t speech_follow(struct speech *speech, const char *part, stage *next)
{
    struct reading *r = &speech->reading;
    r->literal = r->part_begin = part;
    r->behind = next;
    r->slot_length = 0;
    r->stage = speech_literal;
    return 0;
}

// Where it cannot be what the form has: models leave out ids, the end of a call, and what stands before JSON.
static size_t miss(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    const char *id = strchr(r->part_begin, SLOT_ID);
    const bool middle = r->part_begin >= form->part[MIDDLE] && r->part_begin < form->part[MIDDLE] + FORM_MAX_PART;
    const size_t done = (size_t)(r->literal - r->part_begin);
    if (middle && id && strncmp(r->part_begin, id + 1, done) == 0) {
        r->part_begin = id + 1;
        r->literal = r->part_begin + done;
        return 0;
    }
    if (!r->whole && !(middle && *text.at == '{'))
        return speech_no_call(speech);
    r->stage = r->behind;
    return 0;
}

size_t speech_literal(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    size_t n = 0;
    while (*r->literal) {
        const char wanted = *r->literal;
        if (isspace((unsigned char)wanted)) {
            r->literal++;
        } else if (n == text.length) {
            return n;
        } else if (wanted > 0 && wanted <= SLOT_TYPE) {
            if (in_slot(text.at[n])) {
                if (r->slot_length < (int)sizeof r->slot - 1)
                    r->slot[r->slot_length++] = text.at[n];
                n++;
            } else
                r->literal++;
        } else if (text.at[n] == wanted) {
            r->literal++;
            n++;
        } else if (isspace((unsigned char)text.at[n])) {
            n++;
        } else if (n > 0) {
            return n; // so that what missed stands at the beginning
        } else {
            const char *before = r->literal;
            miss(speech, text);
            if (r->stage != speech_literal || r->literal == before)
                return 0;
        }
    }
    r->slot[r->slot_length] = 0;
    r->stage = r->behind;
    return n;
}

// ---------------------------------------------------------------- text

static bool may_call(const struct speech *speech)
{
    return speech->reading.calls && speech->n_calls < MAX_CALLS;
}

size_t speech_first(struct speech *speech, struct span text)
{
    static const char tag[] = "<|python_tag|>";
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    buffer_add(&r->blanks, text.at, n);
    if (n > 0 || (!r->ended && may_become(text, tag)))
        return n;
    const bool tagged = begins(text, tag);
    r->stage = speech_text;
    if (!may_call(speech) || text.length == 0 || !(tagged || *text.at == '{'))
        return 0;
    speech_begin_call(speech, read_object);
    return tagged ? strlen(tag) : 0;
}

int speech_marks_of_calls(const struct speech *speech, const char **marks)
{
    int n = 0;
    if (!may_call(speech))
        return 0;
    const struct call_form *form = speech->reading.calls->form;
    for (int i = 0; i < 2; i++)
        if (form->marks[i][0])
            marks[n++] = form->marks[i];
    if (form->is_object && speech->reading.calls->tools) {
        marks[n++] = "```";
        marks[n++] = "{";
    }
    return n;
}

// The mark stays: it is a part of the frame. Without one the call has to fit the tools.
size_t speech_begin_marked(struct speech *speech, const char *mark)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    speech_begin_call(speech, read_begin);
    r->fenced = strcmp(mark, "```") == 0;
    r->near = r->fenced || strcmp(mark, "{") == 0;
    if (r->near)
        r->stage = r->fenced ? read_fence : read_object;
    else if (mark == form->marks[0] && form->part[OPENING][0])
        speech_follow(speech, form->part[OPENING], read_begin);
    return r->fenced ? strlen(mark) : 0;
}

size_t speech_text(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *marks[4];
    int which;
    const size_t at = speech_find(speech, text, marks, speech_marks_of_calls(speech, marks), &which);
    speech_say(speech, &speech->content, (struct span){text.at, at});
    if (r->calls == NULL && r->forms == 0)
        speech_keep_blanks(speech);
    return which < 0 || at > 0 ? at : speech_begin_marked(speech, marks[which]);
}

// ```json, and the call on the next line.
static size_t read_fence(struct speech *speech, struct span text)
{
    size_t n = 0;
    while (n < text.length && (in_slot(text.at[n]) || isspace((unsigned char)text.at[n])))
        n++;
    if (n == text.length)
        return n;
    if (text.at[n] != '{')
        return speech_no_call(speech);
    speech->reading.stage = read_object;
    return n;
}

// ---------------------------------------------------------------- around a call

static size_t read_begin(struct speech *speech, struct span text)
{
    (void)text;
    const struct call_form *form = speech->reading.calls->form;
    return speech_follow(speech, form->part[BEGIN], form->is_object ? read_object : read_name);
}

void speech_begin_named(struct speech *speech)
{
    speech_begin_call(speech, read_name);
}

// A call without a mark: its arguments become JSON, with line breaks in texts as JSON has them, and fit the tool.
static bool fits_a_tool(const struct speech *speech, struct call *call)
{
    struct buffer json = {0};
    const struct span text = {call->arguments.at, call->arguments.length};
    const bool good = literal_to_json(&json, text.length ? text : (struct span){"{}", 2}, "");
    buffer_free(&call->arguments);
    call->arguments = json;
    return good && tools_fit(speech->reading.calls->tools, &call->name, &json);
}

size_t speech_end_call(struct speech *speech)
{
    struct reading *r = &speech->reading;
    struct call *call = speech_call(speech);
    if (r->near && !fits_a_tool(speech, call))
        return speech_no_call(speech);
    call->whole = r->whole = true;
    speech_tell_call(speech);
    if (!r->near)
        return speech_follow(speech, r->calls->form->part[END], after_call);
    r->stage = r->fenced ? after_call : r->first;
    return 0;
}

// A literal's beginning, up to what may vary in it.
static size_t fixed_part(const char *part, char fixed[FORM_MAX_PART])
{
    const struct span text = skip_blanks((struct span){part, strcspn(part, "\1\2\3")});
    memcpy(fixed, text.at, text.length);
    fixed[text.length] = 0;
    return trim_end((struct span){fixed, text.length}).length;
}

static size_t after_call(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    if (r->fenced || form->part[OPENING][0]) {
        const size_t n = count_blanks(text);
        buffer_add(&r->blanks, text.at, n);
        if (n > 0 || (text.length == 0 && !r->ended))
            return n;
        char between[FORM_MAX_PART], closing[FORM_MAX_PART];
        between[fixed_part(form->part[BETWEEN], between)] = 0;
        closing[fixed_part(r->fenced ? "```" : form->part[CLOSING], closing)] = 0;
        if (!r->ended && (may_become(text, between) || may_become(text, closing)))
            return 0;
        const bool again = may_call(speech) && !r->fenced;
        if (again && between[0] && begins(text, between)) {
            speech_begin_call(speech, read_begin);
            return speech_follow(speech, form->part[BETWEEN], read_begin);
        }
        char begin[FORM_MAX_PART];
        begin[fixed_part(form->part[BEGIN], begin)] = 0;
        if (again && !r->ended && may_become(text, begin))
            return 0;
        if (again && between[0] == 0 && (begin[0] ? begins(text, begin) : form->is_object && begins(text, "{"))) {
            speech_begin_call(speech, read_begin);
            return 0;
        }
        r->stage = r->first;
        return closing[0] && begins(text, closing) ? strlen(closing) : 0;
    }
    r->stage = r->first;
    return 0;
}

// What cannot be read follows: a call that has all it needs ends there, as where a model forgets the last brace.
static size_t break_off(struct speech *speech)
{
    const struct reading *r = &speech->reading;
    return r->told || (r->has_name && r->has_arguments) ? speech_end_call(speech) : speech_no_call(speech);
}

// ---------------------------------------------------------------- a name that stands alone

static size_t read_name(struct speech *speech, struct span text)
{
    const struct reading *r = &speech->reading;
    const char *middle = r->calls->form->part[MIDDLE];
    struct buffer *name = &speech_call(speech)->name;
    size_t n = name->length ? 0 : count_blanks(text);
    const size_t from = n;
    while (n < text.length && text.at[n] != *middle && !isspace((unsigned char)text.at[n]) && !strchr("<[{(\"", text.at[n]))
        n++;
    buffer_add(name, text.at + from, n - from);
    if (n == text.length || n > 0)
        return n;
    if (name->length == 0 || !tools_have(r->calls->tools, name))
        return speech_no_call(speech);
    return speech_follow(speech, middle, begin_arguments);
}

static size_t begin_arguments(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    if (r->calls->form->arguments != ARGUMENTS_JSON) {
        r->stage = r->members;
        return 0;
    }
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at != '{')
        return speech_no_call(speech);
    r->has_name = true;
    r->value = &speech_call(speech)->arguments;
    r->stage = begin_value;
    speech_tell_call(speech);
    return 0;
}

// ---------------------------------------------------------------- an object with a name and arguments

static size_t read_object(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at != '{')
        return speech_no_call(speech);
    speech->reading.stage = read_member;
    return 1;
}

static size_t end_object(struct speech *speech)
{
    speech_end_call(speech);
    return speech->reading.whole; // else the brace is text, too
}

static size_t read_member(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at == ',')
        return 1;
    if (*text.at == '}' && speech->reading.has_name)
        return end_object(speech);
    if (*text.at != '"')
        return *text.at == '}' ? speech_no_call(speech) : break_off(speech);
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

// Members that a call has besides: of one that has no mark these and no others may come first.
static bool is_of_call(struct span key)
{
    return is_key(key, "type") || is_key(key, "id");
}

static size_t read_colon(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    r->seen += count_blanks(rest_of(text, r->seen));
    if (r->seen == text.length)
        return 0;
    if (text.at[r->seen] != ':')
        return break_off(speech);
    const struct span key = {text.at, r->key};
    struct call *call = speech_call(speech);
    r->value = NULL;
    if (!r->has_name && (is_key(key, form->name_key) || is_key(key, "name")))
        r->value = &call->name;
    if (!r->has_arguments && (is_key(key, form->arguments_key) || is_key(key, "arguments") || is_key(key, "parameters")))
        r->value = &call->arguments;
    if (r->value == NULL && r->near && !r->has_name && !is_of_call(key))
        return speech_no_call(speech);
    if (r->value == &call->arguments && r->has_name && !r->near)
        speech_tell_call(speech);
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

// A string, of which the quotes go. False: no tool is named so.
static bool end_name(struct speech *speech)
{
    struct reading *r = &speech->reading;
    struct buffer *name = &speech_call(speech)->name;
    name->length -= name->failed ? name->length : 2;
    if (name->length)
        memmove(name->at, name->at + 1, name->length);
    r->has_name = true;
    if (!tools_have(r->calls->tools, name))
        return false;
    if (r->has_arguments && !r->near)
        speech_tell_call(speech);
    return true;
}

static size_t no_such_tool(struct speech *speech, struct span text)
{
    (void)text;
    return speech_no_call(speech);
}

static size_t end_value(struct speech *speech, size_t n)
{
    struct reading *r = &speech->reading;
    const bool arguments = r->value == &speech_call(speech)->arguments;
    r->stage = read_member;
    r->has_arguments |= arguments;
    if (r->value && !arguments && !end_name(speech))
        r->stage = no_such_tool;
    else if (arguments && !r->calls->form->is_object)
        speech_end_call(speech);
    return n;
}

static size_t read_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *const mark = r->calls->form->marks[0];
    if (r->near && *mark) { // a call begins: what seemed to be one without a mark was none
        int which;
        text.length = speech_find(speech, text, &mark, 1, &which);
        if (text.length == 0 && which == 0)
            return speech_no_call(speech);
    }
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
