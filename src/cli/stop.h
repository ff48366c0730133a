// Stop strings in a stream of text: what might be the beginning of one is held back until it is known.
#pragma once
#include "cli/options.h"

struct stop_filter {
    const struct text_list *stops;
    char *held; // (room), owned: text that has not been let through
    size_t length, room;
    bool found;
};

// Adds text. Returns how many bytes of `held` may go out now, or SIZE_MAX where memory ran out. Once a stop string is found, that is
// the text before it, and `found` is set.
size_t stop_filter_add(struct stop_filter *filter, const char *text, size_t length);
void stop_filter_sent(struct stop_filter *filter, size_t length); // drops them
void stop_filter_free(struct stop_filter *filter);
