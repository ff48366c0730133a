// Matrix products shared among the team. Each function is one or two steps of a run (team.h), and returns when they are over.
#pragma once
#include "cpu/state.h"

struct product { // y = W x + bias
    const struct matrix *w;
    const float *bias; // (w->rows), or NULL
    float *y;          // (n, w->rows)
};

// Several products of the same input in one step: the rows of all of them, one after another, are shared out.
// x: (n, cols).
void matmul_shared(struct cpu_state *state, struct member *me, const struct product *products, int n_products, const float *x,
                   int n);

// The same of float32 matrices with so few rows that they are not worth the forms which many tokens take for others. All are of
// one size.
void matmul_narrow(struct cpu_state *state, struct member *me, const struct product *products, int n_products, const float *x,
                   int n);

// A matrix of each head (heads->n of them, one above the other) by that head's part of x, as struct per_head says; by the
// kernels of few tokens, so that no token depends on those beside it. w: of floats. x: (n, heads->n, heads->in); y: (n,
// heads->n, heads->out).
void matmul_heads(struct cpu_state *state, struct member *me, const struct matrix *w, const struct per_head *heads,
                  const float *x, float *y, int n);

// For callers that go on with the rows that they have just computed:
//
//     matmul_pack(state, me, type_bit(w->dtype), x, n, w->cols);
//     while (matmul_claim(state, me, w, w->rows, n, &rows)) {
//         matmul_rows(state, me, &product, rows, x, n);
//         …
//     }
//
// matmul_pack() brings x into the forms that the kernels of these matrices want, each in a step of its own: always, or, where
// it knows for good that a form is not needed, never.
size_t matmul_groups_bytes(const struct cpu_state *state, int n, int cols); // what it quantises n tokens apart to
// The last member->apart tokens, of however many there are, each have the bits that they would have alone: all of at most
// MOST_APART, or one behind a prompt's others.
void matmul_pack(struct cpu_state *state, struct member *me, type_set types, const float *x, int n, int cols);

// The next rows of a step of `rows` rows, most of them of matrices like w.
bool matmul_claim(const struct cpu_state *state, struct member *me, const struct matrix *w, int rows, int n,
                  struct grains *span);

// The first row of a member's own share of such a step, of few tokens.
int matmul_share(const struct matrix *w, int rows, int thread, int n_threads);

// What the member will read next (n_matrices matrices in one step), to be fetched while it waits for others. Before the claims
// of the step before.
void matmul_ahead(const struct cpu_state *state, struct member *me, const struct matrix *const *w, int n_matrices, int n);

// Rows that a claim of many tokens' has at most, whatever the matrix.
int matmul_most_rows(const struct cpu_state *s);

void matmul_rows(struct cpu_state *state, const struct member *me, const struct product *product, struct grains rows,
                 const float *x, int n);

// The same, where what the rows give is wanted by this member at once, and by nobody later: y (n, rows.last - rows.first), in
// memory of the member's own, which stays in its cache. It lasts until the next such call.
float *matmul_rows_here(struct cpu_state *state, const struct member *me, const struct matrix *w, const float *bias,
                        struct grains rows, const float *x, int n);
size_t matmul_rows_here_floats(const struct cpu_state *state); // a member's

// What matrices read, observed for importance (model/importance.h): adds the squares and products of n tokens' x (n, cols) to
// an input's sums; none where `sums`, which all members of a run agree on, is NULL.
void matmul_observe(const struct cpu_state *state, struct member *me, struct input_sums *sums, int input, const float *x, int n,
                    int cols);
