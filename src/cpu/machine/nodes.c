#include "cpu/machine/nodes.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES_MAX = 1024, LONG_BITS = sizeof(long) * CHAR_BIT };

static int node_of(int cpu)
{
    for (int node = 0; cpu >= 0 && node < NODES_MAX; node++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
        if (access(path, F_OK) == 0)
            return node;
    }
    return 0;
}

void nodes_of(const int *cpus, int n, int *nodes)
{
    for (int i = 0; i < n; i++)
        nodes[i] = node_of(cpus[i]);
}

void nodes_move(const void *at, size_t bytes, int node)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)at + page - 1) / page * page,
                    end = ((uintptr_t)at + bytes) / page * page;
    unsigned long mask[NODES_MAX / LONG_BITS] = {0};
    mask[node / LONG_BITS] = 1UL << node % LONG_BITS;
    if (begin < end)
        syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, mask, NODES_MAX + 1UL, MPOL_MF_MOVE);
}
