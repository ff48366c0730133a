// What matrices read, observed for importance (model/importance.h).
#pragma once
#include "cpu/state.h"

// Adds the squares of n tokens' x (n, cols) to an input's sums: one step; none where `sums`, which all members of a run agree on, is NULL.
void observe(struct member *me, struct input_sums *sums, int input, const float *x, int n, int cols);
