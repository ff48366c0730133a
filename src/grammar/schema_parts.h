// What a schema's rules are written with: schema.c and schema_types.c.
#pragma once
#include <stdio.h>

#include "grammar/schema.h"

struct schema_writer {
    // Writes a schema's rule: schema.c.
    yalm_status (*write)(struct schema_writer *w, const cJSON *schema, int rule, yalm_error *error);
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

// Fills *error with where we are in the schema, and what is wrong there.
yalm_status schema_refuse(struct schema_writer *w, yalm_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const cJSON *schema_member(const cJSON *object, const char *key);
// A new rule for a schema that stands at `key` of the one we are in. Its text comes at once: the rule around it must not have
// been begun.
yalm_status schema_add_part(struct schema_writer *w, const cJSON *schema, const char *key, int *rule, yalm_error *error);
// A literal of the grammar that spells the text.
void schema_write_literal(FILE *out, const char *text);

// The rule of a schema of one type: schema_types.c.
yalm_status schema_write_type(struct schema_writer *w, const cJSON *schema, const char *type, int rule, yalm_error *error);
