// What the control groups of this process let it have: its own and all above it, of v2, or of v1 where that has the controller.
#pragma once
#include <stdint.h>

// The system's files; a test has others.
struct cgroup_system {
    const char *mounted; // "/sys/fs/cgroup"
    const char *own;     // "/proc/self/cgroup"
};
extern const struct cgroup_system cgroup_system;

// CPUs that the smallest quota allows; INFINITY where there is none.
double cgroup_cpus(const struct cgroup_system *system);

// Bytes that the nearest limit still allows; UINT64_MAX where there is none. Page cache counts as free, since it can be taken
// back.
uint64_t cgroup_memory_left(const struct cgroup_system *system);

// The number after `key` in a file of "key number" or "key: number" lines, or the file's first number where key is "";
// UINT64_MAX if there is none.
uint64_t cgroup_number(const char *path, const char *key);
