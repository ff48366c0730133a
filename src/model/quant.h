// Quantised matrices, group by group and row by row, without the rows' scales (docs/format.md, "Quantised matrices").
#pragma once
#include "model/dtype.h"

// A group: column c is scale[c / 16] * (quants[c] + centre) + minimum[c / 16].
struct quant_group {
    int8_t quants[QUANT_GROUP];
    float scale[2], minimum[2];
    int centre;
};

// Group `group` of row `row` of a matrix that has `groups` in a row.
void quant_read_group(struct quant_group *to, enum dtype type, const void *w, int rows, size_t groups, int row, size_t group);

void quant_group_to_fp32(float values[QUANT_GROUP], const struct quant_group *group);
void quant_row_to_fp32(float *y, enum dtype type, const void *w, int rows, int cols, int row);
