// Text for people, in a caller's memory: what has no room there is counted, as by snprintf().
#pragma once
#include <stddef.h>

struct listing {
    char *to; // (room); NULL where that is 0
    size_t room, length;
};

void listing_add(struct listing *listing, const char *format, ...) __attribute__((format(printf, 2, 3)));
