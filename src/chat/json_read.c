// Reads JSON into values. cJSON keeps every number as a double; templates print 1 and 1.0 differently, so values come from the
// scanner.

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "chat/print.h"
#include "util/json_read.h"

static struct value wrong(struct run *run, const struct json_scan *scan, const char *what, const char *found)
{
    return no_value(run, "%s: not JSON: %s at byte %zu", what, found, scan->at);
}

static struct value read_text(struct run *run, const struct json_scan *scan)
{
    char *bytes = run_take(run, scan->n + 1);
    if (bytes == NULL)
        return undefined(NULL);
    return string(bytes, json_unescape(bytes, scan->part, scan->n));
}

static struct value read_number(struct run *run, const struct json_scan *scan, const char *what)
{
    char digits[400]; // the longest that a double needs, and more
    if (scan->n >= sizeof digits)
        return wrong(run, scan, what, "a number of too many digits");
    memcpy(digits, scan->part, scan->n);
    digits[scan->n] = '\0';
    errno = 0;
    if (strcspn(digits, ".eE") == scan->n) {
        const long long i = strtoll(digits, NULL, 10);
        return errno ? wrong(run, scan, what, "an integer that 64 bits do not hold") : integer(i);
    }
    char *point = strchr(digits, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    return real(strtod(digits, NULL));
}

static struct value read_word(const struct json_scan *scan)
{
    return *scan->part == 'n' ? none() : boolean(*scan->part == 't');
}

// Recursion is as deep as the text's nesting, which the scan bounds.
static struct value read_value(struct run *run, struct json_scan *scan, enum json_part part, const char *what)
{
    if (part == JSON_WRONG)
        return wrong(run, scan, what, scan->wrong);
    if (part != JSON_OPEN)
        return part == JSON_STRING   ? read_text(run, scan)
               : part == JSON_NUMBER ? read_number(run, scan, what)
                                     : read_word(scan);
    const bool is_dict = *scan->part == '{';
    const struct value value = is_dict ? new_dict(run, V_DICT) : new_list(run, LIST, 4);
    while (!failed(run) && (part = json_next(scan)) != JSON_CLOSE) {
        const struct value key = part == JSON_KEY ? read_text(run, scan) : none();
        const struct value item = read_value(run, scan, part == JSON_KEY ? json_next(scan) : part, what);
        if (failed(run))
            break;
        if (is_dict)
            dict_set(run, value.dict, key, item);
        else
            list_add(run, value.list, item);
    }
    return value;
}

struct value read_json(struct run *run, const char *text, size_t length, const char *what)
{
    struct json_scan scan = {.text = text, .length = length, .max_depth = RUN_MAX_NESTING};
    const struct value value = read_value(run, &scan, json_next(&scan), what);
    if (!failed(run) && json_next(&scan) != JSON_END)
        return wrong(run, &scan, what, scan.wrong);
    return value;
}
