#include "model/bf12.h"

void bf12_to_bf16(uint16_t *to, const void *w, int first_row, int last_row, int cols)
{
    for (int r = first_row; r < last_row; r++, to += cols) {
        const struct bf12_row row = bf12_row_at((const char *)w + (size_t)r * bf12_row_bytes(cols), cols);
        for (int c = 0; c < cols; c++)
            to[c] = bf12_number(&row, c);
        bf12_put_exceptions(to, &row, cols);
    }
}

void bf12_to_fp32(float *y, const void *w, int cols, int row, int first, int n)
{
    const struct bf12_row at = bf12_row_at((const char *)w + (size_t)row * bf12_row_bytes(cols), cols);
    for (int c = 0; c < n; c++)
        y[c] = bf16_value(bf12_number(&at, first + c));
    for (int i = 0; i < at.header.n_exceptions; i++)
        if (at.exceptions[i].col >= first && at.exceptions[i].col < first + n)
            y[at.exceptions[i].col - first] = bf16_value(at.exceptions[i].value);
}
