// Values of a template, with Python's meaning: what is true, what is equal, dicts in the order of insertion, strings of code
// points.
//
// A value is two words and is passed by copy. It points into the run's arena, or into the model (strings of the tree). Lists,
// dicts and namespaces are shared by all who hold them, as in Python.
#pragma once
#include <stdint.h>

#include "chat/run.h"

enum value_kind {
    V_UNDEFINED, // text: what is undefined, for an error's text; NULL where that is not known
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING, // text: (length) bytes of well-formed UTF-8
    V_LIST,
    V_DICT,
    V_NAMESPACE, // dict
    V_MACRO,
    V_FUNCTION, // index: which
    V_METHOD,   // a method of a value, not called yet
    V_LOOP,
};

struct value {
    uint8_t kind; // enum value_kind
    bool is_safe; // of a string: Jinja's Markup, which escapes the strings that are added to it for HTML
    uint32_t length;
    union {
        const char *text;
        bool boolean;
        int64_t integer;
        double real;
        struct list *list;
        struct dict *dict;
        struct macro *macro;
        struct value_method *method;
        struct loop *loop;
        int index;
    };
};

// Python's kinds of sequences. They differ in their text, in what they equal, and in whether they can be counted or indexed.
enum list_flavour { LIST, TUPLE, RANGE, DICT_ITEMS, DICT_KEYS, DICT_VALUES, GENERATOR };

struct list {
    enum list_flavour flavour;
    size_t n, room;
    struct value *items; // (n)
};

struct entry {
    struct value key, value;
};

struct dict {
    size_t n, room, n_slots;
    struct entry *entries; // (n), in the order of insertion
    uint32_t *slots;       // (n_slots): 1 + an entry's index, by hash; none while the dict is small
};

struct value_method {
    struct value self;
    int which;
};

struct loop {
    const struct list *list;
    size_t index;
    int depth;
    struct value changed; // what loop.changed() was last called with
};

// ---------------------------------------------------------------- making

static inline struct value undefined(const char *what)
{
    return (struct value){.kind = V_UNDEFINED, .text = what};
}
static inline struct value none(void)
{
    return (struct value){.kind = V_NONE};
}
static inline struct value boolean(bool b)
{
    return (struct value){.kind = V_BOOL, .boolean = b};
}
static inline struct value integer(int64_t i)
{
    return (struct value){.kind = V_INT, .integer = i};
}
static inline struct value real(double x)
{
    return (struct value){.kind = V_FLOAT, .real = x};
}
// The run fails, and so there is none.
#define no_value(run, ...) (run_fail(run, __VA_ARGS__), undefined(NULL))
// The bytes are not copied.
static inline struct value string(const char *text, size_t length)
{
    return (struct value){.kind = V_STRING, .length = (uint32_t)length, .text = text};
}
struct value string_of(const char *text); // of a constant

// Undefined, with the run failed, where there is no memory.
struct value new_list(struct run *run, enum list_flavour flavour, size_t room);
struct value new_dict(struct run *run, enum value_kind kind); // V_DICT or V_NAMESPACE
void list_add(struct run *run, struct list *list, struct value item);
// Sets an entry; a key that is there keeps its place. The run fails where a key has no hash.
void dict_set(struct run *run, struct dict *dict, struct value key, struct value value);
// NULL where there is none.
struct value *dict_find(struct run *run, const struct dict *dict, struct value key);
struct value *dict_find_text(struct run *run, const struct dict *dict, const char *key);
void dict_remove(struct run *run, struct dict *dict, struct value key);

// ---------------------------------------------------------------- asking

bool is_text(struct value value, const char *text); // a string that is this one
bool is_number(struct value value);                 // an int, a float or a bool
double as_real(struct value number);
int64_t as_integer(struct value number); // of an int or a bool
bool truth(struct value value);
bool equal(struct run *run, struct value a, struct value b);
// -1, 0 or 1; the run fails where Python has no order between them. 2: a number that is none.
int compare(struct run *run, struct value a, struct value b);
const char *type_name(struct value value); // Python's
