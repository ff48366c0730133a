#include "util/error.h"

#include <stdarg.h>
#include <stdio.h>

yalm_status error_set(yalm_error *error, yalm_status status, const char *format, ...)
{
    if (!error)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    // A file's own bytes may stand in the text: they must not move a terminal's cursor.
    for (char *c = error->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    error->status = status;
    return status;
}

yalm_status error_of_size(size_t size, size_t expected, const char *name, yalm_error *error)
{
    if (size == expected)
        return YALM_OK;
    return error_set(error, YALM_USAGE, "%s: found size %zu, expected %zu (its defaults set it)", name, size, expected);
}
