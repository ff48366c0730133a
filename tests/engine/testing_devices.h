// The device that a test of sessions runs on: the CPU, or the one that the program's argument names.
#pragma once
#include <string.h>

#include "cpu/machine/isa.h"

static const char *device = "cpu";

static inline bool on_gpu(void)
{
    return strcmp(device, "cpu") != 0;
}

// The instruction sets to test there, one after the other; NULL: no further one.
static inline const char *isa_to_test(int i)
{
    if (on_gpu())
        return i == 0 ? "auto" : NULL;
    const struct cpu_kernels *const *usable = cpu_kernels_usable();
#ifdef __SANITIZE_ADDRESS__ // the first and the last: what the others touch their own tests watch
    if (i > 1)
        return NULL;
    while (i == 1 && usable[1] && usable[2])
        usable++;
#endif
    return usable[i] ? usable[i]->name : NULL;
}
