// Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of a character that begins with `lead`; 0 where none does.
static inline int utf8_size(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// Whether `byte` may stand at place i >= 1 of a character that begins with `lead`.
static inline bool utf8_follows(uint8_t lead, int i, uint8_t byte)
{
    if (i == 1 && lead == 0xe0)
        return byte >= 0xa0 && byte <= 0xbf;
    if (i == 1 && lead == 0xed)
        return byte >= 0x80 && byte <= 0x9f;
    if (i == 1 && lead == 0xf0)
        return byte >= 0x90 && byte <= 0xbf;
    if (i == 1 && lead == 0xf4)
        return byte >= 0x80 && byte <= 0x8f;
    return (byte & 0xc0) == 0x80;
}

// Bytes of the character at text[0..length); 0 where none is whole and well-formed.
static inline int utf8_character(const void *text, size_t length)
{
    const uint8_t *at = text;
    const int size = length > 0 ? utf8_size(at[0]) : 0;
    if ((size_t)size > length)
        return 0;
    for (int i = 1; i < size; i++)
        if (!utf8_follows(at[0], i, at[i]))
            return 0;
    return size;
}

// Whether text[0..length) is well-formed, and ends with a whole character.
static inline bool utf8_whole(const char *text, size_t length)
{
    size_t at = 0;
    for (int n; (n = utf8_character(text + at, length - at)) > 0;)
        at += (size_t)n;
    return at == length;
}

// Characters of text[0..length), which is well-formed.
static inline size_t utf8_count(const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

// Bytes at the end of text[0..length) that more bytes could still make a character: 0 to 3.
static inline int utf8_unfinished(const uint8_t *text, size_t length)
{
    for (int n = 1; n <= 3 && (size_t)n <= length; n++) {
        const uint8_t *at = text + length - n;
        if (utf8_size(at[0]) <= n) {
            if ((at[0] & 0xc0) == 0x80)
                continue; // its lead may stand before it
            return 0;
        }
        for (int i = 1; i < n; i++)
            if (!utf8_follows(at[0], i, at[i]))
                return 0;
        return n;
    }
    return 0;
}

// The code point of a whole, well-formed character of `size` bytes.
static inline int32_t utf8_point(const void *text, int size)
{
    const uint8_t *at = text;
    int32_t point = size == 1 ? at[0] : at[0] & 0x7f >> size;
    for (int i = 1; i < size; i++)
        point = point << 6 | (at[i] & 0x3f);
    return point;
}

// Writes a code point's bytes; returns how many.
static inline int utf8_write(void *to, int32_t point)
{
    static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const int size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    uint8_t *at = to;
    for (int i = size - 1; i > 0; i--, point >>= 6)
        at[i] = (uint8_t)(0x80 | (point & 0x3f));
    at[0] = (uint8_t)(leads[size] | point);
    return size;
}
