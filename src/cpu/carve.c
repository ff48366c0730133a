// See policy.h.

#include "cpu/policy.h"
#include "util/round.h"

enum { CACHE_LINE = 64 };

void *carve(struct carver *carver, size_t count, size_t size)
{
    const size_t at = carver->used;
    carver->used += round_up(count * size, CACHE_LINE);
    return carver->base ? carver->base + at : NULL;
}
