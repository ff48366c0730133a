// Arithmetic on sizes that come from a file or a user: false where the result would wrap.
#pragma once
#include <stdbool.h>
#include <stdint.h>

static inline bool mul_checked(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool add_checked(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

// True where [offset, offset + length) lies inside [0, size): compared by subtraction, since a sum could wrap.
static inline bool inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}
