// Values as text: Python's str() and repr().

#include "chat/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "util/utf8.h"

// Prints the shortest digits that read back as the same number, as Python's repr() does.
static void print_float(struct run *run, struct writer *writer, double x)
{
    if (!isfinite(x)) {
        write_text(run, writer, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    char text[40], digits[24];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, x);
        if (strtod(text, NULL) == x)
            break;
    }
    const char *mark = strchr(text, 'e');
    const int exponent = atoi(mark + 1);
    int n = 0;
    for (const char *c = text; c < mark; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (signbit(x))
        write_text(run, writer, "-");
    char tail[16] = "";
    int point = exponent + 1; // digits before the point
    if (exponent < -4 || exponent >= 16) {
        snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        point = 1;
    }
    if (point <= 0)
        write_text(run, writer, "0.");
    for (int i = point; i < 0; i++)
        write_text(run, writer, "0");
    for (int i = 0; i < n || i < point; i++) {
        if (i > 0 && i == point)
            write_text(run, writer, ".");
        write_bytes(run, writer, i < n ? &digits[i] : "0", 1);
    }
    if (n <= point && !*tail)
        write_text(run, writer, ".0");
    write_text(run, writer, tail);
}

static void print_number(struct run *run, struct writer *writer, struct value value)
{
    char text[24];
    if (value.kind == V_FLOAT) {
        print_float(run, writer, value.real);
    } else if (value.kind == V_BOOL) {
        write_text(run, writer, value.boolean ? "True" : "False");
    } else {
        snprintf(text, sizeof text, "%" PRId64, value.integer);
        write_text(run, writer, text);
    }
}

static bool printable(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    return c == ' ' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO);
}

static void print_escaped(struct run *run, struct writer *writer, int32_t c, char quote)
{
    char text[16];
    if (c == '\n' || c == '\r' || c == '\t')
        write_text(run, writer, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else if (c == '\\' || c == quote)
        write_bytes(run, writer, (char[]){'\\', (char)c}, 2);
    else if (printable(c))
        write_point(run, writer, c);
    else {
        snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        write_text(run, writer, text);
    }
}

static void print_quoted(struct run *run, struct writer *writer, struct value text)
{
    const bool single = text.length && memchr(text.text, '\'', text.length);
    const bool twice = text.length && memchr(text.text, '"', text.length);
    const char quote = single && !twice ? '"' : '\'';
    write_bytes(run, writer, &quote, 1);
    for (size_t at = 0; at < text.length && !failed(run);) {
        const int n = utf8_size((uint8_t)text.text[at]);
        print_escaped(run, writer, utf8_point(text.text + at, n), quote);
        at += (size_t)n;
    }
    write_bytes(run, writer, &quote, 1);
}

static void print_list(struct run *run, struct writer *writer, const struct list *list)
{
    static const char *const opening[] = {"[", "(", "[", "dict_items([", "dict_keys([", "dict_values([", "["};
    static const char *const closing[] = {"]", ")", "]", "])", "])", "])", "]"};
    if (list->flavour == RANGE) {
        char text[96];
        const int64_t first = list->n ? list->items[0].integer : 0;
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", first, first + (int64_t)list->n);
        write_text(run, writer, text);
        return;
    }
    write_text(run, writer, opening[list->flavour]);
    for (size_t i = 0; i < list->n && !failed(run); i++) {
        write_text(run, writer, i ? ", " : "");
        print_repr(run, writer, list->items[i]);
    }
    write_text(run, writer, list->flavour == TUPLE && list->n == 1 ? ",)" : closing[list->flavour]);
}

static void print_dict(struct run *run, struct writer *writer, const struct dict *dict)
{
    write_text(run, writer, "{");
    for (size_t i = 0; i < dict->n && !failed(run); i++) {
        write_text(run, writer, i ? ", " : "");
        print_repr(run, writer, dict->entries[i].key);
        write_text(run, writer, ": ");
        print_repr(run, writer, dict->entries[i].value);
    }
    write_text(run, writer, "}");
}

static void print_container(struct run *run, struct writer *writer, struct value value)
{
    if (run->depth >= RUN_MAX_DEPTH) {
        run_fail(run, "values are nested too deeply to be printed");
        return;
    }
    run->depth++;
    if (value.kind == V_LIST)
        print_list(run, writer, value.list);
    else
        print_dict(run, writer, value.dict);
    run->depth--;
}

void print(struct run *run, struct writer *writer, struct value value)
{
    if (value.kind == V_STRING)
        write_bytes(run, writer, value.text, value.length);
    else if (value.kind != V_UNDEFINED)
        print_repr(run, writer, value);
}

void print_repr(struct run *run, struct writer *writer, struct value value)
{
    if (!run_step(run, 1))
        return;
    switch (value.kind) {
    case V_UNDEFINED:
    case V_NONE:
        write_text(run, writer, value.kind == V_NONE ? "None" : "Undefined");
        break;
    case V_BOOL:
    case V_INT:
    case V_FLOAT:
        print_number(run, writer, value);
        break;
    case V_STRING:
        print_quoted(run, writer, value);
        break;
    case V_LIST:
    case V_DICT:
        print_container(run, writer, value);
        break;
    default: // Python shows an address, which no template means to show
        write_text(run, writer, "<");
        write_text(run, writer, type_name(value));
        write_text(run, writer, ">");
    }
}

struct value as_text(struct run *run, struct value value)
{
    if (value.kind == V_STRING)
        return value;
    struct writer writer = {0};
    print(run, &writer, value);
    return written(&writer);
}
