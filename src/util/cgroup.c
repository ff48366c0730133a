#include "util/cgroup.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const struct cgroup_system cgroup_system = {"/sys/fs/cgroup", "/proc/self/cgroup"};

enum { GROUP_PATH = 4096 };

uint64_t cgroup_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return UINT64_MAX;
    char line[256];
    unsigned long long value;
    uint64_t found = UINT64_MAX;
    while (found == UINT64_MAX && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), " %llu", &value) == 1)
            found = value;
    fclose(file);
    return found;
}

static uint64_t number_in(const char *folder, const char *name, const char *key)
{
    char path[GROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return cgroup_number(path, key);
}

// Whether `name` is one of a list that commas divide.
static bool names(const char *list, size_t length, const char *name)
{
    for (const char *at = list; at < list + length;) {
        const size_t n = strcspn(at, ",:");
        if (n == strlen(name) && !strncmp(at, name, n))
            return true;
        at += n + 1;
    }
    return false;
}

// The process's group, from the line of this controller ("": v2's): "4:memory:/a/b" is "/a/b". "" is the topmost one; a
// container sees its own group there.
static void own_group(const struct cgroup_system *system, const char *controller, char group[GROUP_PATH])
{
    group[0] = 0;
    FILE *file = fopen(system->own, "r");
    if (!file)
        return;
    char line[GROUP_PATH];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        const size_t length = (size_t)(path - list) - 1;
        const bool it_is = controller[0] ? names(list + 1, length, controller) : length == 0;
        if (it_is && strcmp(path + 1, "/") != 0 && !strstr(path + 1, "/..")) // of a group outside a namespace
            snprintf(group, GROUP_PATH, "%s", path + 1);
    }
    fclose(file);
}

typedef void visitor(void *found, const char *folder, bool v1);

// The process's group and those above it, of both versions: a controller belongs to one of them, and the other's folders lack
// its files.
static void each_group(const struct cgroup_system *system, const char *controller, visitor *visit, void *found)
{
    for (int v1 = 0; v1 < 2; v1++) {
        char top[GROUP_PATH], group[GROUP_PATH], folder[2 * GROUP_PATH];
        snprintf(top, sizeof top, "%s%s%s", system->mounted, v1 ? "/" : "", v1 ? controller : "");
        own_group(system, v1 ? controller : "", group);
        for (;;) {
            snprintf(folder, sizeof folder, "%s%s", top, group);
            visit(found, folder, v1);
            if (!group[0])
                break;
            *strrchr(group, '/') = 0;
        }
    }
}

static void see_quota(void *found, const char *folder, bool v1)
{
    double quota = -1, period = 1, *least = found;
    if (v1) {
        const uint64_t q = number_in(folder, "cpu.cfs_quota_us", ""), p = number_in(folder, "cpu.cfs_period_us", "");
        if (q < INT64_MAX && p < INT64_MAX) { // "-1": none
            quota = (double)q;
            period = (double)p;
        }
    } else {
        char path[2 * GROUP_PATH + 64];
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        FILE *file = fopen(path, "r"); // "max 100000" or "200000 100000"
        if (file && fscanf(file, "%lf %lf", &quota, &period) != 2)
            quota = -1;
        if (file)
            fclose(file);
    }
    if (quota > 0 && period > 0 && quota / period < *least)
        *least = quota / period;
}

double cgroup_cpus(const struct cgroup_system *system)
{
    double least = INFINITY;
    each_group(system, "cpu", see_quota, &least);
    return least;
}

static void see_memory(void *found, const char *folder, bool v1)
{
    uint64_t *least = found;
    const uint64_t limit = number_in(folder, v1 ? "memory.limit_in_bytes" : "memory.max", "");
    uint64_t used = number_in(folder, v1 ? "memory.usage_in_bytes" : "memory.current", "");
    const uint64_t cache = number_in(folder, "memory.stat", v1 ? "total_cache " : "file ");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return;
    if (cache != UINT64_MAX)
        used -= cache < used ? cache : used;
    const uint64_t left = limit > used ? limit - used : 0;
    *least = left < *least ? left : *least;
}

uint64_t cgroup_memory_left(const struct cgroup_system *system)
{
    uint64_t least = UINT64_MAX;
    each_group(system, "memory", see_memory, &least);
    return least;
}
