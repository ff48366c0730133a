// Arguments that are no JSON object: members between marks, and members with literals (form.h). They become JSON.
#include "speech/reader.h"

static stage read_tags, read_tag_key, begin_tag_value, read_tag_value, read_literals;
static const char cdata[] = "<![CDATA[", cdata_end[] = "]]>"; // as XML quotes what looks like marks

// A part without the blanks around it, up to what may vary.
static const char *fixed(const char *part, char room[FORM_MAX_PART])
{
    const struct span text = trim_end(skip_blanks((struct span){part, strcspn(part, "\1\2\3")}));
    memcpy(room, text.at, text.length);
    room[text.length] = 0;
    return room;
}

size_t members_begin(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    (void)text;
    r->word.length = 0;
    r->depth = 0;
    r->quoted = 0;
    r->stage = r->calls->form->arguments == ARGUMENTS_TAGGED ? read_tags : read_literals;
    return 0;
}

// ---------------------------------------------------------------- between marks

static struct buffer *arguments_of(struct speech *speech)
{
    return &speech_call(speech)->arguments;
}

static size_t end_members(struct speech *speech)
{
    struct buffer *out = arguments_of(speech);
    buffer_text(out, out->length ? "}" : "{}");
    return speech_end_call(speech);
}

size_t members_break(struct speech *speech)
{
    return speech->reading.told ? end_members(speech) : speech_no_call(speech);
}

static size_t read_tags(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    char begin[FORM_MAX_PART], between[FORM_MAX_PART], end[FORM_MAX_PART];
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    fixed(form->part[KEY_BEGIN], begin);
    fixed(form->part[KEY_BETWEEN], between);
    fixed(form->part[END], end);
    if (end[0] && begins(text, end))
        return end_members(speech);
    if (!r->ended && (may_become(text, begin) || may_become(text, between) || may_become(text, end)))
        return 0;
    if (begins(text, begin)) {
        speech_tell_call(speech);
        r->raw.length = r->word.length = 0;
        return speech_follow(speech, form->part[KEY_BEGIN], read_tag_key);
    }
    if (between[0] && begins(text, between))
        return strlen(between);
    return members_break(speech);
}

static size_t read_tag_key(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *end = r->calls->form->part[KEY_END];
    size_t n = 0;
    while (n < text.length && text.at[n] != *end)
        n++;
    buffer_add(&r->word, text.at, n);
    return n < text.length ? speech_follow(speech, end, begin_tag_value), n : n;
}

// A line of its own is the value's where the form has it so.
static size_t begin_tag_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const char *end = r->calls->form->part[KEY_END];
    if (text.length == 0)
        return 0;
    r->stage = read_tag_value;
    return *text.at == '\n' && end[strlen(end) - 1] == '\n';
}

static bool type_is(const cJSON *type, const char *name)
{
    return cJSON_IsString(type) && strcmp(type->valuestring, name) == 0;
}

// Whether the value is a text as it stands: the tool's schema says so, or else the form.
static bool is_text(const struct reading *r, const cJSON *schema)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(schema, "type"), *each;
    bool text = type_is(type, "string");
    cJSON_ArrayForEach(each, type)
    {
        text |= type_is(each, "string");
    }
    if (type)
        return text;
    return r->calls->form->text_type[0] && strcmp(r->slot, r->calls->form->text_type) == 0;
}

static void end_value(struct speech *speech)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    struct buffer *out = arguments_of(speech);
    const struct span key = trim_end((struct span){r->word.at, r->word.length});
    struct span text = {r->raw.at, r->raw.length};
    if (form->part[VALUE_END][0] == '\n' && text.length && text.at[text.length - 1] == '\n')
        text.length--;
    if (begins(text, cdata)) {
        text = trim_end(rest_of(text, strlen(cdata)));
        text.length -= strlen(cdata_end);
    }
    buffer_text(out, out->length ? ", " : "{");
    buffer_json(out, key.at, key.length);
    buffer_text(out, ": ");
    const size_t before = out->length;
    if (is_text(r, tools_member(r->calls->tools, &speech_call(speech)->name, key)) || !literal_to_json(out, text, "")) {
        out->length = before;
        buffer_json(out, text.length ? text.at : "", text.length);
    }
}

static size_t read_tag_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    char end[FORM_MAX_PART];
    const char *const mark = fixed(r->calls->form->part[VALUE_END], end);
    const size_t at = speech_find(speech, text, &mark, 1, &(int){0});
    const bool found = at < text.length && begins(rest_of(text, at), mark);
    buffer_add(&r->raw, text.at, at);
    if (!found)
        return at;
    const struct span value = trim_end((struct span){r->raw.at, r->raw.length});
    if (begins(value, cdata) && (value.length < strlen(cdata) + strlen(cdata_end) ||
                                 memcmp(value.at + value.length - strlen(cdata_end), cdata_end, strlen(cdata_end)) != 0)) {
        buffer_text(&r->raw, mark);
        return at + strlen(mark);
    }
    end_value(speech);
    speech_follow(speech, r->calls->form->part[VALUE_END] + (r->calls->form->part[VALUE_END][0] == '\n'), read_tags);
    return at;
}

// ---------------------------------------------------------------- with literals

static size_t end_literals(struct speech *speech, struct span text)
{
    const struct reading *r = &speech->reading;
    struct buffer *out = arguments_of(speech);
    (void)text;
    buffer_text(out, "{");
    if (!members_to_json(out, (struct span){r->word.at, r->word.length}, r->calls->form->part[QUOTE]))
        return speech_no_call(speech);
    buffer_text(out, "}");
    return speech_end_call(speech);
}

// Takes them up to their end, which no quote hides.
static size_t read_literals(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const struct call_form *form = r->calls->form;
    const char *const quote = form->part[QUOTE], close = *skip_blanks((struct span){form->part[END], FORM_MAX_PART}).at;
    size_t n = 0;
    bool ends = false;
    for (; n < text.length && !ends; n++) {
        const struct span rest = rest_of(text, n);
        const char c = *rest.at;
        if (!r->ended && quote[1] && (r->quoted == 0 || r->quoted == 1) && may_become(rest, quote))
            break;
        if (quote[1] && (r->quoted == 0 || r->quoted == 1) && begins(rest, quote)) {
            r->quoted = !r->quoted;
            n += strlen(quote) - 1;
        } else if (r->escaped)
            r->escaped = false;
        else if (r->quoted == '\'' && c == '\'' && rest.length == 1 && !r->ended)
            break; // what follows it tells
        else if (r->quoted == '\'' && c == '\'' && !ends_quoted(rest))
            continue;
        else if (r->quoted > 1) {
            r->escaped = c == '\\';
            r->quoted = c == r->quoted ? 0 : r->quoted;
        } else if (r->quoted == 0 && (c == '"' || c == '\''))
            r->quoted = c;
        else if (r->quoted == 0 && r->depth == 0 && c == close) {
            ends = true;
            n--;
        } else if (r->quoted == 0)
            r->depth += strchr("{[(", c) != NULL ? 1 : strchr("}])", c) != NULL ? -1 : 0;
    }
    buffer_add(&r->word, text.at, n);
    if (!ends)
        return n;
    r->stage = end_literals;
    return n;
}
