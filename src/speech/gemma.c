// What Gemma 4 writes: reasoning in a channel, and calls. Their arguments are nearly JSON: keys without quotes, and strings
// between marks of their own.
//
//     <|channel>thought
//     …<channel|>…<|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>
//
// Arguments that are JSON are read as well, as a grammar may force them. A call is told of when it is whole.
#include "speech/reader.h"

static const char quote[] = "<|\"|>", call_begin[] = "call:", call_end[] = "<tool_call|>";
enum { MOST_DEPTH = 64 };

static stage begin_channel, read_channel, begin_call, read_name, begin_members, next_member, begin_value, begin_word,
    read_quoted, read_json_string, read_word, read_colon, read_call_end;

// ---------------------------------------------------------------- text and channels

size_t gemma_text(struct speech *speech, struct span text)
{
    static const char *const marks[] = {"<|channel>", "<|tool_call>"};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, marks, speech->n_calls < MAX_CALLS ? 2 : 1, &which);
    r->skip = speech->content.length == 0 && r->blanks.length == 0;
    speech_say(speech, &speech->content, (struct span){text.at, at});
    if (which < 0 || at > 0)
        return at;
    speech_drop_blanks(speech); // blanks around channels and calls belong to nobody
    if (which == 0)
        r->stage = begin_channel;
    else
        speech_begin_call(speech, begin_call);
    return strlen(marks[which]);
}

// A channel's name is its first line.
static size_t begin_channel(struct speech *speech, struct span text)
{
    static const char thought[] = "thought";
    struct reading *r = &speech->reading;
    if (!r->ended && may_become(text, thought))
        return 0;
    r->part = &speech->reasoning;
    r->skip = true;
    r->apart = speech->reasoning.length > 0;
    r->stage = read_channel;
    return begins(text, thought) ? strlen(thought) : 0;
}

static size_t read_channel(struct speech *speech, struct span text)
{
    static const char *const marks[] = {"<channel|>"};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, marks, 1, &which);
    speech_say(speech, &speech->reasoning, (struct span){text.at, at});
    if (which < 0)
        return at;
    speech_drop_blanks(speech);
    r->apart = false;
    r->part = &speech->content;
    r->stage = gemma_text;
    return at + strlen(marks[0]);
}

// ---------------------------------------------------------------- calls

// call:NAME{…}<tool_call|>, behind the mark that begins it.
static size_t begin_call(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || may_become(text, call_begin))
        return n;
    if (!begins(text, call_begin))
        return speech_no_call(speech);
    r->word.length = 0;
    r->stage = read_name;
    return strlen(call_begin);
}

static size_t read_name(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    size_t n = 0;
    while (n < text.length && text.at[n] != '{' && text.at[n] != '<')
        n++;
    buffer_add(&r->word, text.at, n);
    if (n == text.length || n > 0)
        return n;
    const struct span name = trim_end(skip_blanks((struct span){r->word.at, r->word.length}));
    if (*text.at != '{' || name.length == 0)
        return speech_no_call(speech);
    buffer_add(&speech_call(speech)->name, name.at, name.length);
    r->depth = 0;
    r->stage = begin_value;
    return 0;
}

static size_t read_call_end(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0)
        return n;
    if (may_become(text, call_end))
        return speech->reading.ended ? text.length : 0;
    speech->reading.stage = gemma_text;
    return begins(text, call_end) ? strlen(call_end) : 0;
}

// ---------------------------------------------------------------- their arguments

static struct buffer *json(struct speech *speech)
{
    return &speech_call(speech)->arguments;
}

static bool in_list(const struct reading *r)
{
    return r->lists >> (r->depth - 1) & 1;
}

static size_t end_members(struct speech *speech)
{
    struct reading *r = &speech->reading;
    buffer_text(json(speech), in_list(r) ? "]" : "}");
    r->stage = next_member;
    if (--r->depth > 0)
        return 1;
    speech_call(speech)->whole = true;
    speech_tell_call(speech);
    r->said = true; // blanks that follow text are its own here
    r->stage = read_call_end;
    return 1;
}

static size_t want_member(struct speech *speech, size_t n)
{
    struct reading *r = &speech->reading;
    r->is_key = !in_list(r);
    r->stage = r->is_key ? begin_word : begin_value;
    return n;
}

// The first one, or the end.
static size_t begin_members(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    const bool end = *text.at == (in_list(&speech->reading) ? ']' : '}');
    return end ? end_members(speech) : want_member(speech, 0);
}

static size_t next_member(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at == (in_list(&speech->reading) ? ']' : '}'))
        return end_members(speech);
    if (*text.at != ',')
        return speech_no_call(speech);
    buffer_text(json(speech), ",");
    return want_member(speech, 1);
}

static size_t read_colon(struct speech *speech, struct span text)
{
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    if (*text.at != ':')
        return speech_no_call(speech);
    buffer_text(json(speech), ":");
    speech->reading.is_key = false;
    speech->reading.stage = begin_value;
    return 1;
}

static size_t begin_value(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || text.length == 0)
        return n;
    r->stage = begin_word;
    if (*text.at != '{' && *text.at != '[')
        return 0;
    if (r->depth == MOST_DEPTH)
        return speech_no_call(speech);
    const uint64_t bit = (uint64_t)1 << r->depth++;
    r->lists = *text.at == '[' ? r->lists | bit : r->lists & ~bit;
    buffer_add(json(speech), text.at, 1);
    r->stage = begin_members;
    return 1;
}

// A string between marks, one of JSON, a number, or a word.
static size_t begin_word(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    const size_t n = count_blanks(text);
    if (n > 0 || may_become(text, quote))
        return n;
    r->word.length = 0;
    r->escaped = false;
    const bool quoted = begins(text, quote), string = *text.at == '"';
    r->stage = quoted ? read_quoted : string ? read_json_string : read_word;
    buffer_add(json(speech), "\"", string);
    return quoted ? strlen(quote) : string;
}

static void end_word(struct speech *speech)
{
    speech->reading.stage = speech->reading.is_key ? read_colon : next_member;
}

static size_t read_quoted(struct speech *speech, struct span text)
{
    static const char *const marks[] = {quote};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, marks, 1, &which);
    buffer_add(&r->word, text.at, at);
    if (which < 0)
        return at;
    buffer_json(json(speech), r->word.at, r->word.length);
    end_word(speech);
    return at + strlen(quote);
}

// JSON's own string, as it is. What JSON does not allow in one makes it none.
static size_t read_json_string(struct speech *speech, struct span text)
{
    struct reading *r = &speech->reading;
    size_t n = 0;
    for (bool end = false; n < text.length && !end; n++) {
        if (!r->escaped && (unsigned char)text.at[n] < ' ')
            return speech_no_call(speech);
        end = !r->escaped && text.at[n] == '"';
        r->escaped = !r->escaped && text.at[n] == '\\';
        if (end)
            end_word(speech);
    }
    buffer_add(json(speech), text.at, n);
    return n;
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
static size_t read_word(struct speech *speech, struct span text)
{
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct reading *r = &speech->reading;
    size_t n = 0;
    while (n < text.length && !strchr(r->is_key ? ":,{}[]" : ",}]{[", text.at[n]))
        n++;
    buffer_add(&r->word, text.at, n);
    if (n == text.length || n > 0)
        return n;
    const struct span word = trim_end((struct span){r->word.at, r->word.length});
    if (word.length == 0)
        return speech_no_call(speech);
    const char *known = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && !r->is_key; i++)
        if (word.length == strlen(words[i][0]) && begins(word, words[i][0]))
            known = words[i][1];
    if (known)
        buffer_text(json(speech), known);
    else if (!r->is_key && is_number(word))
        buffer_add(json(speech), word.at, word.length);
    else
        buffer_json(json(speech), word.at, word.length);
    end_word(speech);
    return 0;
}
