// Rows that lie far from each other are copied one after another: what follows then reads one run.
#pragma once
#include <stdbool.h>
#include <string.h>

#include "cpu/kernels/vec/vec.h"

VEC_INLINE void gather_rows(void *to, const void *from, size_t row_bytes, const int *rows, int n)
{
    const size_t vec_bytes = VEC * sizeof(float), rest = row_bytes % vec_bytes;
    for (int j = 0; j < n; j++) {
        const char *row = (const char *)from + (size_t)rows[j] * row_bytes;
        char *copy = (char *)to + (size_t)j * row_bytes;
        for (size_t at = 0; at + vec_bytes <= row_bytes; at += vec_bytes)
            vec_store((float *)(copy + at), vec_load((const float *)(row + at)));
        if (rest > 0)
            memcpy(copy + row_bytes - rest, row + row_bytes - rest, rest);
    }
}
