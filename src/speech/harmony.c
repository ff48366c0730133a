// See harmony.h.
#include "speech/harmony.h"

// Where the first of the marks that end a message begins, wholly or as far as the text goes.
static size_t find_end(struct span text, bool *found)
{
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    size_t first = text.length;
    *found = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        bool whole;
        const size_t at = find_mark(text, ends[i], &whole);
        if (at < first) {
            first = at;
            *found = whole;
        }
    }
    return first;
}

// What follows the mark in a header, up to a blank or the next mark; no length: the mark is not there.
static struct span word_after(struct span header, const char *mark)
{
    bool found;
    const size_t at = find_mark(header, mark, &found);
    struct span word = rest_of(header, found ? at + strlen(mark) : header.length);
    size_t n = 0;
    while (n < word.length && word.at[n] != '<' && !isspace((unsigned char)word.at[n]))
        n++;
    return (struct span){word.at, n};
}

static void add_message(struct speech *speech, struct span header, struct span body, bool ended)
{
    struct span name = word_after(header, "to=");
    if (begins(name, "functions."))
        name = rest_of(name, strlen("functions."));
    if (name.length && speech->n_calls < MAX_CALLS) {
        speech->calls[speech->n_calls++] =
            (struct call){name, ended ? trim_end(skip_blanks(body)) : skip_blanks(body), ended, {0}};
        return;
    }
    const struct span channel = word_after(header, "<|channel|>");
    struct buffer *part = begins(channel, "analysis") ? &speech->reasoning : &speech->content;
    if (part->length && body.length)
        buffer_text(part, "\n\n");
    buffer_add(part, body.at, body.length);
}

void harmony_read(struct speech *speech, struct span text, bool whole)
{
    static const char message[] = "<|message|>";
    while (text.length) {
        bool found, ended;
        const size_t header = find_mark(text, message, &found);
        if (!found) {
            // A text without any header, as a grammar may force one, is for the reader.
            if (whole && speech->content.length == 0 && !begins(text, "<|"))
                buffer_add(&speech->content, text.at, text.length);
            return;
        }
        struct span body = rest_of(text, header + strlen(message));
        const size_t end = find_end(body, &ended);
        add_message(speech, (struct span){text.at, header}, (struct span){body.at, whole && !ended ? body.length : end},
                    ended || whole);
        text = rest_of(body, ended ? end : body.length);
        if (begins(text, "<|end|>"))
            text = rest_of(text, strlen("<|end|>"));
    }
}
