#include "chat/members.h"

#include "chat/strings.h"

struct value dict_items(struct run *run, const struct dict *dict, int which)
{
    static const enum list_flavour flavours[] = {DICT_ITEMS, DICT_KEYS, DICT_VALUES};
    const struct value list = new_list(run, flavours[which], dict->n);
    for (size_t i = 0; i < dict->n && !failed(run); i++) {
        struct value item = which == 1 ? dict->entries[i].key : dict->entries[i].value;
        if (which == 0) {
            item = new_list(run, TUPLE, 2);
            list_add(run, item.list, dict->entries[i].key);
            list_add(run, item.list, dict->entries[i].value);
        }
        list_add(run, list.list, item);
    }
    return list;
}

struct list *iterate(struct run *run, struct value value)
{
    if (failed(run))
        return NULL;
    if (value.kind == V_LIST)
        return value.list;
    if (value.kind == V_DICT) {
        const struct value keys = dict_items(run, value.dict, 1);
        return failed(run) ? NULL : keys.list;
    }
    if (value.kind == V_STRING)
        return characters(run, value);
    if (value.kind == V_UNDEFINED)
        return new_list(run, LIST, 0).list;
    run_fail(run, "'%s' object is not iterable", type_name(value));
    return NULL;
}

bool contains(struct run *run, struct value container, struct value item)
{
    if (container.kind == V_STRING) {
        if (item.kind == V_STRING)
            return text_find(run, container, item, 0) != SIZE_MAX;
        return run_fail(run, "'in <string>' requires string as left operand, not %s", type_name(item));
    }
    if (container.kind == V_DICT)
        return dict_find(run, container.dict, item) != NULL;
    const struct list *list = iterate(run, container);
    for (size_t i = 0; list && i < list->n; i++)
        if (equal(run, list->items[i], item))
            return true;
    return false;
}
