// See pattern.h. ECMA's expressions without look-around and back-references.
#include "grammar/pattern.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

// Characters of the ASCII range are a set of bits; of those beyond, a class holds all or ranges written as they are.
struct char_class {
    unsigned char ascii[16];
    char beyond[512]; // ranges, in the notation
    size_t n_beyond;
    bool others; // all characters but these
};

struct pattern_reader {
    FILE *out;
    const char *at;
    int depth;
    yalm_error *error;
    bool failed;
};

static void fail(struct pattern_reader *reader, const char *what)
{
    if (reader->failed)
        return;
    reader->failed = true;
    *reader->error = (yalm_error){.status = YALM_USAGE};
    snprintf(reader->error->text, sizeof reader->error->text, "pattern: %s, at '%.40s'", what, reader->at);
}

static void class_add(struct char_class *class, int first, int last)
{
    for (int c = first; c <= last; c++)
        class->ascii[c / 8] |= (unsigned char)(1 << c % 8);
}

static bool class_holds(const struct char_class *class, int c)
{
    return (class->ascii[c / 8] >> c % 8 & 1) != class->others;
}

// Writes a part of one character of the class. Quotes, backslashes and control characters become JSON's escapes.
static void write_class(struct pattern_reader *reader, const struct char_class *class)
{
    FILE *out = reader->out;
    fputs("(", out);
    const char *bar = "";
    bool any = false;
    for (int c = 0x20; c < 0x7f; c++)
        any |= c != '"' && c != '\\' && class_holds(class, c);
    if (any || class->others || class->n_beyond) {
        fputs(class->others ? "[^\\x00-\\x1f\\x7f\"\\\\" : "[", out);
        for (int c = 0x20; c < 0x7f; c++)
            if (c != '"' && c != '\\' && class_holds(class, c) != class->others)
                fprintf(out, "\\x%02x", (unsigned)c);
        fprintf(out, "%s]", class->beyond);
        bar = " | ";
    }
    static const char *const escapes[] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "n", ['\t'] = "t", ['\r'] = "r", ['\f'] = "f"};
    for (int c = 0; c <= '\\'; c++)
        if (escapes[c] && class_holds(class, c)) {
            fprintf(out, "%s\"\\\\%s\"", bar, escapes[c]);
            bar = " | ";
        }
    fputs(")", out);
    if (!*bar)
        fail(reader, "a class of no character that a text may hold");
}

// A character after a backslash: one of a class, or itself. -1: a class, which is added.
static int read_escape(struct pattern_reader *reader, struct char_class *class)
{
    const char c = *reader->at;
    reader->at += c != 0;
    struct char_class shorthand = {0};
    switch (tolower((unsigned char)c)) {
    case 'd':
        class_add(&shorthand, '0', '9');
        break;
    case 'w':
        class_add(&shorthand, '0', '9');
        class_add(&shorthand, 'a', 'z');
        class_add(&shorthand, 'A', 'Z');
        class_add(&shorthand, '_', '_');
        break;
    case 's':
        class_add(&shorthand, ' ', ' ');
        class_add(&shorthand, '\t', '\r');
        break;
    case 'n':
        return c == 'n' ? '\n' : (fail(reader, "an escape that is not read here"), 0);
    case 't':
        return c == 't' ? '\t' : (fail(reader, "an escape that is not read here"), 0);
    case 'r':
        return c == 'r' ? '\r' : (fail(reader, "an escape that is not read here"), 0);
    default:
        if (c == 0 || isalnum((unsigned char)c))
            fail(reader, "an escape that is not read here");
        return (unsigned char)c;
    }
    for (int i = 0; i < 128; i++)
        if (class_holds(&shorthand, i) != (isupper((unsigned char)c) != 0))
            class_add(class, i, i);
    if (isupper((unsigned char)c)) { // all of the others, too
        memcpy(class->beyond, "\\x80-\\U0010ffff", 16);
        class->n_beyond = 15;
    }
    return -1;
}

// Adds the character at reader->at, which is not ASCII, to the class.
static void add_beyond(struct pattern_reader *reader, struct char_class *class)
{
    size_t n = 1;
    while ((reader->at[n] & 0xc0) == 0x80)
        n++;
    if (class->n_beyond + n + 1 >= sizeof class->beyond) {
        fail(reader, "a class that is too long");
        return;
    }
    memcpy(class->beyond + class->n_beyond, reader->at, n);
    class->n_beyond += n;
    class->beyond[class->n_beyond] = 0;
    reader->at += n;
}

static void read_class(struct pattern_reader *reader)
{
    struct char_class class = {0};
    if ((class.others = *reader->at == '^'))
        reader->at++;
    for (bool first = true; !reader->failed && (*reader->at != ']' || first); first = false) {
        if (*reader->at == 0) {
            fail(reader, "a class without its ]");
            return;
        }
        if (*reader->at & 0x80) {
            add_beyond(reader, &class);
            if (*reader->at == '-' && reader->at[1] & 0x80) {
                class.beyond[class.n_beyond++] = '-';
                reader->at++;
                add_beyond(reader, &class);
            }
            continue;
        }
        int low = (unsigned char)*reader->at++;
        if (low == ']' && first) {
            fail(reader, "a class of nothing");
            return;
        }
        if (low == '\\' && (low = read_escape(reader, &class)) < 0)
            continue;
        int high = low;
        if (*reader->at == '-' && reader->at[1] != ']' && reader->at[1]) {
            reader->at++;
            high = (unsigned char)*reader->at++;
            if (high == '\\')
                high = read_escape(reader, &class);
        }
        if (high < low || high > 0x7f)
            fail(reader, "a range of characters that is not read here");
        else
            class_add(&class, low, high);
    }
    reader->at += *reader->at == ']';
    if (!reader->failed)
        write_class(reader, &class);
}

static void read_alternatives(struct pattern_reader *reader);

static void read_atom(struct pattern_reader *reader)
{
    struct char_class class = {0};
    const char c = *reader->at;
    if (c == '[') {
        reader->at++;
        read_class(reader);
    } else if (c == '(') {
        reader->at++;
        if (*reader->at == '?' && reader->at[1] == ':')
            reader->at += 2;
        else if (*reader->at == '?')
            fail(reader, "groups that look around are not read here");
        fputs("(", reader->out);
        if (++reader->depth > MAX_DEPTH)
            fail(reader, "groups nest too deeply");
        else
            read_alternatives(reader);
        reader->depth--;
        fputs(")", reader->out);
        if (*reader->at != ')')
            fail(reader, "a ( without its )");
        reader->at += *reader->at == ')';
    } else if (c == '.') {
        reader->at++;
        class_add(&class, '\n', '\n');
        class_add(&class, '\r', '\r');
        class.others = true;
        write_class(reader, &class);
    } else if (c == '\\') {
        reader->at++;
        const int one = read_escape(reader, &class);
        if (one >= 0)
            class_add(&class, one & 0x7f, one & 0x7f);
        if (!reader->failed)
            write_class(reader, &class);
    } else if (strchr("*+?{}^$", c)) {
        fail(reader, "not read here");
    } else if (c & 0x80) {
        add_beyond(reader, &class);
        if (!reader->failed)
            write_class(reader, &class);
    } else {
        reader->at++;
        class_add(&class, (unsigned char)c, (unsigned char)c);
        write_class(reader, &class);
    }
}

static void read_times(struct pattern_reader *reader)
{
    const char c = *reader->at;
    if (c == '*' || c == '+' || c == '?') {
        fputc(c, reader->out);
        reader->at++;
    } else if (c == '{') {
        size_t n = 1;
        while (isdigit((unsigned char)reader->at[n]) || (reader->at[n] == ',' && n > 1))
            n++;
        if (reader->at[n] != '}' || n == 1) {
            fail(reader, "a number of times that is not read here");
            return;
        }
        fwrite(reader->at, 1, n + 1, reader->out);
        reader->at += n + 1;
    } else
        return;
    if (*reader->at == '?') // of as few as can be: the same texts
        reader->at++;
}

static void read_alternatives(struct pattern_reader *reader)
{
    while (!reader->failed && *reader->at && *reader->at != ')') {
        if (*reader->at == '$' && reader->at[1] == 0)
            return;
        if (*reader->at == '|') {
            fputs(" | ", reader->out);
            reader->at++;
            continue;
        }
        read_atom(reader);
        if (!reader->failed)
            read_times(reader);
        fputc(' ', reader->out);
    }
}

yalm_status pattern_write(FILE *out, const char *pattern, yalm_error *error)
{
    struct pattern_reader reader = {.out = out, .at = pattern, .error = error};
    const bool from_start = *pattern == '^';
    reader.at += from_start;
    if (!from_start)
        fputs("char* ", out);
    fputs("(", out);
    read_alternatives(&reader);
    fputs(")", out);
    const bool to_end = *reader.at == '$';
    reader.at += to_end;
    if (!reader.failed && *reader.at)
        fail(&reader, "not read here");
    // ^ and $ belong to the alternative that they stand in, not to all.
    int depth = 0;
    for (const char *c = pattern; *c && (from_start || to_end); c++) {
        if (*c == '\\' && c[1])
            c++;
        else
            depth += (*c == '(' || *c == '[') - (*c == ')' || *c == ']');
        if (*c == '|' && depth == 0)
            fail(&reader, "^ or $ beside |: put the alternatives into a group");
    }
    if (!to_end)
        fputs(" char*", out);
    return reader.failed ? error->status : YALM_OK;
}
