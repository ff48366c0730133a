// Arithmetic and slices, as Python has them.
#pragma once
#include "chat/tree.h"

struct value arithmetic(struct run *run, enum node_kind operation, struct value a, struct value b); // N_ADD to N_MOD
struct value signed_number(struct run *run, struct value number, bool negative);
struct value slice_list(struct run *run, const struct list *list, struct value start, struct value stop, struct value step);
