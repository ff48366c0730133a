// See schema.h.
#include "grammar/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/pattern.h"

// What all documents are made of. Blanks are bounded, so that no model loses itself in them.
static const char common_rules[] =
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,24}\n"
    "hex ::= [0-9a-fA-F]\n"
    "char ::= [^\"\\\\\\x00-\\x1f\\x7f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9abcefABCEF] hex hex hex | [dD] [0-7] hex "
    "hex))\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14})\n"
    "number ::= integer (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "date ::= [0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? "
    "(\"Z\" | [+-] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])\n"
    "uuid ::= hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}\n";

struct schema_writer {
    FILE *out;
    char *text;
    size_t length;
    int n_rules, depth;
    const cJSON *root; // of the schema that is being added: what # means
    struct known {
        const cJSON *schema;
        int rule;
    } * known; // (n_known) schemas that a $ref leads to, and their rules
    int n_known;
    char path[256]; // where we are, for messages
};

__attribute__((format(printf, 3, 4))) static yalm_status refuse(struct schema_writer *w, yalm_error *error, const char *format,
                                                                ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    *error = (yalm_error){.status = YALM_USAGE};
    snprintf(error->text, sizeof error->text, "schema%s%s: %s", *w->path ? ", at " : "", w->path, what);
    return YALM_USAGE;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static yalm_status write_schema(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error);

// A new rule for a schema that stands at `key` of the one we are in.
static yalm_status add_schema(struct schema_writer *w, const cJSON *schema, const char *key, int *rule, yalm_error *error)
{
    const size_t length = strlen(w->path);
    if (w->n_rules >= SCHEMA_MAX_RULES || w->depth >= SCHEMA_MAX_DEPTH)
        return refuse(w, error, "more than %d parts, or deeper than %d", SCHEMA_MAX_RULES, SCHEMA_MAX_DEPTH);
    snprintf(w->path + length, sizeof w->path - length, "/%s", key);
    *rule = w->n_rules++;
    w->depth++;
    // The rule's own text comes after those of its parts: a stream each would be needed to nest them.
    const yalm_status status = write_schema(w, schema, *rule, error);
    w->depth--;
    if (status == YALM_OK)
        w->path[length] = 0;
    return status;
}

// A literal that spells the text.
static void write_literal(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

// ---------------------------------------------------------------- numbers and strings

static yalm_status read_size(struct schema_writer *w, const cJSON *schema, const char *key, int *value, yalm_error *error)
{
    const cJSON *number = member(schema, key);
    if (number == NULL)
        return YALM_OK;
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble <= 100000) ||
        number->valuedouble != floor(number->valuedouble))
        return refuse(w, error, "'%s': expected an integer from 0 to 100000", key);
    *value = (int)number->valuedouble;
    return YALM_OK;
}

static yalm_status write_string(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *pattern = member(schema, "pattern"), *format = member(schema, "format");
    int least = 0, most = -1;
    yalm_status status = read_size(w, schema, "minLength", &least, error);
    if (status == YALM_OK)
        status = read_size(w, schema, "maxLength", &most, error);
    if (status != YALM_OK)
        return status;
    if (most >= 0 && most < least)
        return refuse(w, error, "'maxLength' is less than 'minLength'");
    const bool sized = least > 0 || most >= 0;
    if (pattern && (sized || !cJSON_IsString(pattern)))
        return refuse(w, error, "'pattern': expected a string, and no minLength or maxLength beside it");
    fprintf(w->out, "r%d ::= ", rule);
    static const char *const formats[] = {"date", "time", "uuid"};
    for (size_t i = 0; cJSON_IsString(format) && !pattern && !sized && i < 3; i++)
        if (strcmp(format->valuestring, formats[i]) == 0) {
            fprintf(w->out, "\"\\\"\" %s \"\\\"\"\n", formats[i]);
            return YALM_OK;
        }
    if (cJSON_IsString(format) && !pattern && !sized && strcmp(format->valuestring, "date-time") == 0) {
        fputs("\"\\\"\" date \"T\" time \"\\\"\"\n", w->out);
        return YALM_OK;
    }
    fputs("\"\\\"\" ", w->out);
    if (pattern) {
        yalm_error wrong;
        if (pattern_write(w->out, pattern->valuestring, &wrong) != YALM_OK)
            return refuse(w, error, "%.150s", wrong.text);
    } else if (most >= 0) {
        fprintf(w->out, "char{%d,%d}", least, most);
    } else {
        fprintf(w->out, "char{%d,}", least);
    }
    fputs(" \"\\\"\"\n", w->out);
    return YALM_OK;
}

// Numbers of n digits from low to high, whose first digits are the same: digit by digit.
static void write_digits(FILE *out, const char *low, const char *high, size_t n)
{
    if (n == 0)
        return;
    if (strspn(low, "0") >= n && strspn(high, "9") >= n) {
        fprintf(out, "[0-9]{%zu} ", n);
        return;
    }
    if (low[0] == high[0]) {
        fprintf(out, "\"%c\" ", low[0]);
        write_digits(out, low + 1, high + 1, n - 1);
        return;
    }
    char nines[24], zeros[24];
    memset(nines, '9', n);
    memset(zeros, '0', n);
    fprintf(out, "(\"%c\" ", low[0]);
    write_digits(out, low + 1, nines, n - 1);
    if (high[0] - low[0] > 1) {
        fprintf(out, "| [%c-%c] ", low[0] + 1, high[0] - 1);
        if (n > 1)
            fprintf(out, "[0-9]{%zu} ", n - 1);
    }
    fprintf(out, "| \"%c\" ", high[0]);
    write_digits(out, zeros, high + 1, n - 1);
    fputs(") ", out);
}

// Alternatives for low <= number <= high, neither negative.
static void write_range(FILE *out, long long low, long long high)
{
    const char *bar = "";
    for (long long first = 0, last = 9; first <= high; first = last + 1, last = last * 10 + 9) {
        const long long from = low > first ? low : first, to = high < last ? high : last;
        if (from > to)
            continue;
        char a[24], b[24];
        const int n = snprintf(a, sizeof a, "%lld", from);
        snprintf(b, sizeof b, "%lld", to);
        fputs(bar, out);
        write_digits(out, a, b, (size_t)n);
        bar = "| ";
    }
}

static yalm_status read_bound(struct schema_writer *w, const cJSON *schema, const char *key, double step, double *bound,
                              yalm_error *error)
{
    const cJSON *number = member(schema, key);
    if (number == NULL)
        return YALM_OK;
    if (!cJSON_IsNumber(number) || !(fabs(number->valuedouble) <= 999999999999999))
        return refuse(w, error, "'%s': expected a number of at most 15 digits", key);
    double value = step > 0 ? ceil(number->valuedouble) : floor(number->valuedouble);
    if (strncmp(key, "exclusive", 9) == 0 && value == number->valuedouble)
        value += step;
    if ((value - *bound) * step > 0)
        *bound = value;
    return YALM_OK;
}

static yalm_status write_integer(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    double low = -999999999999999, high = 999999999999999;
    yalm_status status = read_bound(w, schema, "minimum", 1, &low, error);
    if (status == YALM_OK)
        status = read_bound(w, schema, "exclusiveMinimum", 1, &low, error);
    if (status == YALM_OK)
        status = read_bound(w, schema, "maximum", -1, &high, error);
    if (status == YALM_OK)
        status = read_bound(w, schema, "exclusiveMaximum", -1, &high, error);
    if (status != YALM_OK)
        return status;
    if (low > high)
        return refuse(w, error, "no integer is from %.0f to %.0f", low, high);
    if (low == -999999999999999 && high == 999999999999999) {
        fprintf(w->out, "r%d ::= integer\n", rule);
        return YALM_OK;
    }
    fprintf(w->out, "r%d ::= ", rule);
    if (low < 0) {
        fputs("\"-\" (", w->out);
        write_range(w->out, high < 0 ? (long long)-high : 1, (long long)-low);
        fputs(")", w->out);
    }
    if (high >= 0) {
        fputs(low < 0 ? " | " : "", w->out);
        write_range(w->out, low > 0 ? (long long)low : 0, (long long)high);
    }
    fputs("\n", w->out);
    return YALM_OK;
}

static yalm_status write_number(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    for (const char *const *key = (const char *const[]){"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", NULL};
         *key; key++)
        if (member(schema, *key))
            return refuse(w, error, "'%s' of numbers that are no integers is not read here", *key);
    fprintf(w->out, "r%d ::= number\n", rule);
    return YALM_OK;
}

// ---------------------------------------------------------------- arrays and objects

static yalm_status write_array(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *items = member(schema, "items"), *first = member(schema, "prefixItems"), *each;
    int least = 0, most = -1, item = -1, parts[64], n = 0;
    yalm_status status = read_size(w, schema, "minItems", &least, error);
    if (status == YALM_OK)
        status = read_size(w, schema, "maxItems", &most, error);
    if (status != YALM_OK)
        return status;
    cJSON_ArrayForEach(each, first)
    {
        if (n == 64)
            return refuse(w, error, "'prefixItems': more than 64");
        if ((status = add_schema(w, each, "prefixItems", &parts[n++], error)) != YALM_OK)
            return status;
    }
    if (most >= 0 && most < least)
        return refuse(w, error, "'maxItems' is less than 'minItems'");
    if (n && ((least && least != n) || (most >= 0 && most != n)))
        return refuse(w, error, "'prefixItems' with another number of items than theirs is not read here");
    if (n) {
        fprintf(w->out, "r%d ::= \"[\" ws", rule);
        for (int i = 0; i < n; i++)
            fprintf(w->out, "%s r%d", i ? " \",\" ws" : "", parts[i]);
        fputs(" ws \"]\"\n", w->out);
        return YALM_OK;
    }
    char name[24] = "value";
    if (items && (status = add_schema(w, items, "items", &item, error)) != YALM_OK)
        return status;
    if (items)
        snprintf(name, sizeof name, "r%d", item);
    fprintf(w->out, "r%d ::= \"[\" ws ", rule);
    if (most != 0) {
        fprintf(w->out, least ? "%s (\",\" ws %s){%d," : "(%s (\",\" ws %s){%d,", name, name, least ? least - 1 : 0);
        if (most > 0)
            fprintf(w->out, "%d", most - 1);
        fputs(least ? "} " : "})? ", w->out);
    }
    fputs("ws \"]\"\n", w->out);
    return YALM_OK;
}

static bool is_required(const cJSON *schema, const char *key)
{
    const cJSON *name;
    cJSON_ArrayForEach(name, member(schema, "required"))
    {
        if (cJSON_IsString(name) && strcmp(name->valuestring, key) == 0)
            return true;
    }
    return false;
}

// "key": value
static void write_pair(struct schema_writer *w, const char *key, int value)
{
    cJSON *string = cJSON_CreateString(key);
    char *json = string ? cJSON_PrintUnformatted(string) : NULL;
    write_literal(w->out, json ? json : "");
    fprintf(w->out, " \":\" ws r%d", value);
    free(json);
    cJSON_Delete(string);
}

// Objects of any keys, with values of one schema.
static yalm_status write_map(struct schema_writer *w, const cJSON *values, int rule, yalm_error *error)
{
    int value = -1;
    char name[24] = "value";
    if (cJSON_IsObject(values)) {
        const yalm_status status = add_schema(w, values, "additionalProperties", &value, error);
        if (status != YALM_OK)
            return status;
        snprintf(name, sizeof name, "r%d", value);
    }
    fprintf(w->out, "r%d ::= \"{\" ws (string \":\" ws %s (\",\" ws string \":\" ws %s)*)? ws \"}\"\n", rule, name, name);
    return YALM_OK;
}

// The keys in the schema's order. rA_i are the pairs from the i-th on where none has come, rB_i where one has, and a comma is due.
static yalm_status write_object(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *properties = member(schema, "properties"), *others = member(schema, "additionalProperties"), *each;
    const int n = cJSON_GetArraySize(properties);
    if (n == 0 && cJSON_GetArraySize(member(schema, "required")) == 0) {
        if (!cJSON_IsFalse(others))
            return write_map(w, others, rule, error);
        fprintf(w->out, "r%d ::= \"{\" ws \"}\"\n", rule);
        return YALM_OK;
    }
    cJSON_ArrayForEach(each, member(schema, "required"))
    {
        if (!cJSON_IsString(each) || member(properties, each->valuestring) == NULL)
            return refuse(w, error, "'required' names what is not among the 'properties'");
    }
    int *values = malloc(((size_t)n + 1) * sizeof *values), i = 0;
    if (values == NULL)
        return refuse(w, error, "out of memory");
    cJSON_ArrayForEach(each, properties)
    {
        const yalm_status status = add_schema(w, each, each->string, &values[i++], error);
        if (status != YALM_OK) {
            free(values);
            return status;
        }
    }
    fprintf(w->out, "r%d ::= \"{\" ws r%d-a0 ws \"}\"\n", rule, rule);
    i = 0;
    cJSON_ArrayForEach(each, properties)
    {
        const bool optional = !is_required(schema, each->string);
        fprintf(w->out, "r%d-a%d ::= ", rule, i);
        write_pair(w, each->string, values[i]);
        fprintf(w->out, " r%d-b%d", rule, i + 1);
        if (optional)
            fprintf(w->out, " | r%d-a%d", rule, i + 1);
        fprintf(w->out, "\nr%d-b%d ::= \",\" ws ", rule, i);
        write_pair(w, each->string, values[i]);
        fprintf(w->out, " r%d-b%d", rule, i + 1);
        if (optional)
            fprintf(w->out, " | r%d-b%d", rule, i + 1);
        fputc('\n', w->out);
        i++;
    }
    fprintf(w->out, "r%d-a%d ::= \"\"\nr%d-b%d ::= \"\"\n", rule, n, rule, n);
    free(values);
    return YALM_OK;
}

// ---------------------------------------------------------------- schemas

static yalm_status write_enum(struct schema_writer *w, const cJSON *values, bool single, int rule, yalm_error *error)
{
    const cJSON *value = single ? values : values->child;
    if (value == NULL || (!single && !cJSON_IsArray(values)))
        return refuse(w, error, "'enum': expected a list of values");
    fprintf(w->out, "r%d ::= ", rule);
    for (const char *bar = ""; value; value = single ? NULL : value->next, bar = " | ") {
        char *json = cJSON_PrintUnformatted(value);
        fputs(bar, w->out);
        write_literal(w->out, json ? json : "");
        free(json);
    }
    fputc('\n', w->out);
    return YALM_OK;
}

static yalm_status write_any_of(struct schema_writer *w, const cJSON *list, const char *key, int rule, yalm_error *error)
{
    const int n = cJSON_GetArraySize(list);
    int *rules = cJSON_IsArray(list) && n ? malloc((size_t)n * sizeof *rules) : NULL, i = 0;
    if (rules == NULL)
        return refuse(w, error, "'%s': expected a list of schemas", key);
    const cJSON *each;
    cJSON_ArrayForEach(each, list)
    {
        const yalm_status status = add_schema(w, each, key, &rules[i++], error);
        if (status != YALM_OK) {
            free(rules);
            return status;
        }
    }
    fprintf(w->out, "r%d ::= ", rule);
    for (i = 0; i < n; i++)
        fprintf(w->out, "%sr%d", i ? " | " : "", rules[i]);
    fputc('\n', w->out);
    free(rules);
    return YALM_OK;
}

// What a pointer such as #/$defs/node leads to.
static const cJSON *find_reference(const struct schema_writer *w, const char *reference)
{
    const cJSON *at = w->root;
    if (*reference++ != '#')
        return NULL;
    while (at && *reference == '/') {
        char key[256];
        size_t n = 0;
        for (reference++; *reference && *reference != '/' && n + 1 < sizeof key; reference++) {
            char c = *reference;
            if (c == '~' && (reference[1] == '0' || reference[1] == '1'))
                c = *++reference == '0' ? '~' : '/';
            key[n++] = c;
        }
        key[n] = 0;
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key)) : member(at, key);
    }
    return *reference ? NULL : at;
}

static yalm_status write_reference(struct schema_writer *w, const cJSON *reference, int rule, yalm_error *error)
{
    const cJSON *schema = cJSON_IsString(reference) ? find_reference(w, reference->valuestring) : NULL;
    if (schema == NULL)
        return refuse(w, error, "'$ref': expected a pointer to a part of the schema, as in #/$defs/name");
    for (int i = 0; i < w->n_known; i++)
        if (w->known[i].schema == schema) {
            fprintf(w->out, "r%d ::= r%d\n", rule, w->known[i].rule);
            return YALM_OK;
        }
    struct known *grown = realloc(w->known, ((size_t)w->n_known + 1) * sizeof *grown);
    if (grown == NULL)
        return refuse(w, error, "out of memory");
    w->known = grown;
    grown[w->n_known++] = (struct known){schema, rule}; // before its parts are read, which may lead back to it
    return write_schema(w, schema, rule, error);
}

static yalm_status write_type(struct schema_writer *w, const cJSON *schema, const char *type, int rule, yalm_error *error)
{
    if (strcmp(type, "object") == 0)
        return write_object(w, schema, rule, error);
    if (strcmp(type, "array") == 0)
        return write_array(w, schema, rule, error);
    if (strcmp(type, "string") == 0)
        return write_string(w, schema, rule, error);
    if (strcmp(type, "integer") == 0)
        return write_integer(w, schema, rule, error);
    if (strcmp(type, "number") == 0)
        return write_number(w, schema, rule, error);
    if (strcmp(type, "boolean") != 0 && strcmp(type, "null") != 0)
        return refuse(w, error, "'type': found '%.40s'", type);
    fprintf(w->out, "r%d ::= %s\n", rule, type);
    return YALM_OK;
}

static yalm_status write_types(struct schema_writer *w, const cJSON *schema, const cJSON *types, int rule, yalm_error *error)
{
    int rules[8], n = 0;
    const cJSON *type;
    cJSON_ArrayForEach(type, types)
    {
        if (!cJSON_IsString(type) || n == 8)
            return refuse(w, error, "'type': expected a name, or a list of at most 8");
        rules[n] = w->n_rules++;
        const yalm_status status = write_type(w, schema, type->valuestring, rules[n++], error);
        if (status != YALM_OK)
            return status;
    }
    fprintf(w->out, "r%d ::= ", rule);
    for (int i = 0; i < n; i++)
        fprintf(w->out, "%sr%d", i ? " | " : "", rules[i]);
    fputc('\n', w->out);
    return n ? YALM_OK : refuse(w, error, "'type': an empty list");
}

// A keyword that is neither read nor a mere annotation would let documents pass that it forbids.
static yalm_status check_keywords(struct schema_writer *w, const cJSON *schema, yalm_error *error)
{
    static const char *const known[] = {"type",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "prefixItems",
                                        "minItems",
                                        "maxItems",
                                        "enum",
                                        "const",
                                        "anyOf",
                                        "oneOf",
                                        "allOf",
                                        "$ref",
                                        "pattern",
                                        "minLength",
                                        "maxLength",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "$defs",
                                        "definitions",
                                        "$schema",
                                        "$id",
                                        "$comment",
                                        "title",
                                        "description",
                                        "default",
                                        "examples",
                                        "deprecated",
                                        "readOnly",
                                        "writeOnly",
                                        "nullable",
                                        "discriminator",
                                        "strict",
                                        "contentEncoding",
                                        "contentMediaType"};
    const cJSON *each;
    cJSON_ArrayForEach(each, schema)
    {
        bool found = strncmp(each->string, "x-", 2) == 0 || (strcmp(each->string, "uniqueItems") == 0 && cJSON_IsFalse(each));
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
            found = strcmp(each->string, known[i]) == 0;
        if (!found)
            return refuse(w, error, "the keyword '%.60s' is not read here", each->string);
    }
    return YALM_OK;
}

// The type that the other keywords tell of.
static const char *implied_type(const cJSON *schema)
{
    if (member(schema, "properties") || member(schema, "additionalProperties") || member(schema, "required"))
        return "object";
    if (member(schema, "items") || member(schema, "prefixItems") || member(schema, "minItems") || member(schema, "maxItems"))
        return "array";
    if (member(schema, "pattern") || member(schema, "minLength") || member(schema, "maxLength"))
        return "string";
    if (member(schema, "minimum") || member(schema, "maximum"))
        return "number";
    return NULL;
}

static yalm_status write_schema(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    if (cJSON_IsTrue(schema)) {
        fprintf(w->out, "r%d ::= value\n", rule);
        return YALM_OK;
    }
    if (!cJSON_IsObject(schema))
        return refuse(w, error, "expected a schema: an object, or true");
    const yalm_status status = check_keywords(w, schema, error);
    if (status != YALM_OK)
        return status;
    const cJSON *type = member(schema, "type"), *all = member(schema, "allOf");
    const char *name = cJSON_IsString(type) ? type->valuestring : type ? NULL : implied_type(schema);
    if (member(schema, "$ref"))
        return write_reference(w, member(schema, "$ref"), rule, error);
    if (member(schema, "const"))
        return write_enum(w, member(schema, "const"), true, rule, error);
    if (member(schema, "enum"))
        return write_enum(w, member(schema, "enum"), false, rule, error);
    if ((member(schema, "anyOf") || member(schema, "oneOf") || all) && implied_type(schema))
        return refuse(w, error, "anyOf, oneOf or allOf beside other conditions is not read here");
    if (member(schema, "anyOf"))
        return write_any_of(w, member(schema, "anyOf"), "anyOf", rule, error);
    if (member(schema, "oneOf"))
        return write_any_of(w, member(schema, "oneOf"), "oneOf", rule, error);
    if (all && cJSON_GetArraySize(all) != 1)
        return refuse(w, error, "'allOf' of more than one schema is not read here");
    if (all)
        return write_schema(w, all->child, rule, error);
    if (name)
        return write_type(w, schema, name, rule, error);
    if (type)
        return write_types(w, schema, type, rule, error);
    fprintf(w->out, "r%d ::= value\n", rule);
    return YALM_OK;
}

// ---------------------------------------------------------------- the whole

struct schema_writer *schema_writer_open(yalm_error *error)
{
    struct schema_writer *w = calloc(1, sizeof *w);
    if (w)
        w->out = open_memstream(&w->text, &w->length);
    if (w && w->out) {
        fputs(common_rules, w->out);
        return w;
    }
    free(w);
    *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a schema"};
    return NULL;
}

yalm_status schema_writer_add(struct schema_writer *w, const cJSON *schema, int *rule, yalm_error *error)
{
    w->root = schema;
    w->n_known = w->depth = 0;
    w->path[0] = 0;
    *rule = w->n_rules++;
    if (schema == NULL) {
        fprintf(w->out, "r%d ::= object\n", *rule);
        return YALM_OK;
    }
    struct known *known = malloc(sizeof *known);
    if (known == NULL)
        return refuse(w, error, "out of memory");
    free(w->known);
    *known = (struct known){schema, *rule}; // # leads to it
    w->known = known;
    w->n_known = 1;
    return write_schema(w, schema, *rule, error);
}

yalm_status schema_writer_end(struct schema_writer *w, const char *root, char **text, size_t *length, yalm_error *error)
{
    fprintf(w->out, "root ::= %s\n", root);
    const bool written = !ferror(w->out) && fclose(w->out) == 0;
    w->out = NULL;
    *text = w->text;
    *length = w->length;
    if (written)
        w->text = NULL;
    else
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a schema"};
    schema_writer_close(w);
    return written ? YALM_OK : YALM_NO_MEMORY;
}

void schema_writer_close(struct schema_writer *w)
{
    if (w == NULL)
        return;
    if (w->out)
        fclose(w->out);
    free(w->text);
    free(w->known);
    free(w);
}

yalm_status schema_to_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error)
{
    struct schema_writer *w = schema_writer_open(error);
    int rule;
    if (w == NULL)
        return error->status;
    const yalm_status status = schema_writer_add(w, schema, &rule, error);
    if (status != YALM_OK) {
        schema_writer_close(w);
        return status;
    }
    char root[24];
    snprintf(root, sizeof root, "r%d", rule);
    return schema_writer_end(w, root, text, length, error);
}
