// Matrix products shared among the team. Each function is one or two steps of a run (team.h), and returns when they are over.
#pragma once
#include <limits.h>

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

// For callers that go on with the rows that they have just computed:
//
//     matmul_pack(state, me, matmul_form(state, w), x, n, w->cols);
//     while (matmul_claim(state, me, w, w->rows, n, &rows)) {
//         matmul_rows(state, me, &product, rows, x, n);
//         …
//     }
//
// matmul_pack() brings x into the forms that the kernels of these matrices want, each in a step of its own: always, or, where it
// knows for good that a form is not needed, never.
enum { // as bits: products of one x may have matrices of several types
    FORM_PACKED = 1,
    FORM_QUANTISED = 2,
    FORM_HALVES = 4,         // of matmul_least_halves() tokens and more; of fewer:
    FORM_FEW_PACKED = 8,     // the form of floats,
    FORM_FEW_QUANTISED = 16, // or that of quantised matrices
    FORM_UNPACKED = 32,      // not of x: rows of the matrix are unpacked first
    FORM_OF_FP32 = 64,       // likewise: of which types matrices there are
    FORM_OF_FP16 = 128
};

// What the kernels of many tokens multiply instead of a type: bf12's rows are unpacked for them.
static inline enum dtype matmul_type(enum dtype type)
{
    return type == DTYPE_BF12 ? DTYPE_BF16 : type;
}

// What multiplies n tokens in 16 bits; NULL where too few for any.
static inline const struct half_kernels *matmul_halves(const struct cpu_state *s, int n)
{
    const struct half_kernels *half = s->half;
    while (half && n < half->least)
        half = half->few;
    return half;
}
// From how many tokens on there are such; INT_MAX: never.
static inline int matmul_least_halves(const struct cpu_state *s)
{
    return !s->half ? INT_MAX : s->half->few ? s->half->few->least : s->half->least;
}

static inline int matmul_form(const struct cpu_state *s, const struct matrix *w)
{
    const bool quantised = dtype_group_bytes[w->dtype];
    const int of_matrix = w->dtype == DTYPE_BF12   ? FORM_UNPACKED
                          : w->dtype == DTYPE_FP32 ? FORM_OF_FP32
                          : w->dtype == DTYPE_FP16 ? FORM_OF_FP16
                                                   : 0;
    if (s->half && s->half->product[matmul_type(w->dtype)])
        return of_matrix | FORM_HALVES | (quantised ? FORM_FEW_QUANTISED : FORM_FEW_PACKED);
    return of_matrix | (quantised ? FORM_QUANTISED : FORM_PACKED);
}
size_t matmul_groups_bytes(const struct cpu_state *state, int n, int cols); // what it quantises n tokens apart to
// Where member->apart, set at a run's beginning, each of at most MOST_APART tokens has the bits that it would have alone.
void matmul_pack(struct cpu_state *state, struct member *me, int forms, const float *x, int n, int cols);

// The next rows of a step of `rows` rows, most of them of matrices like w.
bool matmul_claim(const struct cpu_state *state, struct member *me, const struct matrix *w, int rows, int n, struct span *span);

// What the member will read next (n_matrices matrices in one step), to be fetched while it waits for others. Before the claims of the step before.
void matmul_ahead(const struct cpu_state *state, struct member *me, const struct matrix *const *w, int n_matrices, int n);

// Tokens that are few, whatever the matrix: their products read it as decode's do, in long claims. Some matrices' do with some more, too.
int matmul_most_few(const struct cpu_state *s);

// Rows that a claim of many tokens' has at most, whatever the matrix.
int matmul_most_rows(const struct cpu_state *s);

void matmul_rows(struct cpu_state *state, const struct member *me, const struct product *product, struct span rows,
                 const float *x, int n);

// The same, where what the rows give is wanted by this member at once, and by nobody later: y (n, rows.last - rows.first), in memory of the member's
// own, which stays in its cache. It lasts until the next such call.
float *matmul_rows_here(struct cpu_state *state, const struct member *me, const struct matrix *w, const float *bias,
                        struct span rows, const float *x, int n);
size_t matmul_rows_here_floats(const struct cpu_state *state); // a member's
