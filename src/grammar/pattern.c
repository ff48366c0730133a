// See pattern.h. A reader by descent, which makes an automaton with several ways. A part that is repeated is read as often as
// it comes. Look-ahead is met with all that follows it.
#include "grammar/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

enum { MAX_DEPTH = 32, MAX_RANGES = 512, MAX_TIMES = 20000 };

struct char_class {
    struct dfa_edge ranges[MAX_RANGES]; // (n) in any order; `to` is unused
    int n;
};

struct pattern_reader {
    struct nfa nfa;
    const char *pattern, *at;
    int depth;
    int begin;     // the state before the expression
    bool at_start; // nothing but ^ has come in this alternative
    int found;     // where the expression has been found, and anything may follow
    int end;       // where the text is at its end
};

static _Noreturn void fail(struct pattern_reader *reader, const char *what)
{
    pool_refuse(reader->nfa.pool, "'pattern': %s, at '%.40s'", what, reader->at);
}

// ---------------------------------------------------------------- characters

static void class_add(struct pattern_reader *reader, struct char_class *class, uint32_t first, uint32_t last)
{
    if (class->n == MAX_RANGES)
        fail(reader, "a class that is too long");
    class->ranges[class->n++] = (struct dfa_edge){first, last, 0};
}

static int compare_edges(const void *a, const void *b)
{
    const struct dfa_edge *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Becomes all other characters.
static void class_invert(struct pattern_reader *reader, struct char_class *class)
{
    struct char_class others = {.n = 0};
    uint32_t next = 0;
    qsort(class->ranges, (size_t) class->n, sizeof *class->ranges, compare_edges);
    for (int i = 0; i < class->n; i++) {
        if (class->ranges[i].first > next)
            class_add(reader, &others, next, class->ranges[i].first - 1);
        if (class->ranges[i].last + 1 > next)
            next = class->ranges[i].last + 1;
    }
    if (next <= LAST_CHARACTER)
        class_add(reader, &others, next, LAST_CHARACTER);
    *class = others;
}

static void class_add_all(struct pattern_reader *reader, struct char_class *class, const struct char_class *more)
{
    for (int i = 0; i < more->n; i++)
        class_add(reader, class, more->ranges[i].first, more->ranges[i].last);
}

static uint32_t read_point(struct pattern_reader *reader)
{
    const int size = utf8_character(reader->at, strlen(reader->at));
    if (size == 0)
        fail(reader, "expected a character");
    reader->at += size;
    return (uint32_t)utf8_point(reader->at - size, size);
}

static uint32_t read_hexadecimal(struct pattern_reader *reader, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, reader->at++) {
        if (!isxdigit((unsigned char)*reader->at))
            fail(reader, "expected hexadecimal digits");
        value =
            value * 16 + (uint32_t)(isdigit((unsigned char)*reader->at) ? *reader->at - '0' : (*reader->at | 32) - 'a' + 10);
    }
    return value;
}

static uint32_t read_unicode(struct pattern_reader *reader)
{
    if (*reader->at == '{') {
        int digits = 0;
        reader->at++;
        while (isxdigit((unsigned char)reader->at[digits]))
            digits++;
        if (digits < 1 || digits > 6 || reader->at[digits] != '}')
            fail(reader, "expected a character's number in braces");
        const uint32_t point = read_hexadecimal(reader, digits);
        reader->at++;
        return point;
    }
    uint32_t point = read_hexadecimal(reader, 4);
    if (point >= 0xd800 && point < 0xdc00 && reader->at[0] == '\\' && reader->at[1] == 'u') {
        reader->at += 2;
        point = 0x10000 + ((point - 0xd800) << 10) + ((read_hexadecimal(reader, 4) - 0xdc00) & 0x3ff);
    }
    return point;
}

// \d \w \s and their opposites.
static bool read_shorthand(struct pattern_reader *reader, struct char_class *class)
{
    static const struct shorthand {
        char name;
        struct range {
            uint32_t first, last;
        } ranges[11]; // up to one that ends with 0
    } shorthands[] = {
        {'d', {{'0', '9'}}},
        {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
        {'s',
         {{'\t', '\r'},
          {' ', ' '},
          {0xa0, 0xa0},
          {0x1680, 0x1680},
          {0x2000, 0x200a},
          {0x2028, 0x2029},
          {0x202f, 0x202f},
          {0x205f, 0x205f},
          {0x3000, 0x3000},
          {0xfeff, 0xfeff}}},
    };
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++)
        if (shorthands[i].name == tolower((unsigned char)*reader->at)) {
            struct char_class named = {.n = 0};
            for (const struct range *range = shorthands[i].ranges; range->last; range++)
                class_add(reader, &named, range->first, range->last);
            if (isupper((unsigned char)*reader->at))
                class_invert(reader, &named);
            class_add_all(reader, class, &named);
            reader->at++;
            return true;
        }
    return false;
}

// Behind a backslash: one character.
static uint32_t read_escape(struct pattern_reader *reader)
{
    static const char names[] = "ntrfv0", values[] = "\n\t\r\f\v";
    const char c = *reader->at;
    const char *name = c ? strchr(names, c) : NULL;
    if (c == 'x' || c == 'u') {
        reader->at++;
        return c == 'x' ? read_hexadecimal(reader, 2) : read_unicode(reader);
    }
    if (c == 'c' && isalpha((unsigned char)reader->at[1])) {
        reader->at += 2;
        return (uint32_t)reader->at[-1] % 32;
    }
    if (name && !(c == '0' && isdigit((unsigned char)reader->at[1]))) {
        reader->at++;
        return (uint32_t)values[name - names];
    }
    if (c == 0 || isalnum((unsigned char)c))
        fail(reader, "an escape that is not read here");
    return read_point(reader);
}

// A character of a class; false where it was a shorthand, which has been added.
static bool read_member(struct pattern_reader *reader, struct char_class *class, uint32_t *point)
{
    if (*reader->at != '\\') {
        *point = read_point(reader);
        return true;
    }
    reader->at++;
    if (read_shorthand(reader, class))
        return false;
    if (*reader->at == 'b') {
        reader->at++;
        *point = '\b';
    } else
        *point = read_escape(reader);
    return true;
}

static void read_class(struct pattern_reader *reader, struct char_class *class)
{
    const bool others = *reader->at == '^';
    reader->at += others;
    while (*reader->at != ']') {
        uint32_t first, last;
        if (*reader->at == 0)
            fail(reader, "a class without its ]");
        const bool one = read_member(reader, class, &first);
        if (*reader->at == '-' && reader->at[1] != ']' && reader->at[1]) {
            reader->at++;
            if (!one) { // \w-x: the three of them
                class_add(reader, class, '-', '-');
                continue;
            }
            if (!read_member(reader, class, &last)) {
                class_add(reader, class, first, first);
                class_add(reader, class, '-', '-');
                continue;
            }
            if (last < first)
                fail(reader, "a range that ends before it begins");
            class_add(reader, class, first, last);
        } else if (one)
            class_add(reader, class, first, first);
    }
    reader->at++;
    if (others)
        class_invert(reader, class);
}

// ---------------------------------------------------------------- parts

static int read_alternatives(struct pattern_reader *reader, int from);

// The expression within (?=…) or (?!…), with anything behind it.
static struct dfa *read_ahead(struct pattern_reader *reader)
{
    struct pattern_reader inner = {
        .nfa = {.pool = reader->nfa.pool}, .pattern = reader->pattern, .at = reader->at, .depth = reader->depth + 1};
    const int start = nfa_state(&inner.nfa);
    inner.found = nfa_state(&inner.nfa);
    inner.end = -1; // no look-ahead within
    inner.begin = start;
    inner.at_start = reader->at_start;
    nfa_edge(&inner.nfa, inner.found, inner.found, NFA_CHARACTER, 0, LAST_CHARACTER);
    nfa_edge(&inner.nfa, read_alternatives(&inner, start), inner.found, NFA_FREE, 0, 0);
    reader->at = inner.at;
    if (*reader->at != ')')
        fail(reader, "a ( without its )");
    reader->at++;
    return nfa_determine(&inner.nfa, start, inner.found, reader->at_start);
}

static int read_sequence(struct pattern_reader *reader, int from);

// Meets what is ahead with the rest of the alternative: from `from` to the text's end.
static void read_look(struct pattern_reader *reader, int from, bool negative)
{
    if (reader->depth > 0 || reader->end < 0)
        fail(reader, "look-ahead within a group is not read here");
    const struct dfa *ahead = read_ahead(reader);
    struct pattern_reader rest = {
        .nfa = {.pool = reader->nfa.pool}, .pattern = reader->pattern, .at = reader->at, .at_start = reader->at_start};
    const int start = nfa_state(&rest.nfa);
    rest.found = nfa_state(&rest.nfa);
    rest.end = nfa_state(&rest.nfa);
    rest.begin = start;
    nfa_edge(&rest.nfa, rest.found, rest.found, NFA_CHARACTER, 0, LAST_CHARACTER);
    nfa_edge(&rest.nfa, rest.found, rest.end, NFA_AT_END, 0, 0);
    const int last = read_sequence(&rest, start);
    if (last >= 0)
        nfa_edge(&rest.nfa, last, rest.found, NFA_FREE, 0, 0);
    reader->at = rest.at;
    const struct dfa *behind = nfa_determine(&rest.nfa, start, rest.end, reader->at_start);
    nfa_embed(&reader->nfa, (negative ? dfa_minus : dfa_meet)(reader->nfa.pool, behind, ahead), from, reader->end);
}

static int read_group(struct pattern_reader *reader, int from)
{
    if (*reader->at == '?' && reader->at[1] == ':') {
        reader->at += 2;
    } else if (*reader->at == '?' && reader->at[1] == '<' && isalpha((unsigned char)reader->at[2])) {
        reader->at += strcspn(reader->at, ">"); // a name
        reader->at += *reader->at == '>';
    } else if (*reader->at == '?')
        fail(reader, "groups that look around, but ahead, are not read here");
    if (++reader->depth > MAX_DEPTH)
        fail(reader, "groups nest too deeply");
    const int to = read_alternatives(reader, from);
    reader->depth--;
    if (*reader->at != ')')
        fail(reader, "a ( without its )");
    reader->at++;
    return to;
}

static int read_atom(struct pattern_reader *reader, int from)
{
    struct char_class class = {.n = 0};
    const char c = *reader->at;
    if (c == '(') {
        reader->at++;
        return read_group(reader, from);
    }
    if (c == '[') {
        reader->at++;
        read_class(reader, &class);
    } else if (c == '.') {
        reader->at++;
        class_add(reader, &class, '\n', '\n');
        class_add(reader, &class, '\r', '\r');
        class_add(reader, &class, 0x2028, 0x2029);
        class_invert(reader, &class);
    } else if (c == '\\') {
        reader->at++;
        if (!read_shorthand(reader, &class)) {
            const uint32_t point = read_escape(reader);
            class_add(reader, &class, point, point);
        }
    } else if (strchr("*+?", c)) {
        fail(reader, "nothing stands before it to be repeated");
    } else {
        const uint32_t point = read_point(reader);
        class_add(reader, &class, point, point);
    }
    const int to = nfa_state(&reader->nfa);
    for (int i = 0; i < class.n; i++)
        nfa_edge(&reader->nfa, from, to, NFA_CHARACTER, class.ranges[i].first, class.ranges[i].last);
    return to;
}

// How often the part before comes. A brace that is no number of times is a character.
static bool read_times(struct pattern_reader *reader, int *least, int *most)
{
    const char c = *reader->at;
    if (c == '*' || c == '+' || c == '?') {
        *least = c == '+';
        *most = c == '?' ? 1 : -1;
        reader->at++;
    } else {
        char *end;
        if (c != '{' || !isdigit((unsigned char)reader->at[1]))
            return false;
        const unsigned long low = strtoul(reader->at + 1, &end, 10);
        unsigned long high = low;
        const bool open = *end == ',' && end[1] == '}';
        if (*end == ',')
            high = strtoul(end + 1, &end, 10);
        if (*end != '}')
            return false;
        if (low > MAX_TIMES || high > MAX_TIMES || (!open && high < low))
            fail(reader, "a number of times that is not read here");
        *least = (int)low;
        *most = open ? -1 : (int)high;
        reader->at = end + 1;
    }
    if (*reader->at == '?') // of as few as can be: the same texts
        reader->at++;
    return true;
}

// Reads the part at `begin` once more.
static int again(struct pattern_reader *reader, const char *begin, int from)
{
    const char *behind = reader->at;
    reader->at = begin;
    const int to = read_atom(reader, from);
    reader->at = behind;
    return to;
}

static int read_part(struct pattern_reader *reader, int from)
{
    struct nfa *nfa = &reader->nfa;
    const char *begin = reader->at;
    const int inner = nfa_state(nfa);
    nfa_edge(nfa, from, inner, NFA_FREE, 0, 0); // so that a loop ends at a state of its own
    int to = read_atom(reader, inner), least = 1, most = 1;
    reader->at_start = false;
    if (!read_times(reader, &least, &most))
        return to;
    const int out = nfa_state(nfa);
    if (least == 0)
        nfa_edge(nfa, inner, out, NFA_FREE, 0, 0);
    if (most == 0) // `to` leads nowhere
        return out;
    for (int i = 1; i < least; i++)
        to = again(reader, begin, to);
    if (most < 0) {
        const int loop = nfa_state(nfa);
        nfa_edge(nfa, to, loop, NFA_FREE, 0, 0);
        nfa_edge(nfa, again(reader, begin, loop), loop, NFA_FREE, 0, 0);
        to = loop;
    }
    for (int i = least > 1 ? least : 1; i < most; i++) {
        nfa_edge(nfa, to, out, NFA_FREE, 0, 0);
        to = again(reader, begin, to);
    }
    nfa_edge(nfa, to, out, NFA_FREE, 0, 0);
    return out;
}

// Reads parts up to | or ). Returns the state behind them; -1 where look-ahead has led to the end.
static int read_sequence(struct pattern_reader *reader, int from)
{
    while (*reader->at && *reader->at != '|' && *reader->at != ')') {
        const char c = *reader->at;
        if (c == '^' || c == '$') {
            const int to = nfa_state(&reader->nfa);
            if (c == '^' && reader->end < 0 && !reader->at_start)
                fail(reader, "a ^ within look-ahead that may stand elsewhere is not read here");
            reader->at_start |= c == '^' && from == reader->begin;
            nfa_edge(&reader->nfa, from, to, c == '^' ? NFA_AT_START : NFA_AT_END, 0, 0);
            reader->at++;
            from = to;
        } else if (c == '(' && reader->at[1] == '?' && (reader->at[2] == '=' || reader->at[2] == '!')) {
            const bool negative = reader->at[2] == '!';
            reader->at += 3;
            read_look(reader, from, negative);
            return -1;
        } else
            from = read_part(reader, from);
    }
    return from;
}

static int read_alternatives(struct pattern_reader *reader, int from)
{
    const int to = nfa_state(&reader->nfa);
    const bool at_start = reader->at_start;
    for (;;) {
        reader->at_start = at_start;
        const int last = read_sequence(reader, from);
        if (last >= 0)
            nfa_edge(&reader->nfa, last, to, NFA_FREE, 0, 0);
        if (*reader->at != '|')
            return to;
        reader->at++;
    }
}

static const struct dfa *read_whole(struct pool *pool, const char *pattern)
{
    struct pattern_reader reader = {.nfa = {.pool = pool}, .pattern = pattern, .at = pattern};
    const int start = nfa_state(&reader.nfa), search = nfa_state(&reader.nfa);
    reader.found = nfa_state(&reader.nfa);
    reader.end = nfa_state(&reader.nfa);
    reader.begin = search;
    // Anything may stand before it; ^ is not passed there, as it takes no character.
    nfa_edge(&reader.nfa, start, search, NFA_FREE, 0, 0);
    nfa_edge(&reader.nfa, search, search, NFA_CHARACTER, 0, LAST_CHARACTER);
    nfa_edge(&reader.nfa, reader.found, reader.found, NFA_CHARACTER, 0, LAST_CHARACTER);
    nfa_edge(&reader.nfa, reader.found, reader.end, NFA_AT_END, 0, 0);
    nfa_edge(&reader.nfa, read_alternatives(&reader, search), reader.found, NFA_FREE, 0, 0);
    if (*reader.at)
        fail(&reader, "a ) without its (");
    return dfa_minimal(pool, nfa_determine(&reader.nfa, start, reader.end, true));
}

const struct dfa *pattern_read(struct pool *pool, const char *pattern)
{
    const int index = intern_text(pool, &pool->patterns, pattern);
    pool->taken = pool_grow(pool, pool->taken, index, &pool->taken_room, sizeof *pool->taken);
    if (pool->taken[index] == NULL)
        pool->taken[index] = read_whole(pool, pattern);
    return pool->taken[index];
}
