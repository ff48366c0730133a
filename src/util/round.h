#pragma once
#include <stddef.h>

// The least multiple of `unit` that is not below n.
static inline size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}
