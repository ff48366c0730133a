// Functions that every template has.

#include <string.h>
#include <time.h>

#include "chat/builtins.h"
#include "chat/print.h"

enum { MAX_RANGE = 100 * 1000 }; // as in Jinja's sandbox

typedef struct value function(struct run *run, const struct arguments *arguments);

// Makes a dict: the members of a dict given by place, then the arguments given by name.
static struct value members(struct run *run, const struct arguments *a, enum value_kind kind)
{
    const struct value made = new_dict(run, kind), from = argument(a, 0, NULL, none());
    if (from.kind != V_DICT && from.kind != V_NONE)
        run_fail(run, "'%s' object is not a dict", type_name(from));
    for (size_t i = 0; from.kind == V_DICT && i < from.dict->n && !failed(run); i++)
        dict_set(run, made.dict, from.dict->entries[i].key, from.dict->entries[i].value);
    for (int i = 0; i < a->n_named && !failed(run); i++)
        dict_set(run, made.dict, a->names[i], a->values[a->n + i]);
    return made;
}

static struct value make_namespace(struct run *run, const struct arguments *a)
{
    const struct value made = members(run, a, V_NAMESPACE);
    for (size_t i = 0; !failed(run) && i < made.dict->n; i++)
        check_attribute(run, made.dict->entries[i].key);
    return made;
}

static struct value make_dict(struct run *run, const struct arguments *a)
{
    return members(run, a, V_DICT);
}

static struct value raise_exception(struct run *run, const struct arguments *a)
{
    const struct value text = as_text(run, argument(a, 0, "message", string("", 0)));
    return no_value(run, "%.*s", (int)text.length, text.text);
}

static struct value strftime_now(struct run *run, const struct arguments *a)
{
    char format[256], text[1024];
    const struct value given = argument(a, 0, "format", undefined("format"));
    if (given.kind != V_STRING || given.length >= sizeof format)
        return no_value(run, "strftime_now: found %s, expected a short string", type_name(given));
    memcpy(format, given.text, given.length);
    format[given.length] = '\0';
    const time_t now = time(NULL);
    struct tm local;
    const size_t n = localtime_r(&now, &local) ? strftime(text, sizeof text, format, &local) : 0;
    struct writer writer = {0};
    write_bytes(run, &writer, text, n);
    return written(&writer);
}

static struct value range(struct run *run, const struct arguments *a)
{
    int64_t bounds[3] = {0, 0, 1};
    for (int i = 0; i < a->n && i < 3; i++) {
        if (a->values[i].kind != V_INT && a->values[i].kind != V_BOOL)
            return no_value(run, "'%s' object cannot be interpreted as an integer", type_name(a->values[i]));
        bounds[a->n == 1 ? 1 : i] = as_integer(a->values[i]);
    }
    if (a->n < 1 || a->n > 3 || bounds[2] == 0)
        return no_value(run, "range() takes 1 to 3 integers, the third of them not zero");
    const struct value list = new_list(run, RANGE, 16);
    const int64_t step = bounds[2];
    for (int64_t i = bounds[0]; (step > 0 ? i < bounds[1] : i > bounds[1]) && !failed(run);) {
        if (list.list->n == MAX_RANGE)
            run_fail(run, "range() of more than %d numbers", MAX_RANGE);
        list_add(run, list.list, integer(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

static const struct {
    const char *name;
    function *call;
} functions[] = {
    {"namespace", make_namespace}, {"raise_exception", raise_exception}, {"strftime_now", strftime_now}, {"range", range},
    {"dict", make_dict},
};

int function_find(struct value name)
{
    for (int i = 0; i < (int)(sizeof functions / sizeof *functions); i++)
        if (is_text(name, functions[i].name))
            return i;
    return -1;
}

struct value function_call(struct run *run, int which, const struct arguments *arguments)
{
    return functions[which].call(run, arguments);
}
