#include "util/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "util/cgroup.h"
#include "util/round.h"

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

// False where the administrator has turned them off, or the kernel was built without them.
static bool huge_pages_enabled(void)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (!file)
        return false;
    char line[64] = "";
    const bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    return read && !strstr(line, "[never]");
}

void *memory_huge_pages(uint64_t bytes, uint64_t *taken, const char **why)
{
    *taken = 0;
    *why = "/sys/kernel/mm/transparent_hugepage/enabled says never";
    if (!huge_pages_enabled())
        return NULL;
    // Address space for one page more, so that a whole number of them can begin at a multiple of their size.
    const uint64_t whole = round_up(bytes, HUGE_PAGE);
    uint8_t *block = mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *why = strerror(errno);
    if (block == MAP_FAILED)
        return NULL;
    uint8_t *start = (uint8_t *)round_up((uintptr_t)block, HUGE_PAGE);
    if (start > block)
        munmap(block, (size_t)(start - block));
    munmap(start + whole, (size_t)(block + HUGE_PAGE - start));
    if (madvise(start, whole, MADV_HUGEPAGE) != 0) {
        *why = strerror(errno);
        munmap(start, whole);
        return NULL;
    }
    *taken = whole;
    return start;
}

uint64_t memory_available(void)
{
    const uint64_t kib = cgroup_number("/proc/meminfo", "MemAvailable:");
    const uint64_t available = kib == UINT64_MAX ? UINT64_MAX : kib * 1024, left = cgroup_memory_left(&cgroup_system);
    return left < available ? left : available;
}
