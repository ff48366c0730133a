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
    const struct cpu_kernels *kernels = cpu_kernels_usable()[i];
    return kernels ? kernels->name : NULL;
}
