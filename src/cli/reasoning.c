// See reasoning.h.
#include "cli/reasoning.h"

#include <string.h>

#include "cli/cli.h"
#include "speech/speech.h"

void reasoning_begin(struct reasoning *r, const char *prompt, size_t length)
{
    r->end = speech_reasoning_end(prompt, length);
    r->thought = r->said = 0;
    r->inside = false;
    r->last = 0;
}

static yalm_status put(struct reasoning *r, struct span bytes, yalm_error *error)
{
    if (bytes.length == 0)
        return YALM_OK;
    r->last = bytes.at[bytes.length - 1];
    return r->write(bytes.at, bytes.length, error);
}

static yalm_status put_text(struct reasoning *r, const char *text, yalm_error *error)
{
    return put(r, (struct span){text, strlen(text)}, error);
}

static yalm_status put_colour(struct reasoning *r, const char *code, yalm_error *error)
{
    return r->coloured ? r->write(code, strlen(code), error) : YALM_OK;
}

static yalm_status end_line(struct reasoning *r, yalm_error *error)
{
    return r->last == '\n' ? YALM_OK : put_text(r, "\n", error);
}

static yalm_status think(struct reasoning *r, struct span more, yalm_error *error)
{
    if (r->hidden || more.length == 0)
        return YALM_OK;
    yalm_status status = YALM_OK;
    if (!r->inside) {
        if (r->last)
            status = end_line(r, error);
        if (status == YALM_OK)
            status = put_colour(r, "\033[2m", error);
        if (status == YALM_OK)
            status = put_text(r, "<think>\n", error);
        more = skip_blanks(more);
        r->inside = true;
    }
    return status == YALM_OK ? put(r, more, error) : status;
}

static yalm_status answer(struct reasoning *r, struct span more, yalm_error *error)
{
    if (r->hidden && !r->last)
        more = skip_blanks(more);
    if (more.length == 0)
        return YALM_OK;
    yalm_status status = YALM_OK;
    if (r->inside) {
        status = end_line(r, error);
        if (status == YALM_OK)
            status = put_text(r, "</think>", error);
        if (status == YALM_OK)
            status = put_colour(r, "\033[0m", error);
        if (status == YALM_OK)
            status = put_text(r, "\n\n", error);
        r->inside = false;
    }
    return status == YALM_OK ? put(r, more, error) : status;
}

static yalm_status end_text(struct reasoning *r, yalm_error *error)
{
    const yalm_status status = r->inside ? put_colour(r, "\033[0m", error) : YALM_OK;
    return status == YALM_OK ? end_line(r, error) : status;
}

// What a part has gained since `taken` bytes of it were.
static struct span take_new(const struct buffer *part, size_t *taken)
{
    const struct span more = {part->length > *taken ? part->at + *taken : "",
                              part->length > *taken ? part->length - *taken : 0};
    *taken += more.length;
    return more;
}

yalm_status reasoning_show(struct reasoning *r, const char *text, size_t length, bool whole, yalm_error *error)
{
    struct speech speech;
    speech_read(&speech, text, length, r->end, r->forms, whole);
    yalm_status status = speech.reasoning.failed || speech.content.failed ? cli_no_memory(error) : YALM_OK;
    if (status == YALM_OK)
        status = think(r, take_new(&speech.reasoning, &r->thought), error);
    if (status == YALM_OK)
        status = answer(r, take_new(&speech.content, &r->said), error);
    if (status == YALM_OK && whole)
        status = end_text(r, error);
    speech_free(&speech);
    return status;
}
