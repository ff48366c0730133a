// See schema.h: a schema as a whole, and references to other schemas. schema_types.c has the documents of each type.
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"

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

static yalm_status write_enum(struct schema_writer *w, const cJSON *values, bool single, int rule, yalm_error *error)
{
    const cJSON *value = single ? values : values->child;
    if (value == NULL || (!single && !cJSON_IsArray(values)))
        return schema_refuse(w, error, "'enum': expected a list of values");
    fprintf(w->out, "r%d ::= ", rule);
    for (const char *bar = ""; value; value = single ? NULL : value->next, bar = " | ") {
        char *json = cJSON_PrintUnformatted(value);
        fputs(bar, w->out);
        schema_write_literal(w->out, json ? json : "");
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
        return schema_refuse(w, error, "'%s': expected a list of schemas", key);
    const cJSON *each;
    cJSON_ArrayForEach(each, list)
    {
        const yalm_status status = schema_add_part(w, each, key, &rules[i++], error);
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

// Finds the schema that a pointer such as #/$defs/node names.
static yalm_status write_schema(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error);

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
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key)) : schema_member(at, key);
    }
    return *reference ? NULL : at;
}

static yalm_status write_reference(struct schema_writer *w, const cJSON *reference, int rule, yalm_error *error)
{
    const cJSON *schema = cJSON_IsString(reference) ? find_reference(w, reference->valuestring) : NULL;
    if (schema == NULL)
        return schema_refuse(w, error, "'$ref': expected a pointer to a part of the schema, as in #/$defs/name");
    for (int i = 0; i < w->n_known; i++)
        if (w->known[i].schema == schema) {
            fprintf(w->out, "r%d ::= r%d\n", rule, w->known[i].rule);
            return YALM_OK;
        }
    struct known *grown = realloc(w->known, ((size_t)w->n_known + 1) * sizeof *grown);
    if (grown == NULL)
        return schema_refuse(w, error, "out of memory");
    w->known = grown;
    grown[w->n_known++] = (struct known){schema, rule}; // before its parts are read, which may lead back to it
    return write_schema(w, schema, rule, error);
}

static yalm_status write_types(struct schema_writer *w, const cJSON *schema, const cJSON *types, int rule, yalm_error *error)
{
    int rules[8], n = 0;
    const cJSON *type;
    cJSON_ArrayForEach(type, types)
    {
        if (!cJSON_IsString(type) || n == 8)
            return schema_refuse(w, error, "'type': expected a name, or a list of at most 8");
        rules[n] = w->n_rules++;
        const yalm_status status = schema_write_type(w, schema, type->valuestring, rules[n++], error);
        if (status != YALM_OK)
            return status;
    }
    fprintf(w->out, "r%d ::= ", rule);
    for (int i = 0; i < n; i++)
        fprintf(w->out, "%sr%d", i ? " | " : "", rules[i]);
    fputc('\n', w->out);
    return n ? YALM_OK : schema_refuse(w, error, "'type': an empty list");
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
            return schema_refuse(w, error, "the keyword '%.60s' is not read here", each->string);
    }
    return YALM_OK;
}

// Infers the type from the other keywords.
static const char *implied_type(const cJSON *schema)
{
    if (schema_member(schema, "properties") || schema_member(schema, "additionalProperties") ||
        schema_member(schema, "required"))
        return "object";
    if (schema_member(schema, "items") || schema_member(schema, "prefixItems") || schema_member(schema, "minItems") ||
        schema_member(schema, "maxItems"))
        return "array";
    if (schema_member(schema, "pattern") || schema_member(schema, "minLength") || schema_member(schema, "maxLength"))
        return "string";
    if (schema_member(schema, "minimum") || schema_member(schema, "maximum"))
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
        return schema_refuse(w, error, "expected a schema: an object, or true");
    const yalm_status status = check_keywords(w, schema, error);
    if (status != YALM_OK)
        return status;
    const cJSON *type = schema_member(schema, "type"), *all = schema_member(schema, "allOf");
    const char *name = cJSON_IsString(type) ? type->valuestring : type ? NULL : implied_type(schema);
    if (schema_member(schema, "$ref"))
        return write_reference(w, schema_member(schema, "$ref"), rule, error);
    if (schema_member(schema, "const"))
        return write_enum(w, schema_member(schema, "const"), true, rule, error);
    if (schema_member(schema, "enum"))
        return write_enum(w, schema_member(schema, "enum"), false, rule, error);
    if ((schema_member(schema, "anyOf") || schema_member(schema, "oneOf") || all) && implied_type(schema))
        return schema_refuse(w, error, "anyOf, oneOf or allOf beside other conditions is not read here");
    if (schema_member(schema, "anyOf"))
        return write_any_of(w, schema_member(schema, "anyOf"), "anyOf", rule, error);
    if (schema_member(schema, "oneOf"))
        return write_any_of(w, schema_member(schema, "oneOf"), "oneOf", rule, error);
    if (all && cJSON_GetArraySize(all) != 1)
        return schema_refuse(w, error, "'allOf' of more than one schema is not read here");
    if (all)
        return write_schema(w, all->child, rule, error);
    if (name)
        return schema_write_type(w, schema, name, rule, error);
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
        w->write = write_schema;
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
        return schema_refuse(w, error, "out of memory");
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
