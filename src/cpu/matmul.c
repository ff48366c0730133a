#include "cpu/matmul.h"

#include "util/round.h"

// Claims of rows are whole multiples of this, so that the kernels' register tiles are mostly full and no two threads write one
// cache line of an output whose rows are that long.
enum { ROW_UNIT = 16 };

// Decode: the last claims of a step, so short that nobody waits long for them. The first ones are long: streams begin anew at each.
enum { LAST_BYTES = 64 << 10 };

// Decode: of its share of the next product, what a member fetches while it waits. Well within an L2 cache.
enum { AHEAD_BYTES = 256 << 10 };

// Quantising a few tokens is so little work that a claim of fewer columns would cost more than it saves.
enum { QUANTISE_COLS = 1024 };

// Of tokens apart: rows that all groups multiply before the next ones are read.
enum { GROUPS_BYTES = 64 << 10 };

// Prefill: rows that the kernels keep in the cache together.
enum { BLOCK_ROWS = 128 };

// Quantised matrices multiply n tokens apart in groups of at most so many, each quantised by itself: then none depends on the others.
static int group_size(const struct cpu_state *s, int n)
{
    const int most = s->quant->alike, groups = (n + most - 1) / most;
    return s->apart && n > 0 ? (n + groups - 1) / groups : n;
}

static size_t group_bytes(const struct cpu_state *s, int cols)
{
    return round_up(s->quant->size(s->quant->alike, cols), 64);
}

size_t matmul_groups_bytes(const struct cpu_state *s, int n, int cols)
{
    return (size_t)((n + s->quant->alike - 1) / s->quant->alike) * group_bytes(s, cols);
}

static void quantise_groups(struct cpu_state *s, const float *x, int n, int cols, struct span span)
{
    const int size = group_size(s, n);
    uint8_t *to = s->quantised;
    for (int t = 0; t < n; t += size, to += group_bytes(s, cols))
        s->quant->quantise(to, x + (size_t)t * cols, cols, n - t < size ? n - t : size, cols, span.first, span.last);
}

void matmul_pack(struct cpu_state *s, struct member *me, int forms, const float *x, int n, int cols)
{
    const int few = s->kernels->matvec_max;
    const bool halves = forms & FORM_HALVES && matmul_halves(s, n);
    const bool pack = n > few && (forms & FORM_PACKED || (forms & FORM_FEW_PACKED && !halves));
    const bool quantise = n > 0 && (forms & FORM_QUANTISED || (forms & FORM_FEW_QUANTISED && !halves));
    if (forms & (FORM_PACKED | FORM_FEW_PACKED) && s->packed)
        for (struct span span; team_claim_near(me, pack ? cols : 0, 128, &span);)
            s->kernels->pack_tokens(s->packed, x, cols, n, cols, span.first, span.last);
    if (forms & FORM_HALVES && s->chunk >= matmul_least_halves(s))
        for (struct span span; team_claim_near(me, halves ? cols : 0, HALF_BLOCK, &span);)
            matmul_halves(s, n)->pack(s->halves, x, cols, n, cols, span.first, span.last);
    if (forms & (FORM_QUANTISED | FORM_FEW_QUANTISED))
        for (struct span span; team_claim_near(me, quantise ? cols : 0, n > few ? 128 : QUANTISE_COLS, &span);)
            quantise_groups(s, x, n, cols, span);
}

static int few_grain(const struct matrix *w)
{
    return (int)round_up(LAST_BYTES / dtype_row_bytes(w->dtype, w->cols) + 1, ROW_UNIT);
}

int matmul_most_few(const struct cpu_state *s)
{
    const int few = s->kernels->matvec_max; // at least as many as can be apart
    const int least = matmul_least_halves(s);
    return least <= few ? least - 1 : few;
}

bool matmul_claim(const struct cpu_state *s, struct member *me, const struct matrix *w, int rows, int n, struct span *span)
{
    if (n <= matmul_most_few(s))
        return team_claim_share(me, rows, few_grain(w), span);
    const int even = (int)round_up((size_t)(w->rows / (4 * team_size(s->team))) + 1, ROW_UNIT); // four claims for each member
    const struct half_kernels *half = matmul_form(s, w) & FORM_HALVES ? matmul_halves(s, n) : NULL;
    const int block = half ? half->rows : BLOCK_ROWS;
    return team_claim_near(me, rows, even < block ? even : block, span);
}

int matmul_most_rows(const struct cpu_state *s)
{
    return s->half && s->half->rows > BLOCK_ROWS ? s->half->rows : BLOCK_ROWS;
}

void matmul_ahead(const struct cpu_state *s, struct member *me, const struct matrix *const *w, int n_matrices, int n)
{
    me->ahead.bytes = 0;
    if (n > matmul_most_few(s))
        return;
    int total = 0;
    for (int i = 0; i < n_matrices; i++)
        total += w[i]->rows;
    int row = team_share(me, total, few_grain(w[0]));
    for (; row >= w[0]->rows && n_matrices > 1; w++, n_matrices--)
        row -= w[0]->rows;
    const size_t row_bytes = dtype_row_bytes(w[0]->dtype, w[0]->cols), left = (size_t)(w[0]->rows - row) * row_bytes;
    me->ahead.at = (const char *)w[0]->data + (size_t)row * row_bytes;
    me->ahead.bytes = left < AHEAD_BYTES ? (ptrdiff_t)left : AHEAD_BYTES;
}

// y (n, ldy) *= the rows' scales.
static void scale_rows(float *y, ptrdiff_t ldy, const struct matrix *w, struct span rows, int n)
{
    for (ptrdiff_t t = 0; t < n; t++)
        for (int r = rows.first; r < rows.last; r++)
            y[t * ldy + (r - rows.first)] *= matrix_row_scale(w, r);
}

// Of more tokens than matvec takes, by `product`, which is of matmul_type(w's type).
static void many_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, struct span rows, float *y,
                      ptrdiff_t ldy, void (*product)(const struct matmul_args *args), const float *packed, int n)
{
    struct matmul_args args = {
        .y = y,
        .ldy = ldy,
        .w = w->data,
        .rows = w->rows,
        .first_row = rows.first,
        .last_row = rows.last,
        .cols = w->cols,
        .packed = packed,
        .n = n,
        .scratch = cpu_own(s, s->matmul_scratch, me->thread),
    };
    if (w->dtype == DTYPE_BF12) {
        uint16_t *unpacked = cpu_own(s, s->unpacked, me->thread);
        s->kernels->unpack_bf12(unpacked, w->data, rows.first, rows.last, w->cols);
        args.w = unpacked;
        args.first_row = 0;
        args.rows = args.last_row = rows.last - rows.first;
    }
    product(&args);
}

// By a matrix that is quantised, each group of the tokens while its rows are in the cache.
static void quantised_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, struct span rows, float *y,
                           ptrdiff_t ldy, int n)
{
    const int size = group_size(s, n);
    const int block =
        size == n ? rows.last - rows.first : (int)round_up(GROUPS_BYTES / dtype_row_bytes(w->dtype, w->cols) + 1, ROW_UNIT);
    for (int first = rows.first; first < rows.last; first += block) {
        const uint8_t *x = s->quantised;
        for (int t = 0; t < n; t += size, x += group_bytes(s, w->cols))
            s->quant->product[w->dtype](&(struct quant_args){
                .y = y + t * ldy + (first - rows.first),
                .ldy = ldy,
                .w = w->data,
                .rows = w->rows,
                .cols = w->cols,
                .first_row = first,
                .last_row = rows.last - first < block ? rows.last : first + block,
                .x = x,
                .n = n - t < size ? n - t : size,
                .fetching = s->fetching,
                .scratch = cpu_own(s, s->matmul_scratch, me->thread),
            });
    }
}

// y: (n, ldy), from row rows.first on.
static void multiply_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, const float *bias,
                          struct span rows, float *y, ptrdiff_t ldy, const float *x, int n)
{
    const struct cpu_kernels *kernels = s->kernels;
    const int form = matmul_form(s, w);
    const enum dtype type = matmul_type(w->dtype);
    const struct half_kernels *half = form & FORM_HALVES ? matmul_halves(s, n) : NULL;
    if (half)
        many_rows(s, me, w, rows, y, ldy, half->product[type], s->halves, n);
    else if (dtype_group_bytes[type])
        quantised_rows(s, me, w, rows, y, ldy, n);
    else if (n <= kernels->matvec_max)
        kernels->matvec[w->dtype](y, ldy, w->data, rows.first, rows.last, w->cols, x, w->cols, n, s->fetching.to_l2);
    else
        many_rows(s, me, w, rows, y, ldy, kernels->matmul[type], s->packed, n);
    if (dtype_row_scale[w->dtype])
        scale_rows(y, ldy, w, rows, n);
    if (bias)
        for (int t = 0; t < n; t++)
            kernels->add(y + t * ldy, bias + rows.first, rows.last - rows.first);
}

void matmul_rows(struct cpu_state *s, const struct member *me, const struct product *p, struct span rows, const float *x, int n)
{
    multiply_rows(s, me, p->w, p->bias, rows, p->y + rows.first, p->w->rows, x, n);
}

size_t matmul_rows_here_floats(const struct cpu_state *s)
{
    const int ffn = config_widest_ffn(s->config);
    const size_t widest = (size_t)(s->config->hidden_dim > ffn ? s->config->hidden_dim : ffn);
    const size_t few = (size_t)(s->chunk < s->kernels->matvec_max ? s->chunk : s->kernels->matvec_max) * widest,
                 many = (size_t)s->chunk * (size_t)matmul_most_rows(s);
    return few > many ? few : many;
}

float *matmul_rows_here(struct cpu_state *s, const struct member *me, const struct matrix *w, const float *bias,
                        struct span rows, const float *x, int n)
{
    float *y = cpu_own(s, s->rows_here, me->thread);
    multiply_rows(s, me, w, bias, rows, y, rows.last - rows.first, x, n);
    return y;
}

void matmul_shared(struct cpu_state *s, struct member *me, const struct product *products, int n_products, const float *x,
                   int n)
{
    int total = 0, forms = 0;
    for (int i = 0; i < n_products; i++) {
        total += products[i].w->rows;
        forms |= matmul_form(s, products[i].w);
    }
    matmul_pack(s, me, forms, x, n, products[0].w->cols);
    for (struct span claim; matmul_claim(s, me, products[0].w, total, n, &claim);)
        for (int i = 0, base = 0; i < n_products; base += products[i].w->rows, i++) {
            const int rows = products[i].w->rows;
            const int first = claim.first > base ? claim.first - base : 0;
            const int last = claim.last < base + rows ? claim.last - base : rows;
            if (first < last)
                matmul_rows(s, me, &products[i], (struct span){first, last}, x, n);
        }
}
