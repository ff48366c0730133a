// A file that appears when it is complete, or not at all: it grows under another name beside its own.
#pragma once
#include <stdio.h>

#include "yalm.h"

struct new_file {
    const char *path; // borrowed
    char *temporary;  // owned
    FILE *file;
};

// Whether the file at a path, regular and not empty, is of the kind that may be replaced.
typedef bool new_file_kind(FILE *file);

// YALM_FAILED where the name belongs to anything but an empty file or one of that kind. `what`: what such a file holds, for the
// message. With NULL for both any file is replaced, and what is no file (a device, a pipe) is written to.
yalm_status new_file_create(struct new_file *made, const char *path, new_file_kind *replaceable, const char *what,
                            yalm_error *error);
// Keeps the file or drops it; returns `status`, or what went wrong in keeping it.
yalm_status new_file_finish(struct new_file *made, yalm_status status, yalm_error *error);
