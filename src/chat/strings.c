// Strings: searching, cutting and putting together.

#include "chat/strings.h"

#include <string.h>
#include <utf8proc.h>

#include "util/utf8.h"

// ------------------------------------------------------------------------------------------ writing

void write_bytes(struct run *run, struct writer *writer, const char *bytes, size_t n)
{
    if (n == 0 || !run_step(run, 1 + n / 64))
        return;
    if (writer->room - writer->n < n) {
        size_t room = writer->room ? 2 * writer->room : 64;
        while (room - writer->n < n)
            room *= 2;
        char *grown = run_take(run, room);
        if (grown == NULL)
            return;
        if (writer->n)
            memcpy(grown, writer->bytes, writer->n);
        writer->bytes = grown;
        writer->room = room;
    }
    memcpy(writer->bytes + writer->n, bytes, n);
    writer->n += n;
}

void write_text(struct run *run, struct writer *writer, const char *text)
{
    write_bytes(run, writer, text, strlen(text));
}

void write_point(struct run *run, struct writer *writer, int32_t point)
{
    char bytes[4];
    write_bytes(run, writer, bytes, (size_t)utf8_write(bytes, point));
}

struct value written(const struct writer *writer)
{
    return string(writer->n ? writer->bytes : "", writer->n);
}

// ------------------------------------------------------------------------------------------ code points

// Bytes of the character that begins with this one; the text is well-formed.
static size_t character_bytes(char lead)
{
    return (size_t)utf8_size((uint8_t)lead);
}

size_t count_points(struct value text)
{
    return utf8_count(text.text, text.length);
}

// Byte offset of the index-th character.
static size_t offset_of(struct value text, size_t index)
{
    size_t at = 0;
    while (index-- > 0)
        at += character_bytes(text.text[at]);
    return at;
}

struct list *characters(struct run *run, struct value text)
{
    const struct value list = new_list(run, LIST, text.length);
    for (size_t at = 0; at < text.length && !failed(run);) {
        const size_t n = character_bytes(text.text[at]);
        list_add(run, list.list, string(text.text + at, n));
        at += n;
    }
    return failed(run) ? NULL : list.list;
}

bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// ------------------------------------------------------------------------------------------ searching

size_t text_find(struct run *run, struct value text, struct value part, size_t from)
{
    if (from > text.length || !run_step(run, 1 + (text.length - from) / 64))
        return SIZE_MAX;
    if (part.length == 0)
        return from;
    const char *found = memmem(text.text + from, text.length - from, part.text, part.length);
    return found ? (size_t)(found - text.text) : SIZE_MAX;
}

size_t text_find_last(struct run *run, struct value text, struct value part)
{
    for (size_t at = text.length + 1; at-- > 0;)
        if (text.length - at >= part.length && run_pass(run, part.length) && !memcmp(text.text + at, part.text, part.length))
            return at;
    return SIZE_MAX;
}

bool starts_with(struct value text, struct value part)
{
    return text.length >= part.length && !memcmp(text.text, part.text, part.length);
}

bool ends_with(struct value text, struct value part)
{
    return text.length >= part.length && !memcmp(text.text + text.length - part.length, part.text, part.length);
}

// ------------------------------------------------------------------------------------------ cutting

static struct value between(struct value text, size_t from, size_t to)
{
    struct value part = string(text.text + from, to - from);
    part.is_safe = text.is_safe;
    return part;
}

static bool is_among(struct value of, const char *character, size_t bytes)
{
    if (of.kind != V_STRING)
        return is_space(utf8_point(character, (int)bytes));
    return bytes <= of.length && memmem(of.text, of.length, character, bytes) != NULL;
}

static size_t last_character(struct value text, size_t from, size_t to)
{
    size_t at = to - 1;
    while (at > from && (text.text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

struct value strip(struct value text, struct value of, enum side side)
{
    size_t from = 0, to = text.length;
    while ((side & LEFT) && from < to && is_among(of, text.text + from, character_bytes(text.text[from])))
        from += character_bytes(text.text[from]);
    while ((side & RIGHT) && from < to) {
        const size_t last = last_character(text, from, to);
        if (!is_among(of, text.text + last, to - last))
            break;
        to = last;
    }
    return between(text, from, to);
}

static struct value split_at_space(struct run *run, struct value text, int64_t most)
{
    const struct value parts = new_list(run, LIST, 8);
    text = strip(text, none(), LEFT);
    while (text.length > 0 && !failed(run)) {
        size_t end = 0;
        while (end < text.length && !is_among(none(), text.text + end, character_bytes(text.text[end])))
            end += character_bytes(text.text[end]);
        if (most >= 0 && (int64_t)parts.list->n == most)
            end = text.length; // the last part keeps the white space inside it, and at its end
        list_add(run, parts.list, between(text, 0, end));
        text = strip(between(text, end, text.length), none(), LEFT);
    }
    return parts;
}

struct value split(struct run *run, struct value text, struct value separator, int64_t most)
{
    if (separator.kind != V_STRING)
        return split_at_space(run, text, most);
    if (separator.length == 0)
        return no_value(run, "empty separator");
    const struct value parts = new_list(run, LIST, 8);
    size_t from = 0;
    while (!failed(run)) {
        const bool enough = most >= 0 && (int64_t)parts.list->n == most;
        const size_t at = enough ? SIZE_MAX : text_find(run, text, separator, from);
        list_add(run, parts.list, between(text, from, at == SIZE_MAX ? text.length : at));
        if (at == SIZE_MAX)
            break;
        from = at + separator.length;
    }
    return parts;
}

struct value split_from_right(struct run *run, struct value text, struct value separator, int64_t most)
{
    if (separator.kind != V_STRING || separator.length == 0)
        return no_value(run, "rsplit() needs a separator");
    const struct value parts = new_list(run, LIST, 8);
    size_t to = text.length;
    while (!failed(run)) {
        const bool enough = most >= 0 && (int64_t)parts.list->n == most;
        const size_t at = enough ? SIZE_MAX : text_find_last(run, between(text, 0, to), separator);
        list_add(run, parts.list, at == SIZE_MAX ? between(text, 0, to) : between(text, at + separator.length, to));
        if (at == SIZE_MAX || !run_step(run, 1 + (to - at) / 64))
            break;
        to = at;
    }
    for (size_t i = 0; !failed(run) && i < parts.list->n / 2; i++) {
        const struct value first = parts.list->items[i];
        parts.list->items[i] = parts.list->items[parts.list->n - 1 - i];
        parts.list->items[parts.list->n - 1 - i] = first;
    }
    return parts;
}

static bool ends_line(int32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

struct value split_lines(struct run *run, struct value text)
{
    const struct value lines = new_list(run, LIST, 8);
    size_t from = 0;
    for (size_t at = 0; at < text.length && !failed(run);) {
        const size_t n = character_bytes(text.text[at]);
        const bool ends = ends_line(utf8_point(text.text + at, (int)n));
        if (ends)
            list_add(run, lines.list, between(text, from, at));
        const bool pair = text.text[at] == '\r' && at + 1 < text.length && text.text[at + 1] == '\n';
        at += n + pair;
        from = ends ? at : from;
    }
    if (from < text.length && !failed(run))
        list_add(run, lines.list, between(text, from, text.length));
    return lines;
}

// ------------------------------------------------------------------------------------------ making

// Escapes a text for HTML, as Markup does it.
static struct value escape(struct run *run, struct value text)
{
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct writer writer = {0};
    for (size_t i = 0; i < text.length && !failed(run); i++) {
        const char *found = memchr(special, text.text[i], sizeof special - 1);
        if (found)
            write_text(run, &writer, names[found - special]);
        else
            write_bytes(run, &writer, &text.text[i], 1);
    }
    return written(&writer);
}

struct value join_two(struct run *run, struct value a, struct value b)
{
    const bool is_safe = a.is_safe || b.is_safe;
    if (is_safe && !a.is_safe)
        a = escape(run, a);
    if (is_safe && !b.is_safe)
        b = escape(run, b);
    const size_t n = (size_t)a.length + b.length;
    char *bytes = run_step(run, 1 + n / 64) ? run_take(run, n) : NULL;
    if (bytes == NULL)
        return undefined(NULL);
    memcpy(bytes, a.text, a.length);
    memcpy(bytes + a.length, b.text, b.length);
    struct value joined = string(bytes, n);
    joined.is_safe = is_safe;
    return joined;
}

struct value repeat(struct run *run, struct value text, int64_t times)
{
    struct writer writer = {0};
    for (int64_t i = 0; text.length > 0 && i < times && !failed(run); i++)
        write_bytes(run, &writer, text.text, text.length);
    return written(&writer);
}

// Python puts `new` between all characters, too, where `old` is empty.
static struct value spread(struct run *run, struct value text, struct value new, int64_t most)
{
    struct writer writer = {0};
    int64_t n = 0;
    for (size_t at = 0; at <= text.length && !failed(run);) {
        if (most < 0 || n++ < most)
            write_bytes(run, &writer, new.text, new.length);
        if (at == text.length)
            break;
        const size_t bytes = character_bytes(text.text[at]);
        write_bytes(run, &writer, text.text + at, bytes);
        at += bytes;
    }
    return written(&writer);
}

struct value replace(struct run *run, struct value text, struct value old, struct value new, int64_t most)
{
    if (old.length == 0)
        return spread(run, text, new, most);
    struct writer writer = {0};
    size_t from = 0;
    for (int64_t n = 0; !failed(run) && (most < 0 || n < most); n++) {
        const size_t at = text_find(run, text, old, from);
        if (at == SIZE_MAX)
            break;
        write_bytes(run, &writer, text.text + from, at - from);
        write_bytes(run, &writer, new.text, new.length);
        from = at + old.length;
    }
    write_bytes(run, &writer, text.text + from, text.length - from);
    return written(&writer);
}

// Changes letters one by one; only the capital of the sharp s is two.
struct value in_case(struct run *run, struct value text, enum letter_case how)
{
    struct writer writer = {0};
    bool begins = true;
    for (size_t at = 0; at < text.length && !failed(run);) {
        const size_t n = character_bytes(text.text[at]);
        const int32_t point = utf8_point(text.text + at, (int)n);
        const bool up = how == UPPER || (begins && (how == CAPITAL || how == TITLE));
        if (up && point == 0xdf)
            write_text(run, &writer, how == UPPER ? "SS" : "Ss");
        else if (up)
            write_point(run, &writer, how == UPPER ? utf8proc_toupper(point) : utf8proc_totitle(point));
        else
            write_point(run, &writer, utf8proc_tolower(point));
        const bool letter = utf8proc_tolower(point) != point || utf8proc_toupper(point) != point;
        begins = how == TITLE && !letter;
        at += n;
    }
    return written(&writer);
}

// ------------------------------------------------------------------------------------------ slices

static bool bound(struct run *run, struct value value, int64_t otherwise, int64_t n, bool backward, int64_t *result)
{
    if (value.kind == V_NONE) {
        *result = otherwise;
        return true;
    }
    if (value.kind != V_INT && value.kind != V_BOOL)
        return run_fail(run, "slice indices must be integers or None, found %s", type_name(value));
    int64_t index = as_integer(value);
    if (index < 0)
        index = index < -n ? -1 : index + n;
    else if (index > n)
        index = n;
    if (index < 0)
        index = backward ? -1 : 0;
    *result = backward && index >= n ? n - 1 : index;
    return true;
}

bool slice_bounds(struct run *run, struct value start, struct value stop, struct value step, int64_t n, int64_t bounds[3])
{
    bounds[2] = 1;
    if (step.kind == V_INT || step.kind == V_BOOL)
        bounds[2] = as_integer(step);
    if (bounds[2] == 0 || (step.kind != V_NONE && step.kind != V_INT && step.kind != V_BOOL))
        return run_fail(run, "a slice's step must be an integer that is not zero");
    const bool backward = bounds[2] < 0;
    if (bounds[2] > n + 1 || bounds[2] < -n - 1) // larger ones mean the same, and do not wrap
        bounds[2] = backward ? -n - 1 : n + 1;
    return bound(run, start, backward ? n - 1 : 0, n, backward, &bounds[0]) &&
           bound(run, stop, backward ? -1 : n, n, backward, &bounds[1]);
}

struct value slice_text(struct run *run, struct value text, struct value start, struct value stop, struct value step)
{
    int64_t b[3];
    const size_t n = count_points(text);
    if (!run_step(run, 1 + text.length / 64) || !slice_bounds(run, start, stop, step, (int64_t)n, b))
        return undefined(NULL);
    if (b[2] == 1) {
        const size_t from = offset_of(text, (size_t)b[0]);
        const size_t to = b[1] > b[0] ? offset_of(text, (size_t)b[1]) : from;
        return between(text, from, to);
    }
    struct writer writer = {0};
    const struct list *all = characters(run, text);
    for (int64_t i = b[0]; all && (b[2] > 0 ? i < b[1] : i > b[1]) && !failed(run); i += b[2])
        write_bytes(run, &writer, all->items[i].text, all->items[i].length);
    return written(&writer);
}

struct value character_at(struct value text, int64_t index)
{
    const int64_t n = (int64_t)count_points(text);
    if (index < 0)
        index += n;
    if (index < 0 || index >= n)
        return undefined(NULL);
    const size_t at = offset_of(text, (size_t)index);
    return string(text.text + at, character_bytes(text.text[at]));
}
