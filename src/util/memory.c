#include "util/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

void *memory_pages(size_t bytes)
{
    if (bytes == 0)
        return NULL;
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    if (bytes >= 4 * (size_t)HUGE_PAGE)
        madvise(block, bytes, MADV_HUGEPAGE); // a hint: where the kernel has no huge pages, small ones serve
    return block;
}

void memory_pages_free(void *block, size_t bytes)
{
    if (block)
        munmap(block, bytes);
}

// The number after `key` in a file of "key: number kB" lines, or the file's only number where key is ""; UINT64_MAX if there is none.
static uint64_t number_in(const char *path, const char *key)
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

uint64_t memory_available(void)
{
    const uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t available = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;

    // cgroup v2, then v1. Page cache counts as used there, but can be taken back.
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "");
    uint64_t used = number_in("/sys/fs/cgroup/memory.current", "");
    uint64_t cache = number_in("/sys/fs/cgroup/memory.stat", "file ");
    if (limit == UINT64_MAX) {
        limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
        used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", "");
        cache = number_in("/sys/fs/cgroup/memory/memory.stat", "total_cache ");
    }
    if (limit != UINT64_MAX && used != UINT64_MAX) {
        if (cache != UINT64_MAX)
            used -= cache < used ? cache : used;
        const uint64_t left = limit > used ? limit - used : 0;
        if (left < available)
            available = left;
    }
    return available;
}
