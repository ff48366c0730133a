// See grammar.h: the parser of the notation.
#include "grammar/grammar.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/build.h"
#include "util/utf8.h"

enum { MAX_NAME = 128, MAX_RANGES = 4096, MAX_TIMES = 100000 };

struct parser {
    const char *text, *at, *end;
    struct builder builder;
    struct rule_name {
        const char *at; // where it came first
        int length, rule;
        unsigned hash;
        bool defined;
    } * names; // (n_names)
    int n_names, names_room;
    int *slots; // (2 names_room) open addressing, of names' indices + 1
    int depth;
    yalm_error *error;
    bool failed;
};

static int line_of(const struct parser *parser, const char *at)
{
    int line = 1;
    for (const char *c = parser->text; c < at; c++)
        line += *c == '\n';
    return line;
}

__attribute__((format(printf, 2, 3))) static void fail(struct parser *parser, const char *format, ...)
{
    if (parser->failed)
        return;
    parser->failed = true;
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (parser->error) {
        parser->error->status = YALM_USAGE;
        snprintf(parser->error->text, sizeof parser->error->text, "grammar, line %d: %s", line_of(parser, parser->at), what);
    }
}

static char peek(const struct parser *parser)
{
    return parser->at < parser->end ? *parser->at : 0;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

// Skips blanks and comments; line ends too where `lines`.
static void skip(struct parser *parser, bool lines)
{
    while (parser->at < parser->end) {
        const char c = *parser->at;
        if (c == '#')
            while (parser->at < parser->end && *parser->at != '\n')
                parser->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            parser->at++;
        else
            return;
    }
}

static bool grow_names(struct parser *parser)
{
    const int room = parser->names_room ? parser->names_room * 2 : 32;
    struct rule_name *names = realloc(parser->names, (size_t)room * sizeof *names);
    int *slots = calloc(2 * (size_t)room, sizeof *slots);
    parser->names = names ? names : parser->names;
    if (names == NULL || slots == NULL) {
        free(slots);
        return false;
    }
    free(parser->slots);
    parser->slots = slots;
    parser->names_room = room;
    for (int i = 0; i < parser->n_names; i++) {
        unsigned at = names[i].hash % (2 * (unsigned)room);
        while (slots[at])
            at = (at + 1) % (2 * (unsigned)room);
        slots[at] = i + 1;
    }
    return true;
}

static int find_name(struct parser *parser)
{
    const char *begin = parser->at;
    unsigned hash = 5381;
    for (; parser->at < parser->end && is_name(*parser->at); parser->at++)
        hash = (hash ^ (unsigned char)*parser->at) * 0x9e3779b1u;
    hash ^= hash >> 15;
    const int length = parser->at - begin < MAX_NAME ? (int)(parser->at - begin) : 0;
    if (length == 0) {
        fail(parser, "expected a rule's name of 1 to %d letters, digits, - and _", MAX_NAME - 1);
        return -1;
    }
    if (parser->n_names == parser->names_room && !grow_names(parser)) {
        parser->builder.failed = true;
        return -1;
    }
    const unsigned size = 2 * (unsigned)parser->names_room;
    unsigned at = hash % size;
    for (; parser->slots[at]; at = (at + 1) % size) {
        const struct rule_name *name = &parser->names[parser->slots[at] - 1];
        if (name->hash == hash && name->length == length && memcmp(name->at, begin, (size_t)length) == 0)
            return parser->slots[at] - 1;
    }
    parser->names[parser->n_names] =
        (struct rule_name){.at = begin, .length = length, .rule = build_rule(&parser->builder), .hash = hash};
    return (parser->slots[at] = ++parser->n_names) - 1;
}

// ---------------------------------------------------------------- characters

static uint32_t read_hexadecimal(struct parser *parser, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        const char c = peek(parser);
        if (!isxdigit((unsigned char)c)) {
            fail(parser, "expected %d hexadecimal digits", digits);
            return 0;
        }
        value = value * 16 + (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
        parser->at++;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        fail(parser, "U+%X is no character", (unsigned)value);
    return parser->failed ? 0 : value;
}

static uint32_t read_utf8(struct parser *parser)
{
    const char *at = parser->at;
    const int n = utf8_character(at, (size_t)(parser->end - at));
    if (n == 0) {
        fail(parser, "expected UTF-8");
        return 0;
    }
    parser->at += n;
    return (uint32_t)utf8_point(at, n);
}

// A character of a literal or a class, with its escape.
static uint32_t read_character(struct parser *parser)
{
    if (parser->at >= parser->end || *parser->at == '\n') {
        fail(parser, "the line ends within a literal or a class");
        return 0;
    }
    if (*parser->at != '\\')
        return read_utf8(parser);
    parser->at++;
    const char c = peek(parser);
    parser->at += parser->at < parser->end;
    switch (c) {
    case 'x':
        return read_hexadecimal(parser, 2);
    case 'u':
        return read_hexadecimal(parser, 4);
    case 'U':
        return read_hexadecimal(parser, 8);
    case 'n':
        return '\n';
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        return (uint32_t)c;
    default:
        fail(parser, "unknown escape: a backslash before '%c'", c);
        return 0;
    }
}

static void read_literal(struct parser *parser, struct sequence *sequence)
{
    parser->at++;
    while (!parser->failed && peek(parser) != '"') {
        const uint32_t c = read_character(parser);
        const struct character_range one = {c, c};
        // Of one character there is one way to write it: bytes, without a rule.
        if (c < 0x80) {
            build_characters(&parser->builder, sequence, &one, 1, false);
            continue;
        }
        unsigned char bytes[4];
        const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (int i = n - 1, rest = (int)c; i >= 0; i--, rest >>= 6)
            bytes[i] = (unsigned char)(i ? 0x80 | (rest & 0x3f) : (0xf00 >> n & 0xff) | rest);
        for (int i = 0; i < n; i++) {
            struct byte_set set = {0};
            set.bits[bytes[i] / 64] = UINT64_C(1) << bytes[i] % 64;
            sequence_add(&parser->builder, sequence, ELEMENT_BYTE, build_set(&parser->builder, &set));
        }
    }
    parser->at++;
}

static void read_class(struct parser *parser, struct sequence *sequence)
{
    struct character_range ranges[MAX_RANGES];
    int n = 0;
    parser->at++;
    const bool others = peek(parser) == '^';
    parser->at += others;
    while (!parser->failed && peek(parser) != ']') {
        const uint32_t first = read_character(parser);
        uint32_t last = first;
        if (peek(parser) == '-' && parser->at + 1 < parser->end && parser->at[1] != ']') {
            parser->at++;
            last = read_character(parser);
        }
        if (last < first)
            fail(parser, "a range of characters that ends before it begins");
        if (n == MAX_RANGES)
            fail(parser, "a class of more than %d ranges", MAX_RANGES);
        else
            ranges[n++] = (struct character_range){first, last};
    }
    parser->at++;
    if (!parser->failed)
        build_characters(&parser->builder, sequence, ranges, n, others);
}

// ---------------------------------------------------------------- rules

static int read_number(struct parser *parser)
{
    int value = 0;
    if (!isdigit((unsigned char)peek(parser)))
        fail(parser, "expected a number");
    for (; isdigit((unsigned char)peek(parser)); parser->at++)
        if ((value = value * 10 + (*parser->at - '0')) > MAX_TIMES) {
            fail(parser, "a part is repeated at most %d times", MAX_TIMES);
            return 0;
        }
    return value;
}

// The numbers behind a {, which has been read.
static void read_times(struct parser *parser, int *least, int *most)
{
    skip(parser, false);
    *least = *most = read_number(parser);
    skip(parser, false);
    if (peek(parser) == ',') {
        parser->at++;
        skip(parser, false);
        *most = peek(parser) == '}' ? -1 : read_number(parser);
        skip(parser, false);
    }
    if (peek(parser) != '}')
        fail(parser, "expected } after a number of times");
    parser->at++;
    if (*most >= 0 && *most < *least)
        fail(parser, "at most %d times is less than at least %d", *most, *least);
}

// Reads how often the part that begins at `from` in the sequence comes.
static void read_repetition(struct parser *parser, struct sequence *sequence, int from)
{
    int least = 1, most = 1;
    const char c = peek(parser);
    if (c == '*' || c == '+' || c == '?') {
        least = c == '+';
        most = c == '?' ? 1 : -1;
        parser->at++;
    } else if (c == '{') {
        parser->at++;
        read_times(parser, &least, &most);
    } else
        return;
    if (!parser->failed)
        build_repetition(&parser->builder, sequence, from, least, most);
}

// Reads parts in any order, behind their <.
static void read_bag(struct parser *parser, struct sequence *sequence)
{
    struct bag bag = {.most = -1};
    int room = 0, name = -1;
    skip(parser, true);
    if (peek(parser) == '{') {
        parser->at++;
        read_times(parser, &bag.least, &bag.most);
        skip(parser, true);
    }
    name = parser->failed ? -1 : find_name(parser);
    for (skip(parser, true); name >= 0 && !parser->failed && peek(parser) != '>'; skip(parser, true)) {
        const int part = find_name(parser);
        struct bag_part *grown = bag.parts;
        if (bag.n == room)
            grown = realloc(bag.parts, (size_t)(room = room ? 2 * room : 8) * sizeof *grown);
        bag.parts = grown ? grown : bag.parts;
        parser->builder.failed |= grown == NULL;
        if (part < 0 || parser->builder.failed)
            break;
        const bool must = peek(parser) == '!', again = peek(parser) == '*';
        parser->at += must || again;
        bag.parts[bag.n++] = (struct bag_part){parser->names[part].rule, must, again};
        bag.n_must += must;
    }
    if (bag.most >= 0 && bag.most < bag.n_must)
        fail(parser, "at most %d parts come, but %d must", bag.most, bag.n_must);
    parser->at++;
    if (parser->failed || name < 0) {
        free(bag.parts);
        return;
    }
    bag.separator = parser->names[name].rule;
    build_bag(&parser->builder, sequence, bag);
}

static void read_alternatives(struct parser *parser, int rule, bool nested);

static void read_part(struct parser *parser, struct sequence *sequence)
{
    const int from = sequence->n;
    const char c = *parser->at;
    if (c == '"') {
        read_literal(parser, sequence);
    } else if (c == '[') {
        read_class(parser, sequence);
    } else if (c == '.') {
        parser->at++;
        build_characters(&parser->builder, sequence, NULL, 0, true);
    } else if (c == '(') {
        const int rule = build_rule(&parser->builder);
        parser->at++;
        if (++parser->depth > GRAMMAR_MAX_DEPTH)
            fail(parser, "parentheses nest deeper than %d", GRAMMAR_MAX_DEPTH);
        else
            read_alternatives(parser, rule, true);
        parser->depth--;
        if (peek(parser) != ')')
            fail(parser, "expected )");
        parser->at++;
        sequence_add(&parser->builder, sequence, ELEMENT_CALL, rule);
    } else if (c == '<') {
        parser->at++;
        read_bag(parser, sequence);
    } else if (is_name(c)) {
        const int name = find_name(parser);
        if (name >= 0)
            sequence_add(&parser->builder, sequence, ELEMENT_CALL, parser->names[name].rule);
    } else {
        fail(parser, "expected a literal, a class, a rule's name, a group or <, found '%c'", c);
    }
    while (!parser->failed && !parser->builder.failed && strchr("*+?{", peek(parser)) && peek(parser))
        read_repetition(parser, sequence, from);
}

static void read_alternatives(struct parser *parser, int rule, bool nested)
{
    struct sequence sequence = {0};
    for (;;) {
        skip(parser, nested);
        const char c = peek(parser);
        if (parser->failed || parser->builder.failed || parser->at >= parser->end || c == '\n' || c == ')')
            break;
        if (c == '|') {
            parser->at++;
            build_alternative(&parser->builder, rule, &sequence);
            skip(parser, true);
        } else {
            read_part(parser, &sequence);
        }
    }
    build_alternative(&parser->builder, rule, &sequence);
}

static void read_rules(struct parser *parser)
{
    for (skip(parser, true); parser->at < parser->end && !parser->failed && !parser->builder.failed; skip(parser, true)) {
        const int name = find_name(parser);
        skip(parser, false);
        if (name < 0)
            return;
        if (parser->names[name].defined)
            fail(parser, "rule '%.*s' is there already", parser->names[name].length, parser->names[name].at);
        if (parser->end - parser->at < 3 || memcmp(parser->at, "::=", 3) != 0)
            fail(parser, "expected ::= after the name '%.*s'", parser->names[name].length, parser->names[name].at);
        if (parser->failed)
            return;
        parser->at += 3;
        skip(parser, true);
        parser->names[name].defined = true;
        read_alternatives(parser, parser->names[name].rule, false);
        if (peek(parser) == ')')
            fail(parser, "a ) without its (");
    }
}

static void check_names(struct parser *parser)
{
    int root = -1;
    for (int i = 0; i < parser->n_names && !parser->failed; i++) {
        const struct rule_name *name = &parser->names[i];
        if (!name->defined)
            fail(parser, "rule '%.*s', named in line %d, is nowhere", name->length, name->at, line_of(parser, name->at));
        if (name->length == 4 && memcmp(name->at, "root", 4) == 0)
            root = name->rule;
    }
    if (root < 0)
        fail(parser, "there is no rule 'root'");
    parser->builder.grammar->root = root;
}

static void check_loops(struct parser *parser)
{
    const int loop = build_end(&parser->builder); // groups belong to a rule with a name, which is met before them
    for (int i = 0; i < parser->n_names && loop >= 0; i++)
        if (parser->names[i].rule == loop) {
            parser->at = parser->names[i].at;
            fail(parser, "rule '%.*s' calls itself before it takes a character", parser->names[i].length, parser->names[i].at);
        }
    if (loop >= 0)
        fail(parser, "a rule calls itself before it takes a character");
}

struct grammar *grammar_parse(const char *text, size_t length, yalm_error *error)
{
    struct parser parser = {.text = text, .at = text, .end = text + length, .error = error};
    parser.builder.grammar = calloc(1, sizeof *parser.builder.grammar);
    if (parser.builder.grammar == NULL)
        parser.builder.failed = true;
    else if (length > GRAMMAR_MAX_TEXT)
        fail(&parser, "longer than %d bytes", GRAMMAR_MAX_TEXT);
    else
        read_rules(&parser);
    if (!parser.failed && !parser.builder.failed)
        check_names(&parser);
    if (!parser.failed && !parser.builder.failed)
        check_loops(&parser);
    if (parser.builder.failed) { // whatever else seemed wrong then
        parser.failed = false;
        fail(&parser, "more than %d parts, with short repetitions written out, or out of memory", GRAMMAR_MAX_ELEMENTS);
    }
    free(parser.names);
    free(parser.slots);
    if (!parser.failed)
        return parser.builder.grammar;
    grammar_free(parser.builder.grammar);
    return NULL;
}

void grammar_free(struct grammar *grammar)
{
    if (grammar == NULL)
        return;
    for (int i = 0; i < grammar->n_rules; i++)
        free(grammar->rules[i].alternatives);
    free(grammar->rules);
    free(grammar->elements);
    free(grammar->sets);
    for (int i = 0; i < grammar->n_bags; i++) {
        free(grammar->bags[i].parts);
        free(grammar->bags[i].ranks);
        free(grammar->bags[i].musts);
    }
    free(grammar->branches);
    free(grammar->ways);
    free(grammar->bags);
    free(grammar->counts);
    free(grammar);
}
