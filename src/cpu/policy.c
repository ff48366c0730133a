#include "cpu/policy.h"

#include <string.h>

#include "cpu/state.h"

static void dense_append(struct cpu_state *s, const struct append *row)
{
    cpu_store_key(s, row->layer, row->kv_head, row->slot, row->k);
    cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
}

static bool dense_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    (void)s, (void)n, (void)position, (void)layer;
    return false; // what every batch does to which no method applies
}

const struct policy policy_dense = {.name = "dense", .append = dense_append, .applies = dense_applies};

const struct policy *policy_find(const char *name)
{
    for (const struct policy *const *p = policies; *p; p++)
        if (strcmp((*p)->name, name) == 0)
            return *p;
    return NULL;
}
