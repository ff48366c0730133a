// Between the files that read a schema's keywords: shape_keywords.c and shape_opposite.c. `schema` is its number.
#pragma once
#include <math.h>

#include "grammar/shape.h"

enum { ALL_TYPES = (1 << N_TYPES) - 1 };

_Noreturn void keyword_refuse(struct shapes *s, int schema, const char *key, const char *what);
void keyword_check(struct shapes *s, int schema);                             // refuses those that are not read
unsigned keyword_types(struct shapes *s, int schema, bool *integer);          // a bit for each type
const cJSON *keyword_required(struct shapes *s, int schema);                  // a list of names; NULL: none
void keyword_size(struct shapes *s, int schema, const char *key, int *value); // where the schema has it
void keyword_numbers(struct shapes *s, int schema, struct part *part);        // bounds of a number
void keyword_text(struct shapes *s, int schema, struct part *part);           // conditions on a string
struct part keyword_value(struct shapes *s, int schema, const cJSON *value);  // the one value; a list or object: its parts
struct dfa *keyword_strings(struct shapes *s, const cJSON *values);           // the strings among them; NULL: none

// Whether the number, and all that are smaller, are what a double holds.
static inline bool keyword_exact(double value)
{
    return fabs(value) < 9007199254740992.0;
}
