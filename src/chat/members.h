// What values are made of: items of lists and dicts, characters of strings.
#pragma once
#include "chat/value.h"

// Pairs of (key, value) as tuples (which 0), keys (1) or values (2).
struct value dict_items(struct run *run, const struct dict *dict, int which);
// The items of a list, the keys of a dict, the characters of a string. NULL, with the run failed, where the value has no items.
struct list *iterate(struct run *run, struct value value);
bool contains(struct run *run, struct value container, struct value item);
