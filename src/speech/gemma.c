// See gemma.h.
#include "speech/gemma.h"

static const char quote[] = "<|\"|>", channel[] = "<|channel>", channel_end[] = "<channel|>", tool_call[] = "<|tool_call>",
                  call_begin[] = "call:", call_end[] = "<tool_call|>";
enum { MOST_DEPTH = 64 };

enum progress { WRONG, GOES_ON, WHOLE };

// ---------------------------------------------------------------- arguments

static enum progress put_value(struct span *text, struct buffer *json, int depth);

// JSON's own string, as it is. What JSON does not allow in one makes it none.
static enum progress put_json_string(struct span *text, struct buffer *json)
{
    for (size_t at = 1; at < text->length; at++) {
        if ((unsigned char)text->at[at] < ' ')
            return WRONG;
        if (text->at[at] == '\\')
            at++;
        else if (text->at[at] == '"') {
            buffer_add(json, text->at, at + 1);
            *text = rest_of(*text, at + 1);
            return WHOLE;
        }
    }
    return GOES_ON;
}

static enum progress put_quoted(struct span *text, struct buffer *json)
{
    bool found;
    const struct span inside = rest_of(*text, strlen(quote));
    const size_t end = find_mark(inside, quote, &found);
    if (!found)
        return GOES_ON;
    buffer_json(json, inside.at, end);
    *text = rest_of(inside, end + strlen(quote));
    return WHOLE;
}

static size_t digits(struct span text, size_t at)
{
    size_t n = 0;
    while (at + n < text.length && isdigit((unsigned char)text.at[at + n]))
        n++;
    return n;
}

// Whether it is a number as JSON writes them: a date, or 007, is none.
static bool is_number(struct span word)
{
    size_t at = word.length > 0 && word.at[0] == '-', n = digits(word, at);
    if (n == 0 || (n > 1 && word.at[at] == '0'))
        return false;
    at += n;
    if (at < word.length && word.at[at] == '.') {
        n = digits(word, at + 1);
        if (n == 0)
            return false;
        at += 1 + n;
    }
    if (at < word.length && (word.at[at] == 'e' || word.at[at] == 'E')) {
        at++;
        at += at < word.length && (word.at[at] == '+' || word.at[at] == '-');
        n = digits(word, at);
        if (n == 0)
            return false;
        at += n;
    }
    return at == word.length;
}

// A number, a word, or a key: up to what ends it. Words that JSON does not have become strings.
static enum progress put_bare(struct span *text, struct buffer *json, bool is_key)
{
    size_t n = 0;
    while (n < text->length && !strchr(is_key ? ":,{}[]" : ",}]{[", text->at[n]))
        n++;
    if (n == text->length)
        return GOES_ON;
    const struct span word = trim_end((struct span){text->at, n});
    if (word.length == 0)
        return WRONG;
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *known = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && !is_key; i++)
        if (word.length == strlen(words[i][0]) && begins(word, words[i][0]))
            known = words[i][1];
    if (known)
        buffer_text(json, known);
    else if (!is_key && is_number(word))
        buffer_add(json, word.at, word.length);
    else
        buffer_json(json, word.at, word.length);
    *text = rest_of(*text, n);
    return WHOLE;
}

static enum progress put_text_or_word(struct span *text, struct buffer *json, bool is_key)
{
    if (may_become(*text, quote))
        return GOES_ON;
    if (begins(*text, quote))
        return put_quoted(text, json);
    return *text->at == '"' ? put_json_string(text, json) : put_bare(text, json, is_key);
}

// key:, of an object; of a list nothing.
static enum progress put_key(struct span *text, struct buffer *json)
{
    const enum progress progress = put_text_or_word(text, json, true);
    if (progress != WHOLE)
        return progress;
    *text = skip_blanks(*text);
    if (text->length == 0)
        return GOES_ON;
    if (*text->at != ':')
        return WRONG;
    buffer_text(json, ":");
    *text = rest_of(*text, 1);
    return WHOLE;
}

// {…} or […]
static enum progress put_members(struct span *text, struct buffer *json, int depth)
{
    const bool object = *text->at == '{';
    const char end = object ? '}' : ']';
    buffer_add(json, text->at, 1);
    *text = rest_of(*text, 1);
    for (bool first = true;; first = false) {
        *text = skip_blanks(*text);
        if (text->length == 0)
            return GOES_ON;
        if (*text->at == end) {
            buffer_add(json, &end, 1);
            *text = rest_of(*text, 1);
            return WHOLE;
        }
        if (!first) {
            if (*text->at != ',')
                return WRONG;
            buffer_text(json, ",");
            *text = skip_blanks(rest_of(*text, 1));
        }
        if (text->length == 0)
            return GOES_ON;
        enum progress progress = object ? put_key(text, json) : WHOLE;
        if (progress == WHOLE)
            progress = put_value(text, json, depth + 1);
        if (progress != WHOLE)
            return progress;
    }
}

// The value at text->at as JSON; moves *text past it.
static enum progress put_value(struct span *text, struct buffer *json, int depth)
{
    *text = skip_blanks(*text);
    if (text->length == 0)
        return GOES_ON;
    if (*text->at != '{' && *text->at != '[')
        return put_text_or_word(text, json, false);
    return depth < MOST_DEPTH ? put_members(text, json, depth) : WRONG;
}

// ---------------------------------------------------------------- parts

// call:NAME{…}<tool_call|>, behind the mark that begins it.
static enum progress read_call(struct span *text, struct call *call)
{
    *text = skip_blanks(*text);
    if (may_become(*text, call_begin))
        return GOES_ON;
    if (!begins(*text, call_begin))
        return WRONG;
    *text = rest_of(*text, strlen(call_begin));
    size_t n = 0;
    while (n < text->length && text->at[n] != '{' && text->at[n] != '<')
        n++;
    const struct span name = trim_end(skip_blanks((struct span){text->at, n}));
    *text = rest_of(*text, n);
    if (text->length == 0)
        return GOES_ON;
    if (*text->at != '{' || name.length == 0)
        return WRONG;
    const enum progress progress = put_members(text, &call->json, 0);
    if (progress != WHOLE || call->json.failed)
        return progress == WHOLE ? WRONG : progress;
    call->name = name;
    call->arguments = (struct span){call->json.at, call->json.length};
    call->whole = true;
    *text = skip_blanks(*text);
    if (begins(*text, call_end))
        *text = rest_of(*text, strlen(call_end));
    else if (may_become(*text, call_end))
        *text = rest_of(*text, text->length);
    return WHOLE;
}

// A channel's body, behind the mark that begins it; what is left of the text. Its name is its first line.
static struct span read_channel(struct speech *speech, struct span text, bool whole)
{
    static const char thought[] = "thought";
    if (!whole && may_become(text, thought))
        return rest_of(text, text.length);
    const bool is_thought = begins(text, thought);
    const struct span inside = skip_blanks(is_thought ? rest_of(text, strlen(thought)) : text);
    bool found;
    const size_t end = find_mark(inside, channel_end, &found);
    const struct span said = trim_end((struct span){inside.at, found || !whole ? end : inside.length});
    struct buffer *part = &speech->reasoning;
    if (part->length && said.length)
        buffer_text(part, "\n\n");
    buffer_add(part, said.at, said.length);
    return found ? rest_of(inside, end + strlen(channel_end)) : rest_of(inside, inside.length);
}

// What stands between channels and calls. Blanks around these belong to nobody.
static void add_content(struct speech *speech, struct span said, bool last)
{
    if (speech->content.length == 0)
        said = skip_blanks(said);
    if (!last)
        said = trim_end(said);
    buffer_add(&speech->content, said.at, said.length);
}

void gemma_read(struct speech *speech, struct span text, bool whole)
{
    while (text.length) {
        bool is_channel, is_call;
        const size_t at_channel = find_mark(text, channel, &is_channel), at_call = find_mark(text, tool_call, &is_call);
        const bool first_is_channel = at_channel < at_call;
        const size_t at = first_is_channel ? at_channel : at_call;
        const bool found = first_is_channel ? is_channel : is_call;
        const bool last = !found && whole;
        add_content(speech, (struct span){text.at, last ? text.length : at}, last);
        if (!found)
            return;
        const struct span all = rest_of(text, at);
        text = rest_of(all, strlen(first_is_channel ? channel : tool_call));
        if (first_is_channel) {
            text = read_channel(speech, text, whole);
            continue;
        }
        if (speech->n_calls == MAX_CALLS)
            return;
        struct call *call = &speech->calls[speech->n_calls];
        const enum progress progress = read_call(&text, call);
        speech->n_calls += progress == WHOLE;
        if (progress == WHOLE)
            continue;
        buffer_free(&call->json); // no call, or not yet
        if (progress == WRONG || whole)
            add_content(speech, all, true);
        return;
    }
}
