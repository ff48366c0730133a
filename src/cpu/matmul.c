#include "cpu/matmul.h"

// Shares of rows are whole multiples of this, so that the kernels' register tiles are mostly full and, with rows of an even
// length, no two threads write one cache line.
enum { ROW_GRAIN = 16 };

void matmul_pack(struct cpu_state *s, int thread, const float *x, int n, int cols)
{
    if (n <= s->kernels->matvec_max)
        return;
    const struct span span = team_share(s->team, thread, cols, 64);
    if (span.first < span.last)
        s->kernels->pack_tokens(s->packed, x, cols, n, cols, span.first, span.last);
    team_barrier(s->team);
}

void matmul_rows(struct cpu_state *s, int thread, const struct product *p, struct span rows, const float *x, int n)
{
    const struct cpu_kernels *kernels = s->kernels;
    const struct matrix *w = p->w;
    if (rows.first >= rows.last)
        return;
    float *y = p->y + rows.first;
    if (n <= kernels->matvec_max)
        kernels->matvec[w->dtype](y, w->rows, w->data, rows.first, rows.last, w->cols, x, w->cols, n);
    else
        kernels->matmul[w->dtype](&(struct matmul_args){
            .y = y,
            .ldy = w->rows,
            .w = w->data,
            .first_row = rows.first,
            .last_row = rows.last,
            .cols = w->cols,
            .packed = s->packed,
            .n = n,
            .scratch = s->matmul_scratch + thread * s->matmul_scratch_bytes,
        });
    if (p->bias)
        for (int t = 0; t < n; t++)
            kernels->add(y + (ptrdiff_t)t * w->rows, p->bias + rows.first, rows.last - rows.first);
}

void matmul_shared(struct cpu_state *s, int thread, const struct product *products, int n_products, const float *x, int n)
{
    matmul_pack(s, thread, x, n, products[0].w->cols);
    int total = 0;
    for (int i = 0; i < n_products; i++)
        total += products[i].w->rows;
    const struct span share = team_share(s->team, thread, total, ROW_GRAIN);
    for (int i = 0, base = 0; i < n_products; base += products[i].w->rows, i++) {
        const int rows = products[i].w->rows;
        const int first = share.first > base ? share.first - base : 0;
        const int last = share.last < base + rows ? share.last - base : rows;
        matmul_rows(s, thread, &products[i], (struct span){first, last}, x, n);
    }
}
