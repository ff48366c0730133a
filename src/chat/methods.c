// Methods of strings, lists and dicts, by Python's names.

#include <string.h>

#include "chat/builtins.h"
#include "chat/print.h"

typedef struct value method_body(struct run *run, struct value self, const struct arguments *arguments);

// An argument that must be a string. Where it is none the run fails, and this is an empty one.
static struct value text_at(struct run *run, const struct arguments *a, int place, const char *name)
{
    const struct value value = argument(a, place, name, undefined(name));
    if (value.kind == V_STRING)
        return value;
    run_fail(run, "argument %d must be str, not %s", place + 1, type_name(value));
    return string("", 0);
}

// A count; -1 where none is given.
static int64_t count_at(struct run *run, const struct arguments *a, int place, const char *name)
{
    const struct value value = argument(a, place, name, integer(-1));
    if (value.kind == V_INT || value.kind == V_BOOL)
        return as_integer(value);
    run_fail(run, "'%s' object cannot be interpreted as an integer", type_name(value));
    return -1;
}

// ------------------------------------------------------------------------------------------ strings

// how: enum side
static struct value strip_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value of = argument(a, 0, NULL, none());
    if (of.kind != V_NONE && of.kind != V_STRING)
        run_fail(run, "strip arg must be None or str, not %s", type_name(of));
    return strip(self, of, (enum side)a->how);
}

static struct value split_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value separator = argument(a, 0, "sep", none());
    if (separator.kind != V_NONE && separator.kind != V_STRING)
        run_fail(run, "must be str or None, not %s", type_name(separator));
    return failed(run) ? separator : split(run, self, separator, count_at(run, a, 1, "maxsplit"));
}

static struct value rsplit_method(struct run *run, struct value self, const struct arguments *a)
{
    return split_from_right(run, self, argument(a, 0, "sep", none()), count_at(run, a, 1, "maxsplit"));
}

static struct value splitlines_method(struct run *run, struct value self, const struct arguments *a)
{
    (void)a;
    return split_lines(run, self);
}

static struct value replace_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value old = text_at(run, a, 0, NULL), new = text_at(run, a, 1, NULL);
    return failed(run) ? old : replace(run, self, old, new, count_at(run, a, 2, "count"));
}

// Whether the text begins or ends with the argument, or with one of a tuple's. how: enum side
static struct value has_end(struct run *run, struct value self, const struct arguments *a)
{
    bool (*const has)(struct value text, struct value part) = a->how == LEFT ? starts_with : ends_with;
    const struct value part = argument(a, 0, NULL, undefined(NULL));
    if (part.kind != V_LIST || part.list->flavour != TUPLE)
        return boolean(has(self, text_at(run, a, 0, NULL)));
    for (size_t i = 0; i < part.list->n; i++)
        if (part.list->items[i].kind == V_STRING && has(self, part.list->items[i]))
            return boolean(true);
    return boolean(false);
}

// how: enum letter_case
static struct value case_method(struct run *run, struct value self, const struct arguments *a)
{
    return in_case(run, self, (enum letter_case)a->how);
}

static struct value join_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct list *list = iterate(run, argument(a, 0, NULL, undefined(NULL)));
    struct writer writer = {0};
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        if (list->items[i].kind != V_STRING)
            run_fail(run, "sequence item %zu: expected str instance, %s found", i, type_name(list->items[i]));
        if (i)
            write_bytes(run, &writer, self.text, self.length);
        print(run, &writer, list->items[i]);
    }
    return written(&writer);
}

static struct value find_method(struct run *run, struct value self, const struct arguments *a)
{
    const size_t at = text_find(run, self, text_at(run, a, 0, NULL), 0);
    return integer(at == SIZE_MAX ? -1 : (int64_t)count_points(string(self.text, at)));
}

static struct value count_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value part = text_at(run, a, 0, NULL);
    if (part.length == 0)
        return integer((int64_t)count_points(self) + 1);
    int64_t n = 0;
    for (size_t at = text_find(run, self, part, 0); at != SIZE_MAX; at = text_find(run, self, part, at + part.length))
        n++;
    return integer(n);
}

// how: enum side
static struct value without_end(struct run *run, struct value self, const struct arguments *a)
{
    const struct value part = text_at(run, a, 0, NULL);
    if (!(a->how == LEFT ? starts_with : ends_with)(self, part))
        return self;
    return string(self.text + (a->how == LEFT ? part.length : 0), self.length - part.length);
}

static struct value isdigit_method(struct run *run, struct value self, const struct arguments *a)
{
    (void)run;
    (void)a;
    bool digits = self.length > 0;
    for (size_t i = 0; i < self.length; i++)
        digits = digits && self.text[i] >= '0' && self.text[i] <= '9';
    return boolean(digits);
}

// The argument of a field between braces: empty (the next one), a place, or a name. Formats ("{:>8}") and attributes ("{0.x}")
// are refused.
static struct value format_field(struct run *run, struct value field, const struct arguments *a, int *next)
{
    if (field.length == 0 && *next < a->n)
        return a->values[(*next)++];
    bool digits = field.length > 0 && field.length < 4;
    int place = 0;
    for (size_t i = 0; i < field.length; i++) {
        digits = digits && field.text[i] >= '0' && field.text[i] <= '9';
        place = digits ? 10 * place + field.text[i] - '0' : place;
    }
    if (digits && place < a->n)
        return a->values[place];
    for (int i = 0; i < a->n_named; i++)
        if (equal(run, a->names[i], field))
            return a->values[a->n + i];
    return no_value(run, "format(): no argument for the field '{%.*s}'", (int)field.length, field.text);
}

static struct value format_method(struct run *run, struct value self, const struct arguments *a)
{
    struct writer writer = {0};
    int next = 0;
    for (size_t at = 0; at < self.length && !failed(run); at++) {
        const char c = self.text[at];
        if ((c != '{' && c != '}') || (at + 1 < self.length && self.text[at + 1] == c)) {
            write_bytes(run, &writer, &c, 1);
            at += c == '{' || c == '}';
            continue;
        }
        const struct value rest = string(self.text + at + 1, self.length - at - 1);
        const size_t end = c == '{' ? text_find(run, rest, string_of("}"), 0) : SIZE_MAX;
        if (end == SIZE_MAX) {
            run_fail(run, "format(): a single '%c' in the format string", c);
            break;
        }
        const struct value value = format_field(run, string(rest.text, end), a, &next);
        if (!failed(run))
            print(run, &writer, value);
        at += 1 + end;
    }
    return written(&writer);
}

// ------------------------------------------------------------------------------------------ dicts and lists

static struct value get_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value *found = dict_find(run, self.dict, argument(a, 0, NULL, none()));
    return found ? *found : argument(a, 1, NULL, none());
}

// how: dict_items()'s
static struct value items_method(struct run *run, struct value self, const struct arguments *a)
{
    return dict_items(run, self.dict, a->how);
}

static struct value copy_method(struct run *run, struct value self, const struct arguments *a)
{
    (void)a;
    const struct value copy = self.kind == V_DICT ? new_dict(run, V_DICT) : new_list(run, LIST, self.list->n);
    for (size_t i = 0; self.kind == V_DICT && i < self.dict->n && !failed(run); i++)
        dict_set(run, copy.dict, self.dict->entries[i].key, self.dict->entries[i].value);
    for (size_t i = 0; self.kind == V_LIST && i < self.list->n && !failed(run); i++)
        list_add(run, copy.list, self.list->items[i]);
    return copy;
}

static struct value append_method(struct run *run, struct value self, const struct arguments *a)
{
    list_add(run, self.list, argument(a, 0, NULL, none()));
    return none();
}

static struct value pop_item(struct run *run, struct value self, const struct arguments *a)
{
    struct list *list = self.list;
    int64_t index = count_at(run, a, 0, NULL);
    index += index < 0 ? (int64_t)list->n : 0;
    if (failed(run) || index < 0 || index >= (int64_t)list->n)
        return no_value(run, "pop index out of range");
    const struct value item = list->items[index];
    memmove(list->items + index, list->items + index + 1, (list->n - (size_t)index - 1) * sizeof item);
    list->n--;
    run_step(run, 1 + list->n / 8);
    return item;
}

static struct value pop_key(struct run *run, struct value self, const struct arguments *a)
{
    const struct value key = argument(a, 0, NULL, none());
    const struct value *found = dict_find(run, self.dict, key);
    if (found == NULL) {
        if (a->n < 2)
            run_fail(run, "pop(): no such key");
        return argument(a, 1, NULL, undefined(NULL));
    }
    const struct value value = *found;
    dict_remove(run, self.dict, key);
    return value;
}

static struct value changed_method(struct run *run, struct value self, const struct arguments *a)
{
    const struct value now = argument(a, 0, NULL, none());
    const bool changed = self.loop->changed.kind == V_UNDEFINED || !equal(run, self.loop->changed, now);
    self.loop->changed = now;
    return boolean(changed);
}

static struct value cycle_method(struct run *run, struct value self, const struct arguments *a)
{
    if (a->n == 0)
        run_fail(run, "no items for cycling given");
    return a->n ? a->values[self.loop->index % (size_t)a->n] : undefined(NULL);
}

// ------------------------------------------------------------------------------------------ all of them

static const struct {
    enum value_kind kind;
    const char *name;
    method_body *body;
    int how;
} methods[] = {
    {V_STRING, "split", split_method, 0},
    {V_STRING, "rsplit", rsplit_method, 0},
    {V_STRING, "splitlines", splitlines_method, 0},
    {V_STRING, "strip", strip_method, BOTH},
    {V_STRING, "lstrip", strip_method, LEFT},
    {V_STRING, "rstrip", strip_method, RIGHT},
    {V_STRING, "startswith", has_end, LEFT},
    {V_STRING, "endswith", has_end, RIGHT},
    {V_STRING, "replace", replace_method, 0},
    {V_STRING, "format", format_method, 0},
    {V_STRING, "lower", case_method, LOWER},
    {V_STRING, "upper", case_method, UPPER},
    {V_STRING, "capitalize", case_method, CAPITAL},
    {V_STRING, "title", case_method, TITLE},
    {V_STRING, "join", join_method, 0},
    {V_STRING, "find", find_method, 0},
    {V_STRING, "count", count_method, 0},
    {V_STRING, "removeprefix", without_end, LEFT},
    {V_STRING, "removesuffix", without_end, RIGHT},
    {V_STRING, "isdigit", isdigit_method, 0},
    {V_DICT, "get", get_method, 0},
    {V_DICT, "items", items_method, 0},
    {V_DICT, "keys", items_method, 1},
    {V_DICT, "values", items_method, 2},
    {V_DICT, "copy", copy_method, 0},
    {V_DICT, "pop", pop_key, 0},
    {V_LIST, "copy", copy_method, 0},
    {V_LIST, "append", append_method, 0},
    {V_LIST, "pop", pop_item, 0},
    {V_LOOP, "changed", changed_method, 0},
    {V_LOOP, "cycle", cycle_method, 0},
};

bool method_find(struct run *run, struct value self, struct value name, struct value *method)
{
    if (self.kind == V_LIST && self.list->flavour != LIST)
        return false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (methods[i].kind != self.kind || !is_text(name, methods[i].name))
            continue;
        struct value_method *bound = run_take(run, sizeof *bound);
        if (bound == NULL)
            return false;
        *bound = (struct value_method){.self = self, .which = (int)i};
        *method = (struct value){.kind = V_METHOD, .method = bound};
        return true;
    }
    return false;
}

struct value method_call(struct run *run, const struct value_method *method, const struct arguments *arguments)
{
    if (method->self.kind == V_STRING && !run_pass(run, method->self.length))
        return undefined(NULL);
    struct arguments own = *arguments;
    own.how = methods[method->which].how;
    return methods[method->which].body(run, method->self, &own);
}
