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

// Runs it. What goes wrong there it has said itself: the error's text is empty then. A signal that would end this process ends
// the converter, which removes what it has begun.
yalm_status converter_run(const struct converter *converter, const char *source, const char *file, const char *dtype,
                          bool quiet, yalm_error *error);
