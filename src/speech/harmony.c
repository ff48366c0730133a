// What gpt-oss writes: messages, each with a header that names its channel, and perhaps whom it is for.
//
//     <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
//     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
//
// The analysis is reasoning, what is for a function is a call, and all else is for the reader.
#include "speech/reader.h"

static stage read_body;

// What follows the mark in a header, up to a blank or the next mark; no length: the mark is not there.
static struct span word_after(struct span header, const char *mark)
{
    const char *found = memmem(header.at, header.length, mark, strlen(mark));
    struct span word = rest_of(header, found ? (size_t)(found - header.at) + strlen(mark) : header.length);
    size_t n = 0;
    while (n < word.length && word.at[n] != '<' && !isspace((unsigned char)word.at[n]))
        n++;
    return (struct span){word.at, n};
}

static void begin_message(struct speech *speech, struct span header)
{
    struct reading *r = &speech->reading;
    struct span name = word_after(header, "to=");
    if (begins(name, "functions."))
        name = rest_of(name, strlen("functions."));
    const bool is_call = name.length && r->calls && speech->n_calls < MAX_CALLS &&
                         tools_have(r->calls->tools, &(struct buffer){.at = (char *)name.at, .length = name.length});
    if (is_call) {
        buffer_add(&speech->calls[speech->n_calls].name, name.at, name.length);
        r->part = &speech->calls[speech->n_calls++].arguments;
    } else
        r->part = begins(word_after(header, "<|channel|>"), "analysis") ? &speech->reasoning : &speech->content;
    r->told = r->skip = is_call;
    r->apart = r->part->length > 0;
    r->stage = read_body;
}

size_t harmony_header(struct speech *speech, struct span text)
{
    static const char *const marks[] = {"<|message|>"};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = r->seen + speech_find(speech, rest_of(text, r->seen), marks, 1, &which);
    r->seen = which < 0 ? at : 0;
    if (which >= 0) {
        begin_message(speech, (struct span){text.at, at});
        return at + strlen(marks[0]);
    }
    // A text without any header, as a grammar may force one, is for the reader.
    if (!r->ended || speech->content.length > 0 || begins(text, "<|"))
        return 0;
    r->seen = 0;
    buffer_add(&speech->content, text.at, text.length);
    return text.length;
}

static size_t read_body(struct speech *speech, struct span text)
{
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    struct reading *r = &speech->reading;
    int which;
    const size_t at = speech_find(speech, text, ends, sizeof ends / sizeof *ends, &which);
    speech_say(speech, r->part, (struct span){text.at, at});
    if (!r->told) // blanks are a part of what is read
        speech_keep_blanks(speech);
    if (which < 0 && !r->ended)
        return at;
    if (r->told)
        speech->calls[speech->n_calls - 1].whole = true;
    speech_drop_blanks(speech);
    r->stage = harmony_header;
    return which == 0 ? at + strlen(ends[0]) : at;
}
