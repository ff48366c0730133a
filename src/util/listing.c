#include "util/listing.h"

#include <stdarg.h>
#include <stdio.h>

void listing_add(struct listing *listing, const char *format, ...)
{
    const size_t used = listing->length < listing->room ? listing->length : listing->room;
    va_list args;
    va_start(args, format);
    listing->length += (size_t)vsnprintf(listing->to ? listing->to + used : NULL, listing->room - used, format, args);
    va_end(args);
}
