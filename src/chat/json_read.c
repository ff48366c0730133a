// Reads JSON into values. cJSON keeps every number as a double; templates print 1 and 1.0 differently, so this parser is our
// own.

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "chat/print.h"
#include "util/utf8.h"

struct json_reader {
    struct run *run;
    const char *text, *what;
    size_t length, at;
    int depth;
};

static struct value read_value(struct json_reader *r);

static struct value wrong(struct json_reader *r, const char *found)
{
    run_fail(r->run, "%s: not JSON: %s at byte %zu", r->what, found, r->at);
    return undefined(NULL);
}

static int peek(const struct json_reader *r)
{
    return r->at < r->length ? (unsigned char)r->text[r->at] : -1;
}

static void skip_space(struct json_reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\n' || peek(r) == '\r')
        r->at++;
}

static bool skip(struct json_reader *r, char c)
{
    skip_space(r);
    if (peek(r) != c)
        return false;
    r->at++;
    return true;
}

// The four digits of \uXXXX; -1 where they are not that.
static int32_t read_unit(struct json_reader *r)
{
    int32_t unit = 0;
    if (r->length - r->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int c = (unsigned char)r->text[r->at++];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        unit = 16 * unit + digit;
    }
    return unit;
}

static void read_escape(struct json_reader *r, struct writer *writer)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const int c = peek(r);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    r->at += c >= 0;
    if (found) {
        write_bytes(r->run, writer, &means[found - letters], 1);
        return;
    }
    int32_t point = c == 'u' ? read_unit(r) : -1;
    if (point >= 0xd800 && point < 0xdc00 && r->length - r->at >= 6 && !memcmp(r->text + r->at, "\\u", 2)) {
        r->at += 2;
        const int32_t low = read_unit(r);
        point = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((point - 0xd800) << 10) + low - 0xdc00 : -1;
    }
    if (point < 0)
        wrong(r, "a wrong escape");
    else if (point >= 0xd800 && point < 0xe000)
        wrong(r, "half of a surrogate pair");
    else
        write_point(r->run, writer, point);
}

static struct value read_string(struct json_reader *r)
{
    if (!skip(r, '"'))
        return wrong(r, "no string where one must stand");
    struct writer writer = {0};
    size_t from = r->at; // what is not escaped is copied in one piece
    while (!failed(r->run)) {
        const int c = peek(r);
        if (c < 0x20)
            return wrong(r, c < 0 ? "the end of the text in a string" : "a control character in a string");
        if (c == '"' || c == '\\') {
            write_bytes(r->run, &writer, r->text + from, r->at - from);
            r->at++;
            if (c == '"')
                break;
            read_escape(r, &writer);
            from = r->at;
            continue;
        }
        const int n = utf8_character(r->text + r->at, r->length - r->at);
        if (n == 0)
            return wrong(r, "a byte that is not UTF-8");
        r->at += (size_t)n;
    }
    return written(&writer);
}

static size_t skip_digits(struct json_reader *r)
{
    const size_t from = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return r->at - from;
}

static struct value read_number(struct json_reader *r)
{
    const size_t from = r->at;
    bool whole = true;
    r->at += peek(r) == '-';
    const bool zero = peek(r) == '0';
    const size_t n = skip_digits(r);
    bool good = n > 0 && !(zero && n > 1);
    if (peek(r) == '.') {
        r->at++;
        whole = false;
        good = skip_digits(r) > 0 && good;
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->at++;
        whole = false;
        r->at += peek(r) == '+' || peek(r) == '-';
        good = skip_digits(r) > 0 && good;
    }
    char digits[400]; // the longest that a double needs, and more
    if (!good || r->at - from >= sizeof digits)
        return wrong(r, good ? "a number of too many digits" : "no number that JSON has");
    memcpy(digits, r->text + from, r->at - from);
    digits[r->at - from] = '\0';
    errno = 0;
    if (whole) {
        const long long i = strtoll(digits, NULL, 10);
        return errno ? wrong(r, "an integer that 64 bits do not hold") : integer(i);
    }
    char *point = strchr(digits, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    return real(strtod(digits, NULL));
}

static struct value read_list(struct json_reader *r)
{
    const struct value list = new_list(r->run, LIST, 4);
    r->at++;
    if (skip(r, ']'))
        return list;
    do {
        const struct value item = read_value(r);
        if (failed(r->run))
            return item;
        list_add(r->run, list.list, item);
    } while (skip(r, ','));
    return skip(r, ']') ? list : wrong(r, "neither ',' nor the end of a list");
}

static struct value read_object(struct json_reader *r)
{
    const struct value dict = new_dict(r->run, V_DICT);
    r->at++;
    if (skip(r, '}'))
        return dict;
    do {
        const struct value key = read_string(r);
        if (!failed(r->run) && !skip(r, ':'))
            return wrong(r, "no ':' after a key");
        const struct value value = read_value(r);
        if (failed(r->run))
            return value;
        dict_set(r->run, dict.dict, key, value);
    } while (skip(r, ','));
    return skip(r, '}') ? dict : wrong(r, "neither ',' nor the end of an object");
}

static struct value read_word(struct json_reader *r)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (r->length - r->at >= n && !memcmp(r->text + r->at, words[i], n)) {
            r->at += n;
            return i == 0 ? none() : boolean(i == 1);
        }
    }
    return wrong(r, r->at < r->length ? "no value that JSON has" : "the end of the text");
}

static struct value read_value(struct json_reader *r)
{
    if (failed(r->run))
        return undefined(NULL);
    skip_space(r);
    const int c = peek(r);
    if (c == '"')
        return read_string(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    if (c != '{' && c != '[')
        return read_word(r);
    if (r->depth == RUN_MAX_NESTING)
        return wrong(r, "nesting too deep");
    r->depth++;
    const struct value value = c == '{' ? read_object(r) : read_list(r);
    r->depth--;
    return value;
}

struct value read_json(struct run *run, const char *text, size_t length, const char *what)
{
    struct json_reader r = {.run = run, .text = text, .what = what, .length = length};
    const struct value value = read_value(&r);
    skip_space(&r);
    if (!failed(run) && r.at < r.length)
        return wrong(&r, "something after the value");
    return value;
}
