// Properties of characters that tokenizers ask for.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <utf8proc.h>

#include "text/unicode_tables.h"
#include "util/utf8.h"

// The code point at text[0..length) and its bytes; a byte that begins no well-formed character is U+001A, of one byte.
static inline int32_t unicode_next(const uint8_t *text, size_t length, size_t *bytes)
{
    const int n = utf8_character(text, length);
    *bytes = n > 0 ? (size_t)n : 1;
    return n > 0 ? utf8_point(text, n) : 0x1a;
}

// The code point that ends at text + length.
static inline int32_t unicode_last(const uint8_t *text, size_t length, size_t *bytes)
{
    for (size_t n = 1; n <= 4 && n <= length; n++) {
        const int32_t point = unicode_next(text + length - n, n, bytes);
        if (*bytes == n && (n > 1 || text[length - 1] < 0x80))
            return point;
    }
    *bytes = 1;
    return 0x1a;
}

// White_Space.
static inline bool unicode_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Characters younger than the tables that `tokenizers` normalises by.
static inline bool unicode_is_later(int32_t c)
{
    int low = 0, high = sizeof later_characters / sizeof *later_characters;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (later_characters[middle][1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < (int)(sizeof later_characters / sizeof *later_characters) && later_characters[low][0] <= c;
}

static inline int32_t unicode_lower(int32_t c)
{
    for (size_t i = 0; i < sizeof later_small / sizeof *later_small; i++)
        if (c >= later_small[i][0] && c <= later_small[i][1])
            return c + later_small[i][2];
    return utf8proc_tolower(c);
}

static inline bool unicode_is_mark(int32_t c)
{
    if (unicode_is_later(c))
        return false;
    const utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

// What \w is in Unicode's rules for regular expressions (UTS 18): letters, marks, digits, connectors, joiners, and the
// encircled letters.
static inline bool unicode_is_word(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
           c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}
