// Documents of one type: strings, numbers, arrays, objects.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/pattern.h"
#include "grammar/schema_parts.h"

// ---------------------------------------------------------------- numbers and strings

static yalm_status read_size(struct schema_writer *w, const cJSON *schema, const char *key, int *value, yalm_error *error)
{
    const cJSON *number = schema_member(schema, key);
    if (number == NULL)
        return YALM_OK;
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble <= 100000) ||
        number->valuedouble != floor(number->valuedouble))
        return schema_refuse(w, error, "'%s': expected an integer from 0 to 100000", key);
    *value = (int)number->valuedouble;
    return YALM_OK;
}

static yalm_status write_string(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *pattern = schema_member(schema, "pattern"), *format = schema_member(schema, "format");
    int least = 0, most = -1;
    yalm_status status = read_size(w, schema, "minLength", &least, error);
    if (status == YALM_OK)
        status = read_size(w, schema, "maxLength", &most, error);
    if (status != YALM_OK)
        return status;
    if (most >= 0 && most < least)
        return schema_refuse(w, error, "'maxLength' is less than 'minLength'");
    const bool sized = least > 0 || most >= 0;
    if (pattern && (sized || !cJSON_IsString(pattern)))
        return schema_refuse(w, error, "'pattern': expected a string, and no minLength or maxLength beside it");
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
            return schema_refuse(w, error, "%.150s", wrong.text);
    } else if (most >= 0) {
        fprintf(w->out, "char{%d,%d}", least, most);
    } else {
        fprintf(w->out, "char{%d,}", least);
    }
    fputs(" \"\\\"\"\n", w->out);
    return YALM_OK;
}

// Writes numbers of n digits from low to high, whose first digits are the same, digit by digit.
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

// Writes alternatives for low <= number <= high, neither negative.
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
    const cJSON *number = schema_member(schema, key);
    if (number == NULL)
        return YALM_OK;
    if (!cJSON_IsNumber(number) || !(fabs(number->valuedouble) <= 999999999999999))
        return schema_refuse(w, error, "'%s': expected a number of at most 15 digits", key);
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
        return schema_refuse(w, error, "no integer is from %.0f to %.0f", low, high);
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
        if (schema_member(schema, *key))
            return schema_refuse(w, error, "'%s' of numbers that are no integers is not read here", *key);
    fprintf(w->out, "r%d ::= number\n", rule);
    return YALM_OK;
}

// ---------------------------------------------------------------- arrays and objects

static yalm_status write_array(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *items = schema_member(schema, "items"), *first = schema_member(schema, "prefixItems"), *each;
    if (cJSON_IsArray(items)) { // its name in older drafts
        first = items;
        items = NULL;
    }
    int least = 0, most = -1, item = -1, parts[64], n = 0;
    yalm_status status = read_size(w, schema, "minItems", &least, error);
    if (status == YALM_OK)
        status = read_size(w, schema, "maxItems", &most, error);
    if (status != YALM_OK)
        return status;
    cJSON_ArrayForEach(each, first)
    {
        if (n == 64)
            return schema_refuse(w, error, "'prefixItems': more than 64");
        if ((status = schema_add_part(w, each, "prefixItems", &parts[n++], error)) != YALM_OK)
            return status;
    }
    if (most >= 0 && most < least)
        return schema_refuse(w, error, "'maxItems' is less than 'minItems'");
    if (n && ((least && least != n) || (most >= 0 && most != n)))
        return schema_refuse(w, error, "'prefixItems' with another number of items than theirs is not read here");
    if (n) {
        fprintf(w->out, "r%d ::= \"[\" ws", rule);
        for (int i = 0; i < n; i++)
            fprintf(w->out, "%s r%d", i ? " \",\" ws" : "", parts[i]);
        fputs(" ws \"]\"\n", w->out);
        return YALM_OK;
    }
    char name[24] = "value";
    if (items && (status = schema_add_part(w, items, "items", &item, error)) != YALM_OK)
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
    cJSON_ArrayForEach(name, schema_member(schema, "required"))
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
    schema_write_literal(w->out, json ? json : "");
    fprintf(w->out, " \":\" ws r%d", value);
    free(json);
    cJSON_Delete(string);
}

// Writes objects with any keys, and values of one schema.
static yalm_status write_map(struct schema_writer *w, const cJSON *values, int rule, yalm_error *error)
{
    int value = -1;
    char name[24] = "value";
    if (cJSON_IsObject(values)) {
        const yalm_status status = schema_add_part(w, values, "additionalProperties", &value, error);
        if (status != YALM_OK)
            return status;
        snprintf(name, sizeof name, "r%d", value);
    }
    fprintf(w->out, "r%d ::= \"{\" ws (string \":\" ws %s (\",\" ws string \":\" ws %s)*)? ws \"}\"\n", rule, name, name);
    return YALM_OK;
}

// Writes the keys in the schema's order. rA_i are the pairs from the i-th on where none has come; rB_i where one has, and a
// comma is due.
static yalm_status write_object(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error)
{
    const cJSON *properties = schema_member(schema, "properties"), *others = schema_member(schema, "additionalProperties"),
                *each;
    const int n = cJSON_GetArraySize(properties);
    if (n == 0 && cJSON_GetArraySize(schema_member(schema, "required")) == 0) {
        if (!cJSON_IsFalse(others))
            return write_map(w, others, rule, error);
        fprintf(w->out, "r%d ::= \"{\" ws \"}\"\n", rule);
        return YALM_OK;
    }
    cJSON_ArrayForEach(each, schema_member(schema, "required"))
    {
        if (!cJSON_IsString(each) || schema_member(properties, each->valuestring) == NULL)
            return schema_refuse(w, error, "'required' names what is not among the 'properties'");
    }
    int *values = malloc(((size_t)n + 1) * sizeof *values), i = 0;
    if (values == NULL)
        return schema_refuse(w, error, "out of memory");
    cJSON_ArrayForEach(each, properties)
    {
        const yalm_status status = schema_add_part(w, each, each->string, &values[i++], error);
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

// ---------------------------------------------------------------- by name

yalm_status schema_write_type(struct schema_writer *w, const cJSON *schema, const char *type, int rule, yalm_error *error)
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
        return schema_refuse(w, error, "'type': found '%.40s'", type);
    fprintf(w->out, "r%d ::= %s\n", rule, type);
    return YALM_OK;
}
