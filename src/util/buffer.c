// See buffer.h.
#include "util/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

// True where `more` bytes and a NUL fit behind what is there.
static bool make_room(struct buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    if (buffer->room - buffer->length > more)
        return true;
    size_t room = buffer->room ? buffer->room : 256;
    while (room - buffer->length <= more)
        room *= 2;
    char *grown = realloc(buffer->at, room);
    if (grown == NULL) {
        buffer->failed = true;
        return false;
    }
    buffer->at = grown;
    buffer->room = room;
    return true;
}

void buffer_add(struct buffer *buffer, const void *more, size_t length)
{
    if (!make_room(buffer, length))
        return;
    if (length)
        memcpy(buffer->at + buffer->length, more, length);
    buffer->length += length;
    buffer->at[buffer->length] = 0;
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    if (length >= 0 && make_room(buffer, (size_t)length)) {
        vsnprintf(buffer->at + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

void buffer_json(struct buffer *buffer, const char *text, size_t length)
{
    buffer_add(buffer, "\"", 1);
    for (size_t at = 0; at < length;) {
        const unsigned char byte = (unsigned char)text[at];
        const int n = utf8_character(text + at, length - at);
        if (n == 0)
            buffer_text(buffer, "\\ufffd");
        else if (byte == '"' || byte == '\\')
            buffer_format(buffer, "\\%c", byte);
        else if (byte == '\n')
            buffer_text(buffer, "\\n");
        else if (byte < 32 || byte == 127)
            buffer_format(buffer, "\\u%04x", byte);
        else
            buffer_add(buffer, text + at, (size_t)n);
        at += n ? (size_t)n : 1;
    }
    buffer_add(buffer, "\"", 1);
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->at);
    *buffer = (struct buffer){0};
}
