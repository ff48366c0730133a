// A JSON schema as a grammar, in the notation of grammar.h: each text that it spells is a JSON document that the schema takes.
//
// It means what the standard says, from draft 4 to 2020-12: unknown keywords, and formats that formats.c does not have, are
// annotations. Refused by name: uniqueItems of more than one item, contains, unevaluated…, $dynamicRef, references to other
// documents, minProperties above 1 where any key may come, and what outgrows the bounds. Properties come in any order, each
// named one at most once.
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>

#include "yalm.h"

enum { SCHEMA_MAX_RULES = 20000, SCHEMA_MAX_WORK = 4 << 20 };

// A grammar whose `root` is one document of the schema; NULL schema: any object. *text (*length bytes and a NUL) is the
// caller's to free(). YALM_USAGE says what it cannot do, and where: "/properties/x: …".
yalm_status schema_to_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error);
// The same for a model to write by: where properties are listed, and nothing is said of other keys, no others come. The
// standard lets them, and a small model would go on with them for ever.
yalm_status schema_to_listed_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error);

// Writing more into such a grammar: see calls in the server.
struct schema_writer;
struct schema_writer *schema_writer_open(bool listed_only, yalm_error *error); // listed_only: as above; or NULL
// Adds a schema; *rule is its rule's number: the grammar calls it "rN".
yalm_status schema_writer_add(struct schema_writer *writer, const cJSON *schema, int *rule, yalm_error *error);
// Steps taken so far, of the SCHEMA_MAX_WORK that all schemas of a writer may take together.
long schema_writer_work(const struct schema_writer *writer);
// The grammar, behind a `root` that is written as given. Closes the writer.
yalm_status schema_writer_end(struct schema_writer *writer, const char *root, char **text, size_t *length, yalm_error *error);
void schema_writer_close(struct schema_writer *writer); // without an end; NULL is welcome
