// What documents a schema takes, as alternatives of one type each. The conditions on their parts stay what they are: a *want*,
// a set of schemas that must hold, or must not. So schemas are met by uniting wants, and recursion needs no care.
#pragma once
#include <cjson/cJSON.h>

#include "grammar/dfa.h"

enum { SHAPE_MAX_PARTS = 1500 };
enum shape_type { NULL_TYPE, FALSE_TYPE, TRUE_TYPE, NUMBER_TYPE, STRING_TYPE, ARRAY_TYPE, OBJECT_TYPE, N_TYPES };

struct property {
    const char *key;
    int name; // equal keys have the same number
    int want;
    bool required;
};

struct shape {
    struct part {
        enum shape_type type;
        // numbers
        bool integer, low_open, high_open;
        double low, high;
        // numbers and strings: further conditions on their text; NULL: none
        const struct dfa *text;
        // lengths, items, properties; most -1: no limit
        int least, most;
        // arrays: the first items, and the rest
        const int *first; // (n_first)
        int n_first, rest;
        bool unique; // no item equals another
        // objects: what is named, and all other keys by cells that have nothing in common
        const struct property *named; // (n_named)
        int n_named;
        const struct cell {
            const struct dfa *keys; // NULL: all
            int want;
        } * cells; // (n_cells)
        int n_cells;
        bool listed, open; // properties are listed; the schema speaks of other keys
    } * parts;             // (n)
    int n, room;
};

struct shapes { // the reader
    struct pool pool;
    struct intern schemas, wants, names;
    int *places, n_places; // by name: 1 + where it stands in a list of properties, while that is read; else 0
    struct schema_info {
        const cJSON *schema, *root; // root: where its references begin
        int parent;                 // -1: none
        const char *key;            // in the parent
    } * infos;
    int infos_room;
    struct want_memo {
        struct shape shape;
        int known; // 0: no; 1: being read, at `level`; 2: yes
        int level, rule;
    } * memos; // (wants.n)
    int n_memos, memos_room;
    int at, depth, level;
    struct shape (*read)(struct shapes *s, int want); // shape_of(), for what it is made of
    struct made {
        cJSON *json;
        struct made *next;
    } * made; // schemas of our own
};

void shapes_free(struct shapes *s);
int want_of(struct shapes *s, const cJSON *schema, const cJSON *root, int parent, const char *key, bool negated);
int want_both(struct shapes *s, int a, int b);
bool want_is_impossible(struct shapes *s, int want);
struct want_memo *want_memo(struct shapes *s, int want);
struct shape shape_of(struct shapes *s, int want);

struct property property_of(struct shapes *s, const char *key, int want, bool required);
// Where the (*n) properties have the key; adds it where they do not. They are read up to property_end().
struct property *property_in(struct shapes *s, struct property *named, int *n, const char *key);
void property_end(struct shapes *s, const struct property *named, int n);

int false_want(struct shapes *s); // what nothing fulfils
// The conditions that stand in the schema itself, and their opposite: shape_keywords.c, shape_opposite.c.
struct shape shape_of_keywords(struct shapes *s, int schema);
struct shape shape_of_opposite(struct shapes *s, int schema);
// A want of a schema that stands in another at `key`.
int want_part(struct shapes *s, int schema, const cJSON *part, const char *key, bool negated);
const cJSON *shape_member(const cJSON *object, const char *key);
const cJSON *shape_made(struct shapes *s, cJSON *json); // owned from then on

// The alternatives that both have: shape_meet.c.
struct shape shape_meet(struct shapes *s, const struct shape *a, const struct shape *b);
struct shape shape_any(struct shapes *s, unsigned types); // a bit for each type
const struct dfa *numbers_of(struct shapes *s, const struct part *part);
int cell_want(struct shapes *s, const struct part *part, const char *key); // of a key that is not named
void shape_add(struct shapes *s, struct shape *shape, struct part part);
