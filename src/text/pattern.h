// The pre-tokenizer: patterns that cut a text into words, which byte-pair encoding then looks at one by one.
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "util/error.h"

enum { MAX_PATTERNS = 16, MAX_PATTERN_BYTES = 1 << 16 };

struct patterns {
    pcre2_code *codes[MAX_PATTERNS]; // (n); each cuts what the one before left
    bool matches_only[MAX_PATTERNS]; // (n); what lies between matches is left out
    int n;
};

// Adds a pattern; path is for the error's text. YALM_BAD_MODEL where it does not compile or can match nothing.
yalm_status patterns_add(struct patterns *patterns, const char *pattern, bool matches_only, const char *path,
                         yalm_error *error);
void patterns_close(struct patterns *patterns);

// Called with each word in its order, `match` where the last pattern matched it; a status other than YALM_OK ends the cutting.
typedef yalm_status word_visitor(void *context, size_t start, size_t length, bool match);

// Matches are words, and so is what lies between, where the pattern does not leave it out. text[0..length) is any bytes. One
// that belongs to no character counts as U+001A, a control character of one byte, so cuts fall where they would beside any
// other sign.
yalm_status patterns_cut(const struct patterns *patterns, const uint8_t *text, size_t length, word_visitor *visit,
                         void *context, yalm_error *error);
