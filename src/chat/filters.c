// Filters, by name.

#include <stdlib.h>
#include <string.h>

#include "chat/builtins.h"
#include "chat/operators.h"
#include "chat/print.h"

typedef struct value filter(struct run *run, struct value value, const struct arguments *arguments);

static struct value text_argument(struct run *run, const struct arguments *arguments, int place, const char *name)
{
    const struct value value = argument(arguments, place, name, undefined(name));
    if (value.kind == V_STRING)
        return value;
    run_fail(run, "'%s' must be a string, found %s", name, type_name(value));
    return string("", 0);
}

// ------------------------------------------------------------------------------------------ of texts

static struct value to_json(struct run *run, struct value value, const struct arguments *a)
{
    struct json_style style = {.ascii = truth(argument(a, 0, "ensure_ascii", boolean(false))),
                               .indent = argument(a, 1, "indent", none()),
                               .sorted = truth(argument(a, 3, "sort_keys", boolean(false)))};
    const struct value separators = argument(a, 2, "separators", none());
    style.item_separator = string_of(style.indent.kind == V_NONE ? ", " : ",");
    style.key_separator = string_of(": ");
    if (separators.kind == V_LIST && separators.list->n == 2) {
        style.item_separator = separators.list->items[0];
        style.key_separator = separators.list->items[1];
    } else if (separators.kind != V_NONE)
        run_fail(run, "tojson: separators must be two strings");
    if (style.indent.kind != V_NONE && style.indent.kind != V_STRING && style.indent.kind != V_INT)
        run_fail(run, "tojson: indent must be an integer or a string, found %s", type_name(style.indent));
    struct writer writer = {0};
    print_json(run, &writer, value, &style);
    return written(&writer);
}

static struct value from_json(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    const struct value text = as_text(run, value);
    return read_json(run, text.text, text.length, "from_json");
}

static struct value to_string(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    return as_text(run, value);
}

static struct value trim(struct run *run, struct value value, const struct arguments *a)
{
    return strip(as_text(run, value), argument(a, 0, "chars", none()), BOTH);
}

// how: enum letter_case
static struct value change_case(struct run *run, struct value value, const struct arguments *a)
{
    return in_case(run, as_text(run, value), (enum letter_case)a->how);
}

static struct value replace_in(struct run *run, struct value value, const struct arguments *a)
{
    const struct value old = as_text(run, argument(a, 0, "old", undefined(NULL)));
    const struct value new = as_text(run, argument(a, 1, "new", undefined(NULL)));
    const struct value most = argument(a, 2, "count", none());
    return replace(run, as_text(run, value), old, new, is_number(most) ? as_integer(most) : -1);
}

// Each line but the first (all with `first`) gets blanks before it; empty ones only with `blank`.
static struct value indent(struct run *run, struct value value, const struct arguments *a)
{
    const struct value width = argument(a, 0, "width", integer(4));
    const bool at_first = truth(argument(a, 1, "first", boolean(false))),
               blank = truth(argument(a, 2, "blank", boolean(false)));
    const struct value before = width.kind == V_STRING ? width : repeat(run, string_of(" "), as_integer(width));
    const struct value text = as_text(run, value);
    struct writer writer = {0};
    const struct value lines = failed(run) ? none() : split_lines(run, join_two(run, text, string_of("\n")));
    for (size_t i = 0; !failed(run) && i < lines.list->n; i++) {
        const struct value line = lines.list->items[i];
        write_text(run, &writer, i ? "\n" : "");
        if (i == 0 ? at_first : blank || line.length > 0)
            write_bytes(run, &writer, before.text, before.length);
        write_bytes(run, &writer, line.text, line.length);
    }
    return written(&writer);
}

static struct value to_int(struct run *run, struct value value, const struct arguments *a)
{
    char digits[32], *end;
    if (value.kind == V_FLOAT && value.real > -9e18 && value.real < 9e18)
        return integer((int64_t)value.real);
    if (value.kind == V_INT || value.kind == V_BOOL)
        return integer(as_integer(value));
    const struct value text = strip(value.kind == V_STRING ? value : string("", 0), none(), BOTH);
    if (text.length > 0 && text.length < sizeof digits && !failed(run)) {
        memcpy(digits, text.text, text.length);
        digits[text.length] = '\0';
        const long long whole = strtoll(digits, &end, 10);
        if (*end == '\0')
            return integer(whole);
        const double part = strtod(digits, &end);
        if (*end == '\0' && part > -9e18 && part < 9e18)
            return integer((int64_t)part);
    }
    return argument(a, 0, "default", integer(0));
}

// ------------------------------------------------------------------------------------------ of any value

static struct value use_default(struct run *run, struct value value, const struct arguments *a)
{
    (void)run;
    const bool falsy = truth(argument(a, 1, "boolean", boolean(false))) && !truth(value);
    return value.kind == V_UNDEFINED || falsy ? argument(a, 0, "default_value", string("", 0)) : value;
}

static struct value safe(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    struct value text = as_text(run, value);
    text.is_safe = true;
    return text;
}

static struct value length(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    switch (value.kind) {
    case V_UNDEFINED:
        return integer(0);
    case V_STRING:
        return integer((int64_t)count_points(value));
    case V_DICT:
        return integer((int64_t)value.dict->n);
    case V_LOOP:
        return integer((int64_t)value.loop->list->n);
    case V_LIST:
        if (value.list->flavour != GENERATOR)
            return integer((int64_t)value.list->n);
        // falls through
    default:
        return no_value(run, "object of type '%s' has no len()", type_name(value));
    }
}

// ------------------------------------------------------------------------------------------ of lists

static struct value to_list(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    const struct list *from = iterate(run, value);
    const struct value list = new_list(run, LIST, from ? from->n : 0);
    for (size_t i = 0; from && i < from->n && !failed(run); i++)
        list_add(run, list.list, from->items[i]);
    return list;
}

static struct value items(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    if (value.kind != V_DICT && value.kind != V_UNDEFINED) {
        run_fail(run, "Can only get item pairs from a mapping, found %s", type_name(value));
        return value;
    }
    struct value pairs = value.kind == V_UNDEFINED ? new_list(run, GENERATOR, 0) : dict_items(run, value.dict, 0);
    if (!failed(run))
        pairs.list->flavour = GENERATOR;
    return pairs;
}

static struct value join(struct run *run, struct value value, const struct arguments *a)
{
    const struct value between = as_text(run, argument(a, 0, "d", string("", 0)));
    const struct value attribute = argument(a, 1, "attribute", none());
    const struct list *list = iterate(run, value);
    struct writer writer = {0};
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        if (i)
            print(run, &writer, between);
        print(run, &writer, attribute.kind == V_NONE ? list->items[i] : get_path(run, list->items[i], attribute, none()));
    }
    return written(&writer);
}

// how: 0 the first, 1 the last
static struct value at_end(struct run *run, struct value value, const struct arguments *a)
{
    const struct list *list = iterate(run, value);
    return list && list->n ? list->items[a->how ? list->n - 1 : 0] : undefined("an element of an empty list");
}

static struct value reverse(struct run *run, struct value value, const struct arguments *a)
{
    (void)a;
    if (value.kind == V_STRING)
        return slice_text(run, value, none(), none(), integer(-1));
    const struct list *list = iterate(run, value);
    struct value reversed = list ? slice_list(run, list, none(), none(), integer(-1)) : undefined(NULL);
    if (!failed(run))
        reversed.list->flavour = GENERATOR;
    return reversed;
}

// map("filter", …) or map(attribute="name", default=…)
static struct value map(struct run *run, struct value value, const struct arguments *a)
{
    const struct value attribute = argument(a, -1, "attribute", none()), otherwise = argument(a, -1, "default", none());
    const struct list *list = truth(value) ? iterate(run, value) : NULL;
    const struct value mapped = new_list(run, GENERATOR, list ? list->n : 0);
    int which = -1;
    if (attribute.kind == V_NONE) {
        const struct value name = text_argument(run, a, 0, "filter");
        which = filter_find(name);
        if (which < 0 && !failed(run))
            run_fail(run, "map: no filter '%.*s'", (int)name.length, name.text);
    }
    const struct arguments rest = {.n = a->n > 0 ? a->n - 1 : 0, .values = a->values + (a->n > 0)};
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        const struct value item =
            which >= 0 ? filter_apply(run, which, list->items[i], &rest) : get_path(run, list->items[i], attribute, otherwise);
        list_add(run, mapped.list, item);
    }
    return mapped;
}

// The items for which a test holds or does not; it is applied to the item or to an attribute. Without a test: whether that is
// true. how: of these
enum choosing { WANTED = 1, OF_ATTRIBUTE = 2 };
static struct value choose(struct run *run, struct value value, const struct arguments *a)
{
    const bool wanted = a->how & WANTED, of_attribute = a->how & OF_ATTRIBUTE;
    const struct value attribute = of_attribute ? text_argument(run, a, 0, "attribute") : none();
    const int place = of_attribute ? 1 : 0;
    const struct list *list = truth(value) ? iterate(run, value) : NULL; // what is false, None say, has no items
    const struct value chosen = new_list(run, GENERATOR, 8);
    int which = -1;
    if (a->n > place && !failed(run)) {
        const struct value name = text_argument(run, a, place, "test");
        which = test_find(name);
        if (which < 0 && !failed(run))
            run_fail(run, "no test named '%.*s'", (int)name.length, name.text);
    }
    const int used = a->n > place ? place + 1 : a->n;
    const struct arguments rest = {.n = a->n - used, .values = a->values + used};
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        const struct value item = of_attribute ? get_path(run, list->items[i], attribute, none()) : list->items[i];
        const bool holds = which < 0 ? truth(item) : test_apply(run, which, item, &rest);
        if (holds == wanted && !failed(run))
            list_add(run, chosen.list, list->items[i]);
    }
    return chosen;
}

// ------------------------------------------------------------------------------------------ in order

// The key that orders an item: letters count as small ones unless the template says otherwise.
static struct value order_key(struct run *run, struct value item, struct value attribute, bool with_case)
{
    const struct value key = attribute.kind == V_NONE ? item : get_path(run, item, attribute, none());
    return key.kind == V_STRING && !with_case ? in_case(run, key, LOWER) : key;
}

// Sorts pairs of (key, item) by merging, which keeps equal ones in their order. `spare` has room for as many.
static void merge_sort(struct run *run, struct entry *pairs, struct entry *spare, size_t n, bool descending)
{
    if (n < 2 || failed(run))
        return;
    const size_t half = n / 2;
    merge_sort(run, pairs, spare, half, descending);
    merge_sort(run, pairs + half, spare, n - half, descending);
    size_t i = 0, j = half;
    for (size_t k = 0; k < n && !failed(run); k++) {
        bool right = i == half;
        if (i < half && j < n) {
            const int order = compare(run, pairs[j].key, pairs[i].key);
            right = descending ? order == 1 : order == -1;
        }
        spare[k] = right ? pairs[j++] : pairs[i++];
    }
    if (!failed(run))
        memcpy(pairs, spare, n * sizeof *pairs);
}

static struct value in_order(struct run *run, const struct list *list, struct value attribute, bool with_case, bool descending)
{
    const size_t n = list ? list->n : 0;
    struct entry *pairs = run_take(run, (2 * n + 1) * sizeof *pairs);
    for (size_t i = 0; i < n && !failed(run); i++)
        pairs[i] = (struct entry){order_key(run, list->items[i], attribute, with_case), list->items[i]};
    if (!failed(run))
        merge_sort(run, pairs, pairs + n, n, descending);
    const struct value sorted = new_list(run, LIST, n);
    for (size_t i = 0; i < n && !failed(run); i++)
        list_add(run, sorted.list, pairs[i].value);
    return sorted;
}

static struct value sort(struct run *run, struct value value, const struct arguments *a)
{
    return in_order(run, iterate(run, value), argument(a, 2, "attribute", none()),
                    truth(argument(a, 1, "case_sensitive", boolean(false))), truth(argument(a, 0, "reverse", boolean(false))));
}

static struct value sort_dict(struct run *run, struct value value, const struct arguments *a)
{
    if (value.kind != V_DICT) {
        run_fail(run, "dictsort: found %s, expected a dict", type_name(value));
        return value;
    }
    const bool by_value = is_text(argument(a, 1, "by", none()), "value");
    return in_order(run, dict_items(run, value.dict, 0).list, integer(by_value),
                    truth(argument(a, 0, "case_sensitive", boolean(false))), truth(argument(a, 2, "reverse", boolean(false))));
}

// how: -1 the least, 1 the most
static struct value extreme(struct run *run, struct value value, const struct arguments *a)
{
    const bool with_case = truth(argument(a, 0, "case_sensitive", boolean(false)));
    const struct value attribute = argument(a, 1, "attribute", none());
    const struct list *list = iterate(run, value);
    struct value best = undefined("the extreme of an empty list"), best_key = none();
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        const struct value key = order_key(run, list->items[i], attribute, with_case);
        if (i == 0 || compare(run, key, best_key) == a->how) {
            best = list->items[i];
            best_key = key;
        }
    }
    return best;
}

static struct value unique(struct run *run, struct value value, const struct arguments *a)
{
    const bool with_case = truth(argument(a, 0, "case_sensitive", boolean(false)));
    const struct value attribute = argument(a, 1, "attribute", none());
    const struct list *list = iterate(run, value);
    const struct value found = new_list(run, GENERATOR, 8), seen = new_dict(run, V_DICT);
    for (size_t i = 0; list && i < list->n && !failed(run); i++) {
        const struct value key = order_key(run, list->items[i], attribute, with_case);
        if (failed(run) || dict_find(run, seen.dict, key))
            continue;
        dict_set(run, seen.dict, key, none());
        list_add(run, found.list, list->items[i]);
    }
    return found;
}

// ------------------------------------------------------------------------------------------ all of them

static const struct {
    const char *name;
    filter *apply;
    int how;
} filters[] = {
    {"tojson", to_json, 0},
    {"from_json", from_json, 0},
    {"string", to_string, 0},
    {"trim", trim, 0},
    {"lower", change_case, LOWER},
    {"upper", change_case, UPPER},
    {"capitalize", change_case, CAPITAL},
    {"replace", replace_in, 0},
    {"indent", indent, 0},
    {"int", to_int, 0},
    {"default", use_default, 0},
    {"d", use_default, 0},
    {"safe", safe, 0},
    {"length", length, 0},
    {"count", length, 0},
    {"list", to_list, 0},
    {"items", items, 0},
    {"join", join, 0},
    {"first", at_end, 0},
    {"last", at_end, 1},
    {"reverse", reverse, 0},
    {"map", map, 0},
    {"select", choose, WANTED},
    {"reject", choose, 0},
    {"selectattr", choose, WANTED | OF_ATTRIBUTE},
    {"rejectattr", choose, OF_ATTRIBUTE},
    {"sort", sort, 0},
    {"dictsort", sort_dict, 0},
    {"min", extreme, -1},
    {"max", extreme, 1},
    {"unique", unique, 0},
};

int filter_find(struct value name)
{
    for (int i = 0; i < (int)(sizeof filters / sizeof *filters); i++)
        if (is_text(name, filters[i].name))
            return i;
    return -1;
}

struct value filter_apply(struct run *run, int which, struct value value, const struct arguments *arguments)
{
    if (failed(run) || !run_step(run, 1) || (value.kind == V_STRING && !run_pass(run, value.length)))
        return undefined(NULL);
    struct arguments own = *arguments;
    own.how = filters[which].how;
    return filters[which].apply(run, value, &own);
}
