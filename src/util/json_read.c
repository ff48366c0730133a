// See json_read.h.
#include "util/json_read.h"

#include <string.h>

#include "util/utf8.h"

static int peek(const struct json_scan *s)
{
    return s->at < s->length ? (unsigned char)s->text[s->at] : -1;
}

static enum json_part fail(struct json_scan *s, const char *wrong)
{
    s->wrong = s->at < s->length ? wrong : "an early end";
    return JSON_WRONG;
}

static void skip_space(struct json_scan *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r')
        s->at++;
}

// ------------------------------------------------------------------------------------------ strings

// The four hex digits of \uXXXX, -1 where they are not that.
static int hex4(const char *text, size_t length)
{
    int value = 0;
    if (length < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int c = text[i];
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

static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

// The bytes of the escape at the backslash text[0], and the character it stands for; 0 where JSON has no such escape. Half of
// a surrogate pair is returned as it is.
static size_t read_escape(const char *text, size_t length, int *point)
{
    const char *letter = length > 1 && text[1] ? strchr(letters, text[1]) : NULL;
    if (letter) {
        *point = meant[letter - letters];
        return 2;
    }
    *point = length > 1 && text[1] == 'u' ? hex4(text + 2, length - 2) : -1;
    if (*point < 0)
        return 0;
    if (*point >= 0xd800 && *point <= 0xdbff && length >= 12 && text[6] == '\\' && text[7] == 'u') {
        const int low = hex4(text + 8, length - 8);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *point = 0x10000 + ((*point - 0xd800) << 10) + low - 0xdc00;
            return 12;
        }
    }
    return 6;
}

size_t json_unescape(char *to, const char *part, size_t n)
{
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        int point;
        const size_t escape = part[at] == '\\' ? read_escape(part + at, n - at, &point) : 0;
        if (escape)
            written += (size_t)utf8_write(to + written, point);
        else
            to[written++] = part[at];
        at += escape ? escape : 1;
    }
    return written;
}

static bool scan_escape(struct json_scan *s)
{
    int point;
    const size_t n = read_escape(s->text + s->at, s->length - s->at, &point);
    s->escaped = true;
    if (n == 0)
        return fail(s, "an escape that JSON does not have");
    if (point == 0 && s->no_nul)
        return fail(s, "an escaped NUL in a string");
    if (point >= 0xd800 && point <= 0xdfff)
        return fail(s, "half of a surrogate pair");
    s->at += n;
    return true;
}

static bool scan_string(struct json_scan *s)
{
    if (peek(s) != '"')
        return fail(s, "no string where one must stand");
    s->part = s->text + ++s->at;
    s->escaped = false;
    for (int c; (c = peek(s)) != '"';) {
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
    s->n = (size_t)(s->text + s->at - s->part);
    s->at++;
    return true;
}

// ------------------------------------------------------------------------------------------ numbers and words

static size_t count_digits(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

size_t json_number_length(const char *text, size_t length)
{
    size_t at = length > 0 && text[0] == '-', n = count_digits(text + at, length - at);
    if (n == 0 || (n > 1 && text[at] == '0'))
        return 0;
    at += n;
    if (at < length && text[at] == '.') {
        n = count_digits(text + at + 1, length - at - 1);
        if (n == 0)
            return 0;
        at += 1 + n;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += at < length && (text[at] == '+' || text[at] == '-');
        n = count_digits(text + at, length - at);
        if (n == 0)
            return 0;
        at += n;
    }
    return at;
}

static enum json_part scan_number(struct json_scan *s)
{
    s->part = s->text + s->at;
    s->n = json_number_length(s->part, s->length - s->at);
    if (s->n == 0)
        return fail(s, "a number that JSON does not have");
    s->at += s->n;
    return JSON_NUMBER;
}

static enum json_part scan_word(struct json_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    s->part = s->text + s->at;
    for (int i = 0; i < 3; i++) {
        s->n = strlen(words[i]);
        if (s->length - s->at >= s->n && memcmp(s->part, words[i], s->n) == 0) {
            s->at += s->n;
            return JSON_WORD;
        }
    }
    return fail(s, "no value that JSON has");
}

// ------------------------------------------------------------------------------------------ values

static enum json_part scan_key(struct json_scan *s)
{
    if (!scan_string(s))
        return JSON_WRONG;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, "no ':' after a key");
    s->at++;
    s->stands = JSON_AT_VALUE;
    return JSON_KEY;
}

static enum json_part scan_open(struct json_scan *s)
{
    if (s->depth == s->max_depth)
        return fail(s, "nesting too deep");
    s->closers[s->depth++] = peek(s) == '{' ? '}' : ']';
    s->part = s->text + s->at++;
    s->n = 1;
    s->stands = JSON_AT_FIRST;
    return JSON_OPEN;
}

static enum json_part scan_close(struct json_scan *s)
{
    s->depth--;
    s->part = s->text + s->at++;
    s->n = 1;
    s->stands = JSON_BEHIND_VALUE;
    return JSON_CLOSE;
}

static enum json_part scan_value(struct json_scan *s)
{
    const int c = peek(s);
    if (s->n_values++ == s->max_values && s->max_values > 0)
        return fail(s, "too many values");
    s->stands = JSON_BEHIND_VALUE;
    if (c == '{' || c == '[')
        return scan_open(s);
    if (c == '"')
        return scan_string(s) ? JSON_STRING : JSON_WRONG;
    return c == '-' || (c >= '0' && c <= '9') ? scan_number(s) : scan_word(s);
}

enum json_part json_next(struct json_scan *s)
{
    skip_space(s);
    if (s->stands == JSON_AT_VALUE)
        return scan_value(s);
    if (s->depth == 0)
        return s->at == s->length ? JSON_END : fail(s, "bytes after the value");
    const char closer = s->closers[s->depth - 1];
    if (peek(s) == closer)
        return scan_close(s);
    if (s->stands == JSON_BEHIND_VALUE) {
        if (peek(s) != ',')
            return fail(s, "neither ',' nor the end of a list or an object");
        s->at++;
        skip_space(s);
    }
    return closer == '}' ? scan_key(s) : scan_value(s);
}

// ------------------------------------------------------------------------------------------ the tree

cJSON *json_tree(const char *text, size_t length, int max_depth, size_t max_values, struct json_fault *fault)
{
    struct json_scan s = {.text = text, .length = length, .max_depth = max_depth, .max_values = max_values, .no_nul = true};
    enum json_part part;
    do {
        part = json_next(&s);
    } while (part > JSON_END && (part != JSON_NUMBER || s.n <= JSON_MAX_NUMBER));
    *fault = (struct json_fault){part == JSON_NUMBER ? "a number of too many digits" : s.wrong, s.at};
    return part == JSON_END ? cJSON_ParseWithLength(text, length) : NULL; // the grammar is right: only memory can be missing
}
