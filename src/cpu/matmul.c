#include "cpu/matmul.h"

#include <string.h>

#include "util/round.h"

// Claims of rows are whole multiples of this, so that the kernels' register tiles are mostly full and no two threads write one
// cache line of an output whose rows are that long.
enum { ROW_UNIT = 16 };

// Decode: the last claims of a step, so short that nobody waits long for them. The first ones are long: streams begin anew at
// each.
enum { LAST_BYTES = 64 << 10 };

// Decode: of its share of the next product, what a member fetches while it waits. Well within an L2 cache.
enum { AHEAD_BYTES = 256 << 10 };

// Quantising a few tokens is so little work that a claim of fewer columns, of all tokens together, would cost more than it
// saves.
enum { QUANTISE_COLS = 1024 };

// Of tokens apart: rows that all groups multiply before the next ones are read.
enum { GROUPS_BYTES = 64 << 10 };

// Tokens apart are multiplied by the kernels of a single one, as many at a time as those take without any depending on the
// others. The groups are as even as can be.
static int even_groups(int n, int most)
{
    const int groups = (n + most - 1) / most;
    return (n + groups - 1) / groups;
}

// Prefill: rows that the kernels keep in the cache together.
enum { BLOCK_ROWS = 128 };
// Columns of what is observed that a member adds up at once: tiles of tokens, whole ones with every vector width.
enum { OBSERVED_COLUMNS = 96 };

// Tokens [first, first + n) of a step.
struct token_part {
    int first, n;
    bool apart;
};

// Those that are not apart come first.
static void parts_of(struct token_part parts[2], const struct member *me, int n)
{
    const int apart = me->apart < n ? me->apart : n;
    parts[0] = (struct token_part){0, n - apart, false};
    parts[1] = (struct token_part){n - apart, apart, true};
}

// Of quantised matrices, whose groups are quantised each by itself.
static int group_size(const struct token_part *part)
{
    return part->apart && part->n > 0 ? even_groups(part->n, QUANT_FEW) : part->n;
}

static uint8_t *quantised_at(const struct cpu_state *s, const struct token_part *part)
{
    return part->first ? s->quantised_last : s->quantised;
}

static size_t group_bytes(const struct cpu_state *s, int cols)
{
    return round_up(s->plan.quant->few.size(QUANT_FEW, cols), 64);
}

size_t matmul_groups_bytes(const struct cpu_state *s, int n, int cols)
{
    return (size_t)((n + QUANT_FEW - 1) / QUANT_FEW) * group_bytes(s, cols);
}

static void quantise_groups(struct cpu_state *s, const struct token_part *part, const float *x, int cols, struct grains span)
{
    const int size = group_size(part), end = part->first + part->n;
    const struct quant_form *form = plan_quant_form_of(&s->plan, size, part->apart);
    uint8_t *to = quantised_at(s, part);
    for (int t = part->first; t < end; t += size, to += group_bytes(s, cols))
        form->quantise(to, x + (size_t)t * cols, cols, end - t < size ? end - t : size, cols, span.first, span.last);
}

static int quantise_grain(int n)
{
    return n < QUANTISE_COLS / QUANT_BLOCK ? (int)round_up((size_t)(QUANTISE_COLS / (n > 0 ? n : 1)), QUANT_BLOCK)
                                           : QUANT_BLOCK;
}

// The kernels of a step's tokens in TOKENS_16_BITS: whichever of its matrices take that form take the same.
static const struct matmul16 *matmul16_of_step(const struct cpu_state *s, type_set types, int n)
{
    const struct matmul16 *matmul16 = NULL;
    for (int type = 0; !matmul16 && type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type))
            matmul16 = plan_multiplier(&s->plan, (enum dtype)type, n, false)->matmul16;
    return matmul16;
}

void matmul_pack(struct cpu_state *s, struct member *me, type_set types, const float *x, int n, int cols)
{
    struct token_part parts[2]; // those apart, whose first form is floats or quantised, are in neither of the packed ones
    parts_of(parts, me, n);
    const int together = parts[0].n;
    unsigned ever = plan_all_forms(&s->plan, types), now[2];
    for (int i = 0; i < 2; i++)
        now[i] = parts[i].n > 0 ? plan_forms(&s->plan, types, parts[i].n, parts[i].apart) : 0;
    if (ever & 1u << TOKENS_PACKED)
        for (struct grains span; team_claim_near(me, now[0] & 1u << TOKENS_PACKED ? cols : 0, 128, &span);)
            s->kernels->pack_tokens(s->packed, x, cols, together, cols, span.first, span.last);
    if (ever & 1u << TOKENS_16_BITS)
        for (struct grains span; team_claim_near(me, now[0] & 1u << TOKENS_16_BITS ? cols : 0, MATMUL16_BLOCK, &span);)
            matmul16_of_step(s, types, together)->pack(s->halves, x, cols, together, cols, span.first, span.last);
    if (ever & 1u << TOKENS_QUANTISED)
        for (struct grains span;
             team_claim_near(me, (now[0] | now[1]) & 1u << TOKENS_QUANTISED ? cols : 0, quantise_grain(n), &span);)
            for (int i = 0; i < 2; i++)
                if (now[i] & 1u << TOKENS_QUANTISED)
                    quantise_groups(s, &parts[i], x, cols, span);
}

static int few_grain(const struct matrix *w)
{
    return (int)round_up(LAST_BYTES / dtype_row_bytes(w->dtype, w->cols) + 1, ROW_UNIT);
}

static bool is_few(const struct cpu_state *s, const struct member *me, int n)
{
    return me->apart >= n || n <= s->plan.most_few;
}

int matmul_share(const struct matrix *w, int rows, int thread, int n_threads)
{
    return team_share(&(struct member){.thread = thread, .n_members = n_threads}, rows, few_grain(w));
}

bool matmul_claim(const struct cpu_state *s, struct member *me, const struct matrix *w, int rows, int n, struct grains *span)
{
    if (is_few(s, me, n))
        return team_claim_share(me, rows, few_grain(w), span);
    const int even = (int)round_up((size_t)(w->rows / (4 * team_size(s->team))) + 1, ROW_UNIT); // four claims for each member
    const struct matmul16 *matmul16 = plan_multiplier(&s->plan, w->dtype, n, false)->matmul16;
    const int block = matmul16 ? matmul16->rows : BLOCK_ROWS;
    return team_claim_near(me, rows, even < block ? even : block, span);
}

int matmul_most_rows(const struct cpu_state *s)
{
    const int rows = plan_16_bits_rows(&s->plan);
    return rows > BLOCK_ROWS ? rows : BLOCK_ROWS;
}

void matmul_ahead(const struct cpu_state *s, struct member *me, const struct matrix *const *w, int n_matrices, int n)
{
    me->ahead.bytes = 0;
    if (!is_few(s, me, n))
        return;
    int total = 0;
    for (int i = 0; i < n_matrices; i++)
        total += w[i]->rows;
    int row = matmul_share(w[0], total, me->thread, me->n_members);
    for (; row >= w[0]->rows && n_matrices > 1; w++, n_matrices--)
        row -= w[0]->rows;
    const size_t row_bytes = dtype_row_bytes(w[0]->dtype, w[0]->cols), left = (size_t)(w[0]->rows - row) * row_bytes;
    me->ahead.at = (const char *)w[0]->data + (size_t)row * row_bytes;
    me->ahead.bytes = left < AHEAD_BYTES ? (ptrdiff_t)left : AHEAD_BYTES;
}

// y (n, ldy) *= the rows' scales.
static void scale_rows(float *y, ptrdiff_t ldy, const struct matrix *w, struct grains rows, int n)
{
    for (ptrdiff_t t = 0; t < n; t++)
        for (int r = rows.first; r < rows.last; r++)
            y[t * ldy + (r - rows.first)] *= matrix_row_scale(w, r);
}

// Of more tokens than matvec takes, by `product`, which is of unpacked_type(w's type).
static void many_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, struct grains rows, float *y,
                      ptrdiff_t ldy, void (*product)(const struct product_args *args), const float *packed, int n)
{
    struct product_args args = {
        .y = y,
        .ldy = ldy,
        .w = w->data,
        .type = w->dtype,
        .rows = w->rows,
        .first_row = rows.first,
        .last_row = rows.last,
        .cols = w->cols,
        .x = packed,
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

// Rows that each of several groups of tokens multiplies while they are in the cache; all, where there is one group.
static int rows_of_groups(const struct matrix *w, struct grains rows, bool several)
{
    const int all = rows.last - rows.first,
              some = (int)round_up(GROUPS_BYTES / dtype_row_bytes(w->dtype, w->cols) + 1, ROW_UNIT);
    return several && some < all ? some : all;
}

// By a matrix of floats as decode's are multiplied, of however many tokens where they are apart.
static void few_rows(struct cpu_state *s, const struct matrix *w, struct grains rows, float *y, ptrdiff_t ldy, const float *x,
                     int n)
{
    const int size = even_groups(n, s->kernels->matvec_max), block = rows_of_groups(w, rows, size < n);
    for (int first = rows.first; first < rows.last; first += block)
        for (int t = 0; t < n; t += size)
            s->kernels->matvec[w->dtype](y + t * ldy + (first - rows.first), ldy, w->data, first,
                                         rows.last - first < block ? rows.last : first + block, w->cols,
                                         x + (ptrdiff_t)t * w->cols, w->cols, n - t < size ? n - t : size, s->fetching.to_l2);
}

// By a matrix that is quantised, by each group of the tokens.
static void quantised_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, struct grains rows, float *y,
                           ptrdiff_t ldy, const struct token_part *part)
{
    const int n = part->n, size = group_size(part), block = rows_of_groups(w, rows, size < n);
    const struct quant_form *form = plan_quant_form_of(&s->plan, size, part->apart);
    for (int first = rows.first; first < rows.last; first += block) {
        const uint8_t *x = quantised_at(s, part);
        for (int t = 0; t < n; t += size, x += group_bytes(s, w->cols))
            form->product[w->dtype](&(struct product_args){
                .y = y + t * ldy + (first - rows.first),
                .ldy = ldy,
                .w = w->data,
                .type = w->dtype,
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

static void multiply_part(struct cpu_state *s, const struct member *me, const struct matrix *w, struct grains rows, float *y,
                          ptrdiff_t ldy, const float *x, const struct token_part *part)
{
    const struct cpu_kernels *kernels = s->kernels;
    const int n = part->n;
    const struct multiplier *by = plan_multiplier(&s->plan, w->dtype, n, part->apart);
    const enum dtype type = unpacked_type(w->dtype);
    y += part->first * ldy;
    switch (by->form) {
    case TOKENS_FLOAT:
        few_rows(s, w, rows, y, ldy, x + (ptrdiff_t)part->first * w->cols, n);
        break;
    case TOKENS_PACKED:
        many_rows(s, me, w, rows, y, ldy, kernels->matmul[type], s->packed, n);
        break;
    case TOKENS_16_BITS:
        many_rows(s, me, w, rows, y, ldy, by->matmul16->product[type], s->halves, n);
        break;
    case TOKENS_QUANTISED:
        quantised_rows(s, me, w, rows, y, ldy, part);
        break;
    case TOKEN_FORMS:
        break;
    }
}

// y: (n, ldy), from row rows.first on.
static void multiply_rows(struct cpu_state *s, const struct member *me, const struct matrix *w, const float *bias,
                          struct grains rows, float *y, ptrdiff_t ldy, const float *x, int n)
{
    struct token_part parts[2];
    parts_of(parts, me, n);
    for (int i = 0; i < 2; i++)
        if (parts[i].n > 0)
            multiply_part(s, me, w, rows, y, ldy, x, &parts[i]);
    if (dtype_row_scale[w->dtype])
        scale_rows(y, ldy, w, rows, n);
    if (bias)
        for (int t = 0; t < n; t++)
            s->kernels->add(y + t * ldy, bias + rows.first, rows.last - rows.first);
}

void matmul_rows(struct cpu_state *s, const struct member *me, const struct product *p, struct grains rows, const float *x,
                 int n)
{
    multiply_rows(s, me, p->w, p->bias, rows, p->y + rows.first, p->w->rows, x, n);
}

size_t matmul_rows_here_floats(const struct cpu_state *s)
{
    const int ffn = s->recipe.width[BUFFER_UNITS], of_experts = s->config->n_experts ? config_expert_ffn(s->config) : 0;
    const int units = ffn > of_experts ? ffn : of_experts;
    const size_t widest = (size_t)(s->config->hidden_dim > units ? s->config->hidden_dim : units);
    const int most_few = s->kernels->matvec_max > MOST_APART ? s->kernels->matvec_max : MOST_APART;
    const size_t few = (size_t)(s->chunk < most_few ? s->chunk : most_few) * widest,
                 many = (size_t)s->chunk * (size_t)matmul_most_rows(s);
    const size_t most = few > many ? few : many, observed = s->kernels->packed_size(OBSERVED_COLUMNS, (int)s->chunk);
    return most > observed ? most : observed;
}

float *matmul_rows_here(struct cpu_state *s, const struct member *me, const struct matrix *w, const float *bias,
                        struct grains rows, const float *x, int n)
{
    float *y = cpu_own(s, s->rows_here, me->thread);
    multiply_rows(s, me, w, bias, rows, y, rows.last - rows.first, x, n);
    return y;
}

void matmul_shared(struct cpu_state *s, struct member *me, const struct product *products, int n_products, const float *x,
                   int n)
{
    int total = 0;
    type_set types = 0;
    for (int i = 0; i < n_products; i++) {
        total += products[i].w->rows;
        types |= type_bit(products[i].w->dtype);
    }
    matmul_pack(s, me, types, x, n, products[0].w->cols);
    for (struct grains claim; matmul_claim(s, me, products[0].w, total, n, &claim);)
        for (int i = 0, base = 0; i < n_products; base += products[i].w->rows, i++) {
            const int rows = products[i].w->rows;
            const int first = claim.first > base ? claim.first - base : 0;
            const int last = claim.last < base + rows ? claim.last - base : rows;
            if (first < last)
                matmul_rows(s, me, &products[i], (struct grains){first, last}, x, n);
        }
}

void matmul_narrow(struct cpu_state *s, struct member *me, const struct product *products, int n_products, const float *x,
                   int n)
{
    enum { ROWS = 8 };
    const int rows = products[0].w->rows, cols = products[0].w->cols, blocks = (rows + ROWS - 1) / ROWS,
              most = s->kernels->matvec_max;
    for (struct grains span; team_claim(me, (n + most - 1) / most * n_products * blocks, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const struct product *p = &products[i / blocks % n_products];
            const int first = i % blocks * ROWS, t = i / blocks / n_products * most;
            s->kernels->matvec[DTYPE_FP32](p->y + (ptrdiff_t)t * rows + first, rows, p->w->data, first,
                                           rows - first < ROWS ? rows : first + ROWS, cols, x + (ptrdiff_t)t * cols, cols,
                                           n - t < most ? n - t : most, s->fetching.to_l2);
        }
}

void matmul_heads(struct cpu_state *s, struct member *me, const struct matrix *w, const struct per_head *heads, const float *x,
                  float *y, int n)
{
    const int rows = w->rows / heads->n, blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS, most = s->kernels->matvec_max;
    const ptrdiff_t ldx = (ptrdiff_t)heads->n * heads->in, ldy = (ptrdiff_t)heads->n * heads->out;
    for (struct grains span; team_claim_near(me, heads->n * blocks, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const int head = i / blocks, first = i % blocks * BLOCK_ROWS;
            const int last = rows - first < BLOCK_ROWS ? rows : first + BLOCK_ROWS;
            const float *in = x + (ptrdiff_t)head * heads->in;
            float *out = y + (ptrdiff_t)head * heads->out;
            for (ptrdiff_t t = 0; t < n; t += most)
                s->kernels->matvec[w->dtype](out + t * ldy + first, ldy, w->data, head * rows + first, head * rows + last,
                                             w->cols, in + t * ldx, ldx, n - t < most ? (int)(n - t) : most, s->fetching.to_l2);
            for (ptrdiff_t t = 0; t < n && first == 0; t++)
                memcpy(out + t * ldy + heads->out - heads->kept, in + t * ldx + heads->in - heads->kept,
                       sizeof *y * (size_t)heads->kept);
        }
}

// Of rows of a block of columns: their products with those before them, and with themselves, added up over n tokens. Columns
// are multiplied as tokens and weights are, and the tokens are what is added up.
static void add_products(const struct cpu_state *s, const struct member *me, float *to, int block, struct grains rows,
                         const float *turned, int n)
{
    enum { COLUMNS = 128 };
    float found[OBSERVED_COLUMNS * COLUMNS], *packed = cpu_own(s, s->rows_here, me->thread);
    const int m = rows.last - rows.first;
    s->kernels->pack_tokens(packed, turned + (ptrdiff_t)rows.first * n, n, m, n, 0, n);
    for (int first = 0, last; first < rows.last; first = last) {
        last = first + COLUMNS < rows.last ? first + COLUMNS : rows.last;
        s->kernels->matmul[DTYPE_FP32](&(struct product_args){
            .y = found,
            .ldy = COLUMNS,
            .w = turned,
            .type = DTYPE_FP32,
            .rows = rows.last,
            .first_row = first,
            .last_row = last,
            .cols = n,
            .x = packed,
            .n = m,
            .scratch = cpu_own(s, s->matmul_scratch, me->thread),
        });
        for (int k = 0; k < m; k++)
            for (int i = rows.first + k, j = first; j < last && j <= i; j++)
                to[(ptrdiff_t)i * block + j] += found[k * COLUMNS + j - first];
    }
}

void matmul_observe(const struct cpu_state *s, struct member *me, struct input_sums *sums, int input, const float *x, int n,
                    int cols)
{
    enum { GRAIN = OBSERVED_COLUMNS }; // each is one member's, which adds its tokens up in their order
    if (!sums)
        return;
    struct input_sums *of = &sums[input];
    for (struct grains mine; team_claim(me, n > 0 ? cols : 0, GRAIN, &mine);) {
        for (ptrdiff_t t = 0; t < n; t++)
            for (int i = mine.first; i < mine.last; i++)
                of->squares[i] += (double)x[t * cols + i] * (double)x[t * cols + i];
        for (int i = mine.first; i < mine.last && of->products; i++)
            for (ptrdiff_t t = 0; t < n; t++)
                of->turned[(ptrdiff_t)i * n + t] = x[t * cols + i];
        if (mine.first == 0)
            of->tokens += n;
    }
    const int block = importance_block(cols);
    // Only a claim keeps the sums alive: a member that comes late must not look whether there are products.
    for (struct grains mine; team_claim(me, n > 0 ? cols : 0, GRAIN, &mine);)
        for (int i = mine.first, last; i < mine.last && of->products; i = last) {
            const ptrdiff_t first = i / block * block; // of its block
            last = first + block < mine.last ? (int)first + block : mine.last;
            add_products(s, me, of->products + first * block, block, (struct grains){i - (int)first, last - (int)first},
                         of->turned + first * n, n);
        }
}
