// Errors travel in an object; the caller decides what to do with them.
#pragma once
#include "yalm.h"

// Fills *error (which may be NULL) with a formatted line, cut to its room, control characters made visible, and
// returns `status`.
yalm_status error_set(yalm_error *error, yalm_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

// YALM_USAGE where a caller's struct of options has another size than this library's.
yalm_status error_of_size(size_t size, size_t expected, const char *name, yalm_error *error);
