#include "cpu/machine/cores.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "cpu/machine/team.h"
#include "util/cgroup.h"

// The lowest-numbered hardware thread of `cpu`'s core; `cpu` itself where the system does not say.
static int first_sibling(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (!file)
        return cpu;
    int first = cpu;
    if (fscanf(file, "%d", &first) != 1)
        first = cpu;
    fclose(file);
    return first;
}

int cores_of(cpu_set_t *mask, int *cores, int most)
{
    if (sched_getaffinity(0, sizeof *mask, mask) != 0)
        return 0;
    bool seen[CPU_SETSIZE] = {false};
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && n < most; cpu++) {
        if (!CPU_ISSET(cpu, mask))
            continue;
        const int core = first_sibling(cpu);
        const int slot = core >= 0 && core < CPU_SETSIZE ? core : cpu;
        if (!seen[slot])
            cores[n++] = cpu;
        seen[slot] = true;
    }
    return n;
}

int team_default_threads(void)
{
    cpu_set_t mask;
    int cores[CPU_SETSIZE];
    const int n_cores = cores_of(&mask, cores, CPU_SETSIZE), most = n_cores < TEAM_MAX ? n_cores : TEAM_MAX;
    const double quota = ceil(cgroup_cpus(&cgroup_system));
    const int n = quota < most ? (int)quota : most;
    return n < 1 ? 1 : n;
}
