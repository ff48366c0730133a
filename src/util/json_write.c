// See json_write.h.
#include "util/json_write.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void begin(struct buffer *out, const char *key)
{
    const char last = out->length ? out->at[out->length - 1] : '[';
    if (strchr("{[: \n", last) == NULL)
        buffer_text(out, ",");
    if (key)
        buffer_format(out, "\"%s\":", key);
}

void json_open(struct buffer *out, const char *key, char bracket)
{
    begin(out, key);
    buffer_add(out, &bracket, 1);
}

void json_close(struct buffer *out, const char *brackets)
{
    buffer_text(out, brackets);
}

void json_text(struct buffer *out, const char *key, const char *text)
{
    if (text)
        json_bytes(out, key, text, strlen(text));
    else
        json_raw(out, key, "null");
}

void json_bytes(struct buffer *out, const char *key, const char *at, size_t length)
{
    begin(out, key);
    buffer_json(out, at, length);
}

void json_integer(struct buffer *out, const char *key, long long value)
{
    json_raw(out, key, "%lld", value);
}

void json_number(struct buffer *out, const char *key, double value)
{
    json_raw(out, key, isfinite(value) ? "%.7g" : "null", value);
}

void json_flag(struct buffer *out, const char *key, bool value)
{
    json_raw(out, key, value ? "true" : "false");
}

void json_raw(struct buffer *out, const char *key, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    begin(out, key);
    buffer_text(out, text);
}
