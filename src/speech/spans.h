// Pieces of a text that a model is writing.
#pragma once
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

// Blanks at its beginning.
static inline size_t count_blanks(struct span text)
{
    return text.length - skip_blanks(text).length;
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
