// Looks into values: value.name and value[key].

#include <string.h>

#include "chat/builtins.h"
#include "chat/strings.h"

static struct value loop_attribute(const struct loop *loop, struct value name, bool *found)
{
    const struct list *list = loop->list;
    const int64_t index = (int64_t)loop->index, n = (int64_t)list->n;
    const struct {
        const char *name;
        struct value value;
    } attributes[] = {
        {"index", integer(index + 1)},
        {"index0", integer(index)},
        {"revindex", integer(n - index)},
        {"revindex0", integer(n - index - 1)},
        {"first", boolean(index == 0)},
        {"last", boolean(index + 1 == n)},
        {"length", integer(n)},
        {"depth", integer(1)},
        {"depth0", integer(0)},
        {"previtem", index > 0 ? list->items[index - 1] : undefined("there is no previous item")},
        {"nextitem", index + 1 < n ? list->items[index + 1] : undefined("there is no next item")},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (is_text(name, attributes[i].name)) {
            *found = true;
            return attributes[i].value;
        }
    return none();
}

// Finds an attribute or a method, as Python's getattr() does.
static bool own_attribute(struct run *run, struct value value, struct value name, struct value *result)
{
    bool found = false;
    if (value.kind == V_NAMESPACE) {
        const struct value *member = dict_find(run, value.dict, name);
        if (member)
            *result = *member;
        return member != NULL;
    }
    if (value.kind == V_LOOP) {
        *result = loop_attribute(value.loop, name, &found);
        if (found)
            return true;
    }
    return name.kind == V_STRING && method_find(run, value, name, result);
}

static bool list_item(const struct list *list, struct value key, struct value *result)
{
    if (list->flavour > RANGE || (key.kind != V_INT && key.kind != V_BOOL))
        return false;
    int64_t index = as_integer(key);
    if (index < 0)
        index += (int64_t)list->n;
    if (index < 0 || index >= (int64_t)list->n)
        return false;
    *result = list->items[index];
    return true;
}

// Finds an item, as Python's value[key] does.
static bool own_item(struct run *run, struct value value, struct value key, struct value *result)
{
    if (value.kind == V_LIST)
        return list_item(value.list, key, result);
    if (value.kind == V_DICT) {
        const struct value *member = dict_find(run, value.dict, key);
        if (member)
            *result = *member;
        return member != NULL;
    }
    if (value.kind == V_STRING && (key.kind == V_INT || key.kind == V_BOOL)) {
        *result = run_pass(run, value.length) ? character_at(value, as_integer(key)) : undefined(NULL);
        return result->kind == V_STRING;
    }
    return false;
}

static bool refuse_undefined(struct run *run, struct value value, struct value name)
{
    if (value.kind != V_UNDEFINED)
        return failed(run);
    if (value.text)
        run_fail(run, "'%s' is undefined", value.text);
    else
        run_fail(run, "an undefined value has no items, such as '%.*s'", name.kind == V_STRING ? (int)name.length : 1,
                 name.kind == V_STRING ? name.text : "?");
    return true;
}

void check_attribute(struct run *run, struct value name)
{
    if (name.kind == V_STRING && name.length && name.text[0] == '_')
        run_fail(run, "chat templates cannot store underscore-prefixed attributes on a namespace: '%.*s'", (int)name.length,
                 name.text);
}

// The name is a constant of the tree, or a string that may end without a NUL.
static struct value missing(struct run *run, struct value key)
{
    char *name = key.kind == V_STRING ? run_take(run, (size_t)key.length + 1) : NULL;
    if (name == NULL)
        return undefined(NULL);
    memcpy(name, key.text, key.length);
    name[key.length] = '\0';
    return undefined(name);
}

struct value get_attribute(struct run *run, struct value value, struct value name)
{
    struct value result;
    if (failed(run) || refuse_undefined(run, value, name))
        return undefined(NULL);
    if (own_attribute(run, value, name, &result) || own_item(run, value, name, &result))
        return result;
    return missing(run, name);
}

struct value get_item(struct run *run, struct value value, struct value key)
{
    struct value result;
    if (failed(run) || refuse_undefined(run, value, key))
        return undefined(NULL);
    if (own_item(run, value, key, &result) || (key.kind == V_STRING && own_attribute(run, value, key, &result)))
        return result;
    return missing(run, key);
}

// A part of a path that is all digits is an index.
static struct value path_key(struct value part)
{
    int64_t index = 0;
    for (size_t i = 0; i < part.length; i++) {
        if (part.text[i] < '0' || part.text[i] > '9' || part.length > 9)
            return part;
        index = 10 * index + part.text[i] - '0';
    }
    return part.length ? integer(index) : part;
}

static struct value get_part(struct run *run, struct value value, struct value key, struct value otherwise)
{
    value = get_item(run, value, key);
    return value.kind == V_UNDEFINED && otherwise.kind != V_NONE ? otherwise : value;
}

struct value get_path(struct run *run, struct value value, struct value path, struct value otherwise)
{
    if (path.kind != V_STRING)
        return get_part(run, value, path, otherwise);
    const struct value parts = split(run, path, string_of("."), -1);
    for (size_t i = 0; !failed(run) && i < parts.list->n; i++) {
        value = get_part(run, value, path_key(parts.list->items[i]), otherwise);
    }
    return value;
}
