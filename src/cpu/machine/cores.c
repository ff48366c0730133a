#include "cpu/machine/cores.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cpu/machine/team.h"

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

// CPUs that the cgroup's quota allows, rounded up; INT32_MAX where there is none.
static int cgroup_quota(void)
{
    double quota = -1, period = 1;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r"); // v2: "max 100000" or "200000 100000"
    if (file) {
        if (fscanf(file, "%lf %lf", &quota, &period) != 2)
            quota = -1;
        fclose(file);
    } else {
        FILE *q = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"), *p = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
        if (!q || !p || fscanf(q, "%lf", &quota) != 1 || fscanf(p, "%lf", &period) != 1)
            quota = -1;
        if (q)
            fclose(q);
        if (p)
            fclose(p);
    }
    if (quota <= 0 || period <= 0)
        return INT32_MAX;
    const int cpus = (int)((quota + period - 1) / period);
    return cpus > 0 ? cpus : 1;
}

int team_default_threads(void)
{
    cpu_set_t mask;
    int cores[CPU_SETSIZE];
    const int n_cores = cores_of(&mask, cores, CPU_SETSIZE), quota = cgroup_quota();
    const int n = n_cores < quota ? n_cores : quota;
    return n < 1 ? 1 : n > TEAM_MAX ? TEAM_MAX : n;
}
