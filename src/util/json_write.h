// Writes JSON. Commas come by themselves: what follows another value has one before it.
#pragma once
#include "util/buffer.h"

// Each value has a key, which is plain ASCII, or NULL within a list and on its own.
void json_open(struct buffer *out, const char *key, char bracket);     // '{' or '['
void json_close(struct buffer *out, const char *brackets);             // one after another
void json_text(struct buffer *out, const char *key, const char *text); // NULL: null
// Bytes that are not UTF-8 become U+FFFD.
void json_bytes(struct buffer *out, const char *key, const char *at, size_t length);
void json_integer(struct buffer *out, const char *key, long long value);
void json_number(struct buffer *out, const char *key, double value); // shortest of 7 digits; null where JSON has no such number
void json_flag(struct buffer *out, const char *key, bool value);
// JSON as it is.
void json_raw(struct buffer *out, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
