// Transposition by eights of floats, for whatever a `float8` is: included by vec/vec_256.h and vec/vec_neon.h, which have
// float8_load(), float8_store() and transpose_8x8().
#pragma once
#include "cpu/kernels/vec/common.h"

// to[c * ldto + r] = from[r * ldfrom + c] for r < rows, c < cols.
static inline void transpose(float *to, ptrdiff_t ldto, const float *from, ptrdiff_t ldfrom, int rows, int cols)
{
    for (ptrdiff_t c = 0; c < cols; c += 8) // in this order, for the rows of `to` may be pages apart
        for (ptrdiff_t r = 0; r < rows; r += 8)
            if (rows - r >= 8 && cols - c >= 8) {
                float8 row[8];
                for (int i = 0; i < 8; i++)
                    row[i] = float8_load(from + (r + i) * ldfrom + c);
                transpose_8x8(row);
                for (int i = 0; i < 8; i++)
                    float8_store(to + (c + i) * ldto + r, row[i]);
            } else {
                for (ptrdiff_t i = r; i < rows && i < r + 8; i++)
                    for (ptrdiff_t j = c; j < cols && j < c + 8; j++)
                        to[j * ldto + i] = from[i * ldfrom + j];
            }
}
