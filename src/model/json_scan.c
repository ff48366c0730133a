// The grammar of JSON (RFC 8259), checked without recursion and without building anything.

#include <string.h>

#include "model/json.h"
#include "util/utf8.h"

struct scan {
    const unsigned char *text; // (length)
    size_t length, at;
    const char *wrong; // what stands at `at`, NULL: nothing yet
    size_t n_values;
    int depth;
    char closers[JSON_MAX_DEPTH]; // '}' or ']' of each open container, outermost first
};

static int peek(const struct scan *s)
{
    return s->at < s->length ? s->text[s->at] : -1;
}

static bool fail(struct scan *s, const char *wrong)
{
    s->wrong = wrong;
    return false;
}

static void skip_space(struct scan *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r')
        s->at++;
}

// The four hex digits of \uXXXX, -1 where they are not that.
static int hex4(const struct scan *s, size_t at)
{
    if (at > s->length || s->length - at < 4)
        return -1;
    int value = 0;
    for (size_t i = at; i < at + 4; i++) {
        const int c = s->text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool scan_escape(struct scan *s) // at the backslash
{
    const int c = s->at + 1 < s->length ? s->text[s->at + 1] : -1;
    if (c > 0 && strchr("\"\\/bfnrt", c)) {
        s->at += 2;
        return true;
    }
    const int unit = c == 'u' ? hex4(s, s->at + 2) : -1;
    if (unit < 0)
        return fail(s, "an escape that JSON does not have");
    if (unit == 0)
        return fail(s, "an escaped NUL in a string");
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return fail(s, "half of a surrogate pair");
    if (unit >= 0xd800 && unit <= 0xdbff) {
        const bool next = s->length - s->at >= 12 && s->text[s->at + 6] == '\\' && s->text[s->at + 7] == 'u';
        const int low = next ? hex4(s, s->at + 8) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(s, "half of a surrogate pair");
        s->at += 6;
    }
    s->at += 6;
    return true;
}

static bool scan_string(struct scan *s)
{
    if (peek(s) != '"')
        return fail(s, s->at < s->length ? "no string where one must stand" : "the end of the text in the middle of a value");
    s->at++;
    for (;;) {
        const int c = peek(s);
        if (c < 0)
            return fail(s, "the end of the text in the middle of a string");
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(s, "a control character in a string");
        if (c == '\\') {
            if (!scan_escape(s))
                return false;
            continue;
        }
        const int n = utf8_character(s->text + s->at, s->length - s->at);
        if (n == 0)
            return fail(s, "a byte that is not UTF-8");
        s->at += (size_t)n;
    }
    s->at++;
    return true;
}

static size_t scan_digits(struct scan *s)
{
    const size_t start = s->at;
    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at - start;
}

static bool scan_number(struct scan *s)
{
    const size_t start = s->at;
    if (peek(s) == '-')
        s->at++;
    const bool zero = peek(s) == '0';
    const size_t n = scan_digits(s);
    if (n == 0 || (zero && n > 1))
        return fail(s, "a number that JSON does not have");
    if (peek(s) == '.') {
        s->at++;
        if (scan_digits(s) == 0)
            return fail(s, "a number that JSON does not have");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (scan_digits(s) == 0)
            return fail(s, "a number that JSON does not have");
    }
    if (s->at - start > JSON_MAX_NUMBER) // cJSON would read the first 63 characters only
        return fail(s, "a number of too many digits");
    return true;
}

static bool scan_word(struct scan *s, const char *word)
{
    const size_t n = strlen(word);
    if (s->length - s->at < n || memcmp(s->text + s->at, word, n) != 0)
        return fail(s, "no value that JSON has");
    s->at += n;
    return true;
}

static bool scan_key(struct scan *s)
{
    skip_space(s);
    if (!scan_string(s))
        return false;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, "no ':' after a key");
    s->at++;
    return true;
}

static bool scan_open(struct scan *s, char closer)
{
    if (s->depth == JSON_MAX_DEPTH)
        return fail(s, "nesting too deep");
    s->closers[s->depth++] = closer;
    s->at++;
    return true;
}

// A value; of a container only its beginning. *complete is false where a container's first value (or key) follows.
static bool scan_value(struct scan *s, bool *complete)
{
    skip_space(s);
    if (++s->n_values > JSON_MAX_VALUES)
        return fail(s, "too many values");
    *complete = true;
    switch (peek(s)) {
    case '{':
    case '[': {
        const char closer = peek(s) == '{' ? '}' : ']';
        if (!scan_open(s, closer))
            return false;
        skip_space(s);
        if (peek(s) == closer) {
            s->depth--;
            s->at++;
            return true;
        }
        *complete = false;
        return closer == ']' || scan_key(s);
    }
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case '"':
        return scan_string(s);
    case -1:
        return fail(s, "the end of the text in the middle of a value");
    default:
        return peek(s) == '-' || (peek(s) >= '0' && peek(s) <= '9') ? scan_number(s) : fail(s, "no value that JSON has");
    }
}

// Scans what follows a complete value: closers, then a comma where containers are still open.
static bool scan_after(struct scan *s)
{
    skip_space(s);
    while (s->depth > 0 && peek(s) == s->closers[s->depth - 1]) {
        s->depth--;
        s->at++;
        skip_space(s);
    }
    if (s->depth == 0)
        return s->at == s->length || fail(s, "bytes after the value");
    if (peek(s) != ',')
        return fail(s,
                    s->at < s->length ? "neither ',' nor the end of a list" : "the end of the text in the middle of a value");
    s->at++;
    return s->closers[s->depth - 1] == ']' || scan_key(s);
}

yalm_status json_scan(const char *text, size_t length, const char *path, yalm_error *error)
{
    struct scan s = {.text = (const unsigned char *)text, .length = length};
    skip_space(&s);
    bool ok = peek(&s) == '{' || fail(&s, "no '{'");
    bool complete = false;
    while (ok && !(complete && s.depth == 0 && s.at == s.length)) {
        ok = scan_value(&s, &complete);
        if (ok && complete)
            ok = scan_after(&s);
    }
    if (ok)
        return YALM_OK;
    return error_set(error, YALM_BAD_MODEL, "%s: metadata: %s, at byte %zu of %zu", path, s.wrong, s.at, s.length);
}
