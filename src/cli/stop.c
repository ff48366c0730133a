// See stop.h. Stop strings are few and short: every position is compared with each of them.
#include "cli/stop.h"

#include <stdlib.h>
#include <string.h>

// Does a stop string begin at held[at], wholly (*whole) or as far as the text goes?
static bool stop_at(const struct stop_filter *filter, size_t at, bool *whole)
{
    const size_t rest = filter->length - at;
    bool partial = false;
    *whole = false;
    for (int i = 0; i < filter->stops->n; i++) {
        const char *stop = filter->stops->texts[i];
        const size_t length = strlen(stop);
        if (memcmp(filter->held + at, stop, length < rest ? length : rest) != 0)
            continue;
        partial = true;
        *whole |= length <= rest;
    }
    return partial;
}

size_t stop_filter_add(struct stop_filter *filter, const char *text, size_t length)
{
    if (filter->room - filter->length < length) {
        const size_t room = (filter->length + length) * 2;
        char *grown = realloc(filter->held, room);
        if (grown == NULL)
            return SIZE_MAX;
        filter->held = grown;
        filter->room = room;
    }
    memcpy(filter->held + filter->length, text, length);
    filter->length += length;

    size_t first_partial = filter->length;
    for (size_t at = 0; at < filter->length; at++) {
        bool whole;
        if (!stop_at(filter, at, &whole))
            continue;
        if (whole) {
            filter->found = true;
            return at;
        }
        if (first_partial == filter->length)
            first_partial = at;
    }
    return first_partial;
}

void stop_filter_sent(struct stop_filter *filter, size_t length)
{
    memmove(filter->held, filter->held + length, filter->length - length);
    filter->length -= length;
}

void stop_filter_free(struct stop_filter *filter)
{
    free(filter->held);
    filter->held = NULL;
}
