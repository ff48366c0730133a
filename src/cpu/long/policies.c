// The attention methods that a session can be opened with.

#include <string.h>

#include "cpu/long/method.h"

const struct policy *const policies[] = {&policy_dense, &policy_sparq, &policy_nomad, &policy_hybrid, NULL};

const struct policy *policy_find(const char *name)
{
    for (const struct policy *const *p = policies; *p; p++)
        if (strcmp((*p)->name, name) == 0)
            return *p;
    return NULL;
}
