// See reasoning.h. A tag is looked for byte by byte; what may begin one is held back, as stop strings are.
#include "cli/reasoning.h"

#include <ctype.h>
#include <string.h>

static const char opening[] = "<think>", closing[] = "</think>";
static const char dim[] = "\033[2m", plain[] = "\033[0m";

static yalm_status mark(const struct reasoning *r, const char *code, yalm_error *error)
{
    return r->coloured && !r->hidden ? r->write(code, strlen(code), error) : YALM_OK;
}

yalm_status reasoning_begin(struct reasoning *r, const char *prompt, size_t length, yalm_error *error)
{
    const size_t n = strlen(opening);
    while (length > 0 && isspace((unsigned char)prompt[length - 1]))
        length--;
    const bool opened = length >= n && memcmp(prompt + length - n, opening, n) == 0;
    r->where = opened ? REASONING_INSIDE : REASONING_BEFORE;
    r->n_held = 0;
    r->blank = true;
    return opened ? mark(r, dim, error) : YALM_OK;
}

// One byte that is no part of a tag.
static yalm_status show_byte(struct reasoning *r, char byte, yalm_error *error)
{
    if (r->where == REASONING_INSIDE)
        return r->hidden ? YALM_OK : r->write(&byte, 1, error);
    if (r->blank && r->hidden && isspace((unsigned char)byte))
        return YALM_OK;
    if (!isspace((unsigned char)byte)) {
        r->blank = false;
        r->where = REASONING_AFTER; // the answer has begun: no tag can open it any more
    }
    return r->write(&byte, 1, error);
}

// The tag is whole.
static yalm_status pass_tag(struct reasoning *r, yalm_error *error)
{
    const bool opens = r->where == REASONING_BEFORE;
    r->n_held = 0;
    yalm_status status = YALM_OK;
    if (opens)
        status = mark(r, dim, error);
    if (status == YALM_OK && !r->hidden)
        status = r->write(opens ? opening : closing, strlen(opens ? opening : closing), error);
    if (status == YALM_OK && !opens)
        status = mark(r, plain, error);
    r->where = opens ? REASONING_INSIDE : REASONING_AFTER;
    return status;
}

static yalm_status show_held(struct reasoning *r, yalm_error *error)
{
    yalm_status status = YALM_OK;
    const size_t n = r->n_held;
    r->n_held = 0;
    for (size_t i = 0; i < n && status == YALM_OK; i++)
        status = show_byte(r, r->held[i], error);
    return status;
}

yalm_status reasoning_show(struct reasoning *r, const char *bytes, size_t length, yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (size_t i = 0; i < length && status == YALM_OK;) {
        if (r->where == REASONING_AFTER && !(r->blank && r->hidden))
            return r->write(bytes + i, length - i, error);
        const char *tag = r->where == REASONING_BEFORE ? opening : r->where == REASONING_INSIDE ? closing : "";
        if (*tag && bytes[i] == tag[r->n_held]) {
            r->held[r->n_held++] = bytes[i++];
            if (tag[r->n_held] == '\0')
                status = pass_tag(r, error);
        } else if (r->n_held) {
            status = show_held(r, error); // and then this byte once more, which may begin the tag anew
        } else {
            status = show_byte(r, bytes[i++], error);
        }
    }
    return status;
}

yalm_status reasoning_end(struct reasoning *r, yalm_error *error)
{
    yalm_status status = show_held(r, error);
    if (status == YALM_OK && r->where == REASONING_INSIDE)
        status = mark(r, plain, error);
    return status;
}
