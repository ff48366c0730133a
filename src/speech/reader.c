// See reader.h.
#include "speech/reader.h"

// ---------------------------------------------------------------- writing

static void put(struct reading *r, const char *text, size_t length)
{
    if (length == 0)
        return;
    if (r->apart)
        buffer_text(r->part, "\n\n");
    r->apart = false;
    buffer_add(r->part, text, length);
}

void speech_keep_blanks(struct speech *speech)
{
    struct reading *r = &speech->reading;
    put(r, r->blanks.at, r->blanks.length);
    r->blanks.length = 0;
}

void speech_drop_blanks(struct speech *speech)
{
    speech->reading.blanks.length = 0;
}

void speech_say(struct speech *speech, struct buffer *part, struct span text)
{
    struct reading *r = &speech->reading;
    r->part = part;
    if (r->skip)
        text = skip_blanks(text);
    if (text.length == 0)
        return;
    r->skip = false;
    const struct span body = trim_end(text);
    if (body.length) {
        speech_keep_blanks(speech);
        put(r, body.at, body.length);
        r->said = true;
    }
    buffer_add(&r->blanks, text.at + body.length, text.length - body.length);
}

// ---------------------------------------------------------------- marks

size_t speech_find(const struct speech *speech, struct span text, const char *const *marks, int n, int *which)
{
    *which = -1;
    for (size_t at = 0; at < text.length; at++)
        for (int i = 0; i < n; i++) {
            if (text.at[at] != *marks[i]) // most bytes begin none
                continue;
            const struct span rest = rest_of(text, at);
            if (begins(rest, marks[i])) {
                *which = i;
                return at;
            }
            if (!speech->reading.ended && may_become(rest, marks[i]))
                return at;
        }
    return text.length;
}

// ---------------------------------------------------------------- calls, or not

void speech_begin_call(struct speech *speech, stage *next)
{
    struct reading *r = &speech->reading;
    r->told = r->has_name = r->has_arguments = r->whole = r->near = r->fenced = false;
    r->unsure = true;
    r->raw.length = 0;
    r->stage = next;
}

struct call *speech_call(struct speech *speech)
{
    return &speech->calls[speech->n_calls - speech->reading.told];
}

void speech_tell_call(struct speech *speech)
{
    if (speech->reading.told)
        return;
    speech->reading.told = true;
    speech->reading.unsure = speech->reading.said = false;
    speech->n_calls++;
    speech_drop_blanks(speech); // blanks before a call belong to neither
}

size_t speech_no_call(struct speech *speech)
{
    struct reading *r = &speech->reading;
    struct call *call = speech_call(speech);
    call->name.length = call->arguments.length = 0;
    r->part = &speech->content;
    r->skip = r->unsure = false;
    speech_keep_blanks(speech);
    speech_say(speech, &speech->content, (struct span){r->raw.at, r->raw.length});
    r->stage = r->rest;
    return 0;
}
