// JSON as Python's json.dumps() writes it.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/print.h"
#include "util/utf8.h"

static void write_value(struct run *run, struct writer *writer, struct value value, const struct json_style *style, int level);

static void write_escape(struct run *run, struct writer *writer, int32_t c)
{
    static const char short_for[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *found = c > 0 && c < 0x80 ? strchr(short_for, c) : NULL;
    char text[16];
    if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - short_for]);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((unsigned)(c - 0x10000) >> 10),
                 0xdc00 + ((unsigned)(c - 0x10000) & 0x3ff));
    write_text(run, writer, text);
}

static void write_string(struct run *run, struct writer *writer, struct value text, bool ascii)
{
    write_text(run, writer, "\"");
    for (size_t at = 0; at < text.length && !failed(run);) {
        const int n = utf8_size((uint8_t)text.text[at]);
        const int32_t point = utf8_point(text.text + at, n);
        if (point < 0x20 || point == '"' || point == '\\' || (ascii && point > 0x7e))
            write_escape(run, writer, point);
        else
            write_bytes(run, writer, text.text + at, (size_t)n);
        at += (size_t)n;
    }
    write_text(run, writer, "\"");
}

static void write_scalar(struct run *run, struct writer *writer, struct value value)
{
    if (value.kind == V_NONE)
        write_text(run, writer, "null");
    else if (value.kind == V_BOOL)
        write_text(run, writer, value.boolean ? "true" : "false");
    else if (value.kind == V_FLOAT && !isfinite(value.real))
        write_text(run, writer, isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity");
    else
        print_repr(run, writer, value);
}

static void write_key(struct run *run, struct writer *writer, struct value key, const struct json_style *style)
{
    if (key.kind == V_STRING) {
        write_string(run, writer, key, style->ascii);
        return;
    }
    write_text(run, writer, "\"");
    write_scalar(run, writer, key);
    write_text(run, writer, "\"");
}

static void new_line(struct run *run, struct writer *writer, const struct json_style *style, int level)
{
    if (style->indent.kind == V_NONE)
        return;
    write_text(run, writer, "\n");
    for (int i = 0; i < level && !failed(run); i++) {
        if (style->indent.kind == V_STRING)
            write_bytes(run, writer, style->indent.text, style->indent.length);
        for (int64_t k = 0; style->indent.kind != V_STRING && k < as_integer(style->indent) && !failed(run); k++)
            write_text(run, writer, " ");
    }
}

static int by_key(const void *a, const void *b)
{
    const struct value x = ((const struct entry *)a)->key, y = ((const struct entry *)b)->key;
    const int first = memcmp(x.text, y.text, x.length < y.length ? x.length : y.length);
    return first ? first : (x.length > y.length) - (x.length < y.length);
}

// The entries by their keys, which must all be strings.
static struct entry *sorted_entries(struct run *run, const struct dict *dict)
{
    for (size_t i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind != V_STRING) {
            run_fail(run, "sort_keys with a key that is no string, but '%s'", type_name(dict->entries[i].key));
            return NULL;
        }
    struct entry *entries = run_take(run, (dict->n + 1) * sizeof *entries);
    if (entries == NULL)
        return NULL;
    if (dict->n)
        memcpy(entries, dict->entries, dict->n * sizeof *entries);
    qsort(entries, dict->n, sizeof *entries, by_key);
    return entries;
}

static void write_dict(struct run *run, struct writer *writer, const struct dict *dict, const struct json_style *style,
                       int level)
{
    const struct entry *entries = style->sorted ? sorted_entries(run, dict) : dict->entries;
    write_text(run, writer, "{");
    for (size_t i = 0; i < dict->n && !failed(run); i++) {
        if (i)
            print(run, writer, style->item_separator);
        new_line(run, writer, style, level + 1);
        write_key(run, writer, entries[i].key, style);
        print(run, writer, style->key_separator);
        write_value(run, writer, entries[i].value, style, level + 1);
    }
    if (dict->n)
        new_line(run, writer, style, level);
    write_text(run, writer, "}");
}

static void write_list(struct run *run, struct writer *writer, const struct list *list, const struct json_style *style,
                       int level)
{
    write_text(run, writer, "[");
    for (size_t i = 0; i < list->n && !failed(run); i++) {
        if (i)
            print(run, writer, style->item_separator);
        new_line(run, writer, style, level + 1);
        write_value(run, writer, list->items[i], style, level + 1);
    }
    if (list->n)
        new_line(run, writer, style, level);
    write_text(run, writer, "]");
}

static void write_value(struct run *run, struct writer *writer, struct value value, const struct json_style *style, int level)
{
    if (!run_step(run, 1))
        return;
    if (level > RUN_MAX_NESTING + 50) {
        run_fail(run, "values are nested too deeply to be written as JSON");
        return;
    }
    if (value.kind == V_STRING)
        write_string(run, writer, value, style->ascii);
    else if (value.kind == V_NONE || is_number(value))
        write_scalar(run, writer, value);
    else if (value.kind == V_DICT)
        write_dict(run, writer, value.dict, style, level);
    else if (value.kind == V_LIST && value.list->flavour <= TUPLE)
        write_list(run, writer, value.list, style, level);
    else
        run_fail(run, "Object of type %s is not JSON serializable", type_name(value));
}

void print_json(struct run *run, struct writer *writer, struct value value, const struct json_style *style)
{
    write_value(run, writer, value, style, 0);
}
