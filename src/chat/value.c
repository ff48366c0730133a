// Makes values, and compares them as Python does: truth, equality, order.

#include "chat/value.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

struct value string_of(const char *text)
{
    return string(text, strlen(text));
}

// ------------------------------------------------------------------------------------------ lists

struct value new_list(struct run *run, enum list_flavour flavour, size_t room)
{
    struct list *list = run_take(run, sizeof *list);
    struct value *items = list ? run_take(run, (room ? room : 1) * sizeof *items) : NULL;
    if (items == NULL)
        return undefined(NULL);
    *list = (struct list){.flavour = flavour, .room = room, .items = items};
    return (struct value){.kind = V_LIST, .list = list};
}

void list_add(struct run *run, struct list *list, struct value item)
{
    if (!run_step(run, 1))
        return;
    if (list->n == list->room) {
        const size_t room = list->room ? 2 * list->room : 8;
        struct value *items = run_take(run, room * sizeof *items);
        if (items == NULL)
            return;
        memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->n++] = item;
}

// ------------------------------------------------------------------------------------------ dicts

enum { FEW = 8 }; // entries that are looked through one by one

struct value new_dict(struct run *run, enum value_kind kind)
{
    struct dict *dict = run_take(run, sizeof *dict);
    if (dict == NULL)
        return undefined(NULL);
    *dict = (struct dict){0};
    return (struct value){.kind = kind, .dict = dict};
}

// Equal keys have equal hashes: 1, 1.0 and True are one key. False where the value has none.
static bool hash_of(struct value key, uint64_t *hash)
{
    switch (key.kind) {
    case V_STRING:
        *hash = XXH3_64bits(key.text, key.length);
        return true;
    case V_BOOL:
    case V_INT:
    case V_FLOAT: {
        const double x = as_real(key) + 0.0; // -0.0 is 0.0
        *hash = XXH3_64bits(&x, sizeof x);
        return true;
    }
    case V_NONE:
        *hash = 1;
        return true;
    default:
        return false;
    }
}

// The entry's index, or SIZE_MAX.
static size_t find(struct run *run, const struct dict *dict, struct value key, uint64_t hash)
{
    if (dict->n_slots == 0) {
        for (size_t i = 0; i < dict->n; i++)
            if (equal(run, dict->entries[i].key, key))
                return i;
        return SIZE_MAX;
    }
    for (size_t at = hash & (dict->n_slots - 1);; at = (at + 1) & (dict->n_slots - 1)) {
        if (dict->slots[at] == 0)
            return SIZE_MAX;
        if (equal(run, dict->entries[dict->slots[at] - 1].key, key))
            return dict->slots[at] - 1;
    }
}

static void put_slot(struct dict *dict, size_t index)
{
    uint64_t hash = 0;
    hash_of(dict->entries[index].key, &hash);
    size_t at = hash & (dict->n_slots - 1);
    while (dict->slots[at])
        at = (at + 1) & (dict->n_slots - 1);
    dict->slots[at] = (uint32_t)index + 1;
}

// Twice as many slots as there is room for entries.
static void index_entries(struct run *run, struct dict *dict)
{
    const size_t n_slots = 2 * dict->room;
    uint32_t *slots = run_take(run, n_slots * sizeof *slots);
    if (slots == NULL)
        return;
    memset(slots, 0, n_slots * sizeof *slots);
    dict->slots = slots;
    dict->n_slots = n_slots;
    for (size_t i = 0; i < dict->n; i++)
        put_slot(dict, i);
}

static bool grow(struct run *run, struct dict *dict)
{
    const size_t room = dict->room ? 2 * dict->room : FEW;
    struct entry *entries = run_take(run, room * sizeof *entries);
    if (entries == NULL)
        return false;
    if (dict->n)
        memcpy(entries, dict->entries, dict->n * sizeof *entries);
    dict->entries = entries;
    dict->room = room;
    if (room > FEW)
        index_entries(run, dict);
    return !failed(run);
}

void dict_set(struct run *run, struct dict *dict, struct value key, struct value value)
{
    uint64_t hash;
    if (!run_step(run, 1))
        return;
    if (!hash_of(key, &hash)) {
        run_fail(run, "unhashable type: '%s'", type_name(key));
        return;
    }
    const size_t index = find(run, dict, key, hash);
    if (index != SIZE_MAX) {
        dict->entries[index].value = value;
        return;
    }
    if (dict->n == dict->room && !grow(run, dict))
        return;
    dict->entries[dict->n++] = (struct entry){key, value};
    if (dict->n_slots)
        put_slot(dict, dict->n - 1);
}

struct value *dict_find(struct run *run, const struct dict *dict, struct value key)
{
    uint64_t hash;
    if ((key.kind == V_STRING && !run_pass(run, key.length)) || !hash_of(key, &hash))
        return NULL;
    const size_t index = find(run, dict, key, hash);
    return index == SIZE_MAX ? NULL : &dict->entries[index].value;
}

struct value *dict_find_text(struct run *run, const struct dict *dict, const char *key)
{
    return dict_find(run, dict, string_of(key));
}

void dict_remove(struct run *run, struct dict *dict, struct value key)
{
    uint64_t hash;
    const size_t index = hash_of(key, &hash) ? find(run, dict, key, hash) : SIZE_MAX;
    if (index == SIZE_MAX || !run_step(run, dict->n))
        return;
    memmove(dict->entries + index, dict->entries + index + 1, (dict->n - index - 1) * sizeof *dict->entries);
    dict->n--;
    if (dict->n_slots)
        index_entries(run, dict);
}

// ------------------------------------------------------------------------------------------ asking

bool is_text(struct value value, const char *text)
{
    return value.kind == V_STRING && value.length == strlen(text) && !memcmp(value.text, text, value.length);
}

bool is_number(struct value value)
{
    return value.kind == V_BOOL || value.kind == V_INT || value.kind == V_FLOAT;
}

double as_real(struct value number)
{
    return number.kind == V_FLOAT ? number.real : (double)as_integer(number);
}

int64_t as_integer(struct value number)
{
    return number.kind == V_BOOL ? number.boolean : number.integer;
}

bool truth(struct value value)
{
    switch (value.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return value.boolean;
    case V_INT:
        return value.integer != 0;
    case V_FLOAT:
        return value.real != 0;
    case V_STRING:
        return value.length > 0;
    case V_LIST:
        return value.list->n > 0 || value.list->flavour == GENERATOR;
    case V_DICT:
        return value.dict->n > 0;
    default:
        return true;
    }
}

static bool equal_dicts(struct run *run, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n && !failed(run); i++) {
        const struct value *other = dict_find(run, b, a->entries[i].key);
        if (other == NULL || !equal(run, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_lists(struct run *run, const struct list *a, const struct list *b)
{
    if (a == b)
        return true;
    if (a->n != b->n || a->flavour != b->flavour || a->flavour == GENERATOR)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (failed(run) || !equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_containers(struct run *run, struct value a, struct value b)
{
    if (run->depth >= RUN_MAX_DEPTH)
        return run_fail(run, "values are nested too deeply to be compared");
    run->depth++;
    const bool same = a.kind == V_LIST ? equal_lists(run, a.list, b.list) : equal_dicts(run, a.dict, b.dict);
    run->depth--;
    return same;
}

bool equal(struct run *run, struct value a, struct value b)
{
    if (!run_step(run, 1))
        return false;
    if (is_number(a) && is_number(b))
        return a.kind == V_FLOAT || b.kind == V_FLOAT ? as_real(a) == as_real(b) : as_integer(a) == as_integer(b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_STRING:
        return a.length == b.length && run_pass(run, a.length) && !memcmp(a.text, b.text, a.length);
    case V_LIST:
    case V_DICT:
        return equal_containers(run, a, b);
    case V_FUNCTION:
        return a.index == b.index;
    case V_METHOD:
        return a.method == b.method;
    default:
        return a.dict == b.dict; // the same thing
    }
}

static int order(double a, double b)
{
    return isnan(a) || isnan(b) ? 2 : (a > b) - (a < b);
}

static int compare_lists(struct run *run, const struct list *a, const struct list *b)
{
    if (run->depth >= RUN_MAX_DEPTH) {
        run_fail(run, "values are nested too deeply to be compared");
        return 0;
    }
    run->depth++;
    int result = (a->n > b->n) - (a->n < b->n);
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!equal(run, a->items[i], b->items[i])) {
            result = compare(run, a->items[i], b->items[i]);
            break;
        }
    run->depth--;
    return result;
}

int compare(struct run *run, struct value a, struct value b)
{
    if (is_number(a) && is_number(b)) {
        if (a.kind == V_FLOAT || b.kind == V_FLOAT)
            return order(as_real(a), as_real(b));
        return (as_integer(a) > as_integer(b)) - (as_integer(a) < as_integer(b));
    }
    if (a.kind == V_STRING && b.kind == V_STRING) { // the order of UTF-8's bytes is that of code points
        const size_t shorter = a.length < b.length ? a.length : b.length;
        const int first = run_pass(run, shorter) ? memcmp(a.text, b.text, shorter) : 0;
        return first ? (first > 0) - (first < 0) : (a.length > b.length) - (a.length < b.length);
    }
    if (a.kind == V_LIST && b.kind == V_LIST && a.list->flavour == b.list->flavour && a.list->flavour <= TUPLE)
        return compare_lists(run, a.list, b.list);
    run_fail(run, "'%s' and '%s' have no order", type_name(a), type_name(b));
    return 0;
}

const char *type_name(struct value value)
{
    static const char *const names[] = {"Undefined", "NoneType",  "bool",  "int",      "float",  "str",        "list",
                                        "dict",      "Namespace", "Macro", "function", "method", "LoopContext"};
    static const char *const flavours[] = {"list", "tuple", "range", "dict_items", "dict_keys", "dict_values", "generator"};
    return value.kind == V_LIST ? flavours[value.list->flavour] : names[value.kind];
}
