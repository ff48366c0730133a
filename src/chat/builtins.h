// What a template may call: filters, tests, methods, functions and operators of comparison. tools/yalm_convert/chat_template.py
// has the same names.
#pragma once
#include "chat/members.h"

// Arguments as a call gives them: those by place, and those by name (their names in `names`, behind the others in `values`).
struct arguments {
    int n, n_named;
    int how;                    // the row of the callee's table says: where several names share a function
    const struct value *values; // (n + n_named)
    const struct value *names;  // (n_named), strings
};

// The argument at `place`, or called `name`; `otherwise` where there is neither.
static inline struct value argument(const struct arguments *arguments, int place, const char *name, struct value otherwise)
{
    if (place >= 0 && place < arguments->n)
        return arguments->values[place];
    for (int i = 0; name && i < arguments->n_named; i++)
        if (is_text(arguments->names[i], name))
            return arguments->values[arguments->n + i];
    return otherwise;
}

// Index of the one with that name; -1 where there is none.
int filter_find(struct value name);
int test_find(struct value name);
int operator_find(struct value name);
int function_find(struct value name);

struct value filter_apply(struct run *run, int which, struct value value, const struct arguments *arguments);
bool test_apply(struct run *run, int which, struct value value, const struct arguments *arguments);
bool operator_apply(struct run *run, int which, struct value a, struct value b);
struct value function_call(struct run *run, int which, const struct arguments *arguments);

// The method of that name that Python's type has, not called; false where it has none.
bool method_find(struct run *run, struct value self, struct value name, struct value *method);
struct value method_call(struct run *run, const struct value_method *method, const struct arguments *arguments);

// value.name and value[key], as Jinja looks them up; what is absent is undefined. The run fails where `value` itself is
// undefined.
struct value get_attribute(struct run *run, struct value value, struct value name);
struct value get_item(struct run *run, struct value value, struct value key);
// The run fails where a namespace may not have an attribute of that name: an underscore comes first.
void check_attribute(struct run *run, struct value name);
// An attribute by a path, as filters take it: "function.name", or an index. `otherwise`, unless it is none, replaces an
// undefined part.
struct value get_path(struct run *run, struct value value, struct value path, struct value otherwise);
