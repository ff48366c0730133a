// Values as text: str() and repr() of Python, and JSON as json.dumps() writes it.
#pragma once
#include "chat/strings.h"

void print(struct run *run, struct writer *writer, struct value value); // str()
void print_repr(struct run *run, struct writer *writer, struct value value);
struct value as_text(struct run *run, struct value value); // a string is itself

struct json_style {
    bool ascii;          // everything else as \uXXXX
    bool sorted;         // keys
    struct value indent; // none: all in one line
    struct value item_separator, key_separator;
};
void print_json(struct run *run, struct writer *writer, struct value value, const struct json_style *style);

// JSON text as a value: numbers without a point or an exponent are ints. The run fails, naming `what`, where it is not JSON.
struct value read_json(struct run *run, const char *text, size_t length, const char *what);
