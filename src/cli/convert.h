// The converter, tools/convert.py, as a child process.
#pragma once
#include <limits.h>

#include "cli/cli.h"

struct converter {
    char program[PATH_MAX]; // this one
    char folder[PATH_MAX];  // where convert.py lies
};

// Finds it: in the folder that YALM_CONVERTER names, beside the program, or where `make install` puts it.
yalm_status converter_find(struct converter *converter, const char *source, yalm_error *error);

// What a copy in the cache is made of.
struct origin {
    char *bytes;   // (length): the source's path from / on, then the converter's options, each ended by NUL; owned
    size_t length; // 0: nothing is known
};

// By the options of the table's group Conversion.
yalm_status origin_of(struct origin *origin, const char *source, const struct options *options, yalm_error *error);
// The text behind `text`, one of the origin's; NULL: it is the last.
const char *origin_next(const struct origin *origin, const char *text);
// The first option of that group that was given; NULL: none.
const char *conversion_option(const struct options *options);

// Runs it. What goes wrong there it has said itself: the error's text is empty then. A signal that would end this process ends
// the converter, which removes what it has begun.
yalm_status converter_run(const struct converter *converter, const char *source, const char *file, const struct origin *origin,
                          bool quiet, yalm_error *error);
