// Pieces of a text that a model is writing.
#pragma once
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct span {
    const char *at;
    size_t length;
};

static inline struct span rest_of(struct span text, size_t from)
{
    return (struct span){text.at + from, text.length - from};
}

static inline struct span skip_blanks(struct span text)
{
    while (text.length && isspace((unsigned char)*text.at))
        text = rest_of(text, 1);
    return text;
}

static inline struct span trim_end(struct span text)
{
    while (text.length && isspace((unsigned char)text.at[text.length - 1]))
        text.length--;
    return text;
}

static inline bool begins(struct span text, const char *with)
{
    const size_t length = strlen(with);
    return text.length >= length && memcmp(text.at, with, length) == 0;
}

// The text is a beginning of the mark, and not all of it.
static inline bool may_become(struct span text, const char *mark)
{
    return text.length < strlen(mark) && memcmp(text.at, mark, text.length) == 0;
}

// Where the mark begins, wholly (*found) or as far as the text goes; the text's length where it does not.
static inline size_t find_mark(struct span text, const char *mark, bool *found)
{
    *found = false;
    for (size_t at = 0; at < text.length; at++) {
        const char *next = memchr(text.at + at, *mark, text.length - at); // most bytes begin none
        if (next == NULL)
            break;
        at = (size_t)(next - text.at);
        *found = begins(rest_of(text, at), mark);
        if (*found || may_become(rest_of(text, at), mark))
            return at;
    }
    return text.length;
}
