// A JSON schema as a grammar, in the notation of grammar.h: each text that it spells is a JSON document that the schema takes.
//
// For any value it reads type (one or several), enum, const, anyOf, oneOf (as anyOf), allOf of one, and $ref within the
// document, also recursive. Of objects: properties, required, additionalProperties. Of arrays: items, prefixItems, minItems,
// maxItems. Of strings: pattern, minLength, maxLength, format (date, time, date-time, uuid). Of integers: minimum, maximum and
// their exclusive forms. Annotations are ignored. All other keywords are refused by name: a document that they forbid must not
// come. Properties come in the order of the schema; those that it does not name do not come.
#pragma once
#include <cjson/cJSON.h>

#include "yalm.h"

enum { SCHEMA_MAX_DEPTH = 64, SCHEMA_MAX_RULES = 20000 };

// A grammar whose `root` is one document of the schema; NULL schema: any object. *text (*length bytes and a NUL) is the
// caller's to free(). YALM_USAGE says what it cannot do, and where: "/properties/x: …".
yalm_status schema_to_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error);

// Writing more into such a grammar: see calls in the server.
struct schema_writer;
struct schema_writer *schema_writer_open(yalm_error *error); // or NULL
// Adds a schema; *rule is its rule's number: the grammar calls it "rN".
yalm_status schema_writer_add(struct schema_writer *writer, const cJSON *schema, int *rule, yalm_error *error);
// The grammar, behind a `root` that is written as given. Closes the writer.
yalm_status schema_writer_end(struct schema_writer *writer, const char *root, char **text, size_t *length, yalm_error *error);
void schema_writer_close(struct schema_writer *writer); // without an end; NULL is welcome
