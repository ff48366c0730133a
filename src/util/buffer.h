// Text that grows: bodies that arrive, answers that are written. Its JSON strings are made here and not by cJSON: those end at
// a NUL, which a model may well generate.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *at; // (room), owned; NULL where nothing was ever added
    size_t length, room;
    bool failed; // memory ran out: what was added since is missing
};

void buffer_add(struct buffer *buffer, const void *more, size_t length);
void buffer_text(struct buffer *buffer, const char *text); // up to its NUL
void buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
// text[0..length) as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
void buffer_json(struct buffer *buffer, const char *text, size_t length);
void buffer_free(struct buffer *buffer);
