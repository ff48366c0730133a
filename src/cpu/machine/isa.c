// Kernels by name. Which there are, each processor has a file for: isa_x86_64.c, isa_aarch64.c.
#include "cpu/machine/isa.h"

#include <stdlib.h>
#include <string.h>

const struct cpu_kernels *const *cpu_kernels_usable(void)
{
    const char *best = getenv("YALM_ISA");
    const struct cpu_kernels *const *list = cpu_kernels_of_machine();
    while (best && *list && strcmp((*list)->name, best) != 0)
        list++;
    return list;
}

const struct cpu_kernels *cpu_kernels_select(const char *isa)
{
    const struct cpu_kernels *const *list = cpu_kernels_usable();
    if (!strcmp(isa, "auto"))
        return *list;
    for (; *list; list++)
        if (!strcmp(isa, (*list)->name))
            return *list;
    return NULL;
}
