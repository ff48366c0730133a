// Matrix products shared among the team.
#pragma once
#include "cpu/state.h"

struct product { // y = W x + bias
    const struct matrix *w;
    const float *bias; // (w->rows), or NULL
    float *y;          // (n, w->rows)
};

// Several products of the same input in one dispatch: the rows of all of them, one after another, are shared out evenly.
// x: (n, cols). Packs x for the kernels where n is large, which takes a barrier; no barrier afterwards.
void matmul_shared(struct cpu_state *state, int thread, const struct product *products, int n_products, const float *x, int n);

// One product, of which this thread has rows `rows`, for callers that go on with their own rows: returns with these done.
// `x` must have been packed by matmul_pack() and a barrier where n > kernels->matvec_max.
void matmul_rows(struct cpu_state *state, int thread, const struct product *product, struct span rows, const float *x, int n);
void matmul_pack(struct cpu_state *state, int thread, const float *x, int n, int cols);
