// See reasoning.h.
#include "cli/reasoning.h"

#include <string.h>

#include "cli/cli.h"

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
        status = status ?: put_colour(r, "\033[2m", error);
        status = status ?: put_text(r, "<think>\n", error);
        more = skip_blanks(more);
        r->inside = true;
    }
    return status ?: put(r, more, error);
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
        status = status ?: put_text(r, "</think>", error);
        status = status ?: put_colour(r, "\033[0m", error);
        status = status ?: put_text(r, "\n\n", error);
        r->inside = false;
    }
    return status ?: put(r, more, error);
}

static yalm_status end_text(struct reasoning *r, yalm_error *error)
{
    const yalm_status status = r->inside ? put_colour(r, "\033[0m", error) : YALM_OK;
    return status ?: end_line(r, error);
}

yalm_status reasoning_show(struct reasoning *r, const struct speech *speech, bool whole, yalm_error *error)
{
    struct piece piece;
    yalm_status status = YALM_OK;
    while (status == YALM_OK && speech_news(speech, &r->told, &piece))
        status = piece.part == PART_REASONING ? think(r, piece.text, error) : answer(r, piece.text, error);
    return status == YALM_OK && whole ? end_text(r, error) : status;
}
