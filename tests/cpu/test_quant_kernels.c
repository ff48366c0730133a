// Products of quantised matrices: against sums in double of the same quants, to rounding; against the tokens as they were
// before they were quantised, within the bound that half a step of each value gives.
#include "cpu/machine/isa.h"
#include "model/quant.h"
#include "quant_problem.h"
#include "thorough.h"

static const int widths[] = {1, 31, 32, 33, 64, 96, 128, 200, 256, 352, 512, 544, 1000, 1057};

enum { N_WIDTHS = sizeof widths / sizeof *widths };

// In pieces, as a team shares it.
static void quantise_as(const struct quant_form *form, const struct problem *p, int piece)
{
    for (int c = 0; c < p->cols; c += piece)
        form->quantise(p->quantised, p->x, p->ldx, p->n, p->cols, c, p->cols - c < piece ? p->cols : c + piece);
}
static void quantise(const struct problem *p, int piece)
{
    quantise_as(plan_quant_form(p->quant, p->n), p, piece);
}

static void multiply_as(const struct quant_form *form, const struct problem *p, int first, int last, struct fetching fetching)
{
    form->product[p->type](&(struct product_args){
        .y = p->y + first,
        .ldy = p->ldy,
        .w = p->w,
        .type = p->type,
        .rows = p->rows,
        .cols = p->cols,
        .first_row = first,
        .last_row = last,
        .x = p->quantised,
        .n = p->n,
        .fetching = fetching,
        .scratch = p->scratch,
    });
}
static void multiply_by(const struct problem *p, int first, int last, struct fetching fetching)
{
    multiply_as(plan_quant_form(p->quant, p->n), p, first, last, fetching);
}

static void multiply(const struct problem *p, int first, int last)
{
    multiply_by(p, first, last, (struct fetching){.streams = (p->rows + p->groups) % 2 ? 2 : 4, .to_l2 = last % 2});
}

// What a token's values become, and their blocks' scales. (cols)
static void quantised_values(const struct problem *p, int t, double *values, double *steps)
{
    const float *x = p->x + t * p->ldx;
    for (int first = 0; first < p->cols; first += p->form->block) {
        const int n = p->cols - first < p->form->block ? p->cols - first : p->form->block;
        float most = 0;
        for (int i = first; i < first + n; i++)
            most = fmaxf(most, fabsf(x[i]));
        const float scale = most / p->form->most;
        for (int i = first; i < first + n; i++) {
            values[i] = most > 0 ? (double)nearbyintf(x[i] * (p->form->most / most)) * (double)scale : 0;
            steps[i] = scale;
        }
    }
}

static void check_numbers(const struct problem *p)
{
    const size_t cols = (size_t)p->cols;
    double *values = malloc((4 + 2 * (size_t)p->rows) * sizeof *values * cols), *steps = values + cols;
    double *exact = steps + cols, *larger = exact + cols, *weights = larger + cols, *sizes = weights + (size_t)p->rows * cols;
    for (int r = 0; r < p->rows; r++) // once, not for each token
        for (int c = 0; c < p->cols; c++) {
            const struct terms terms = terms_at(p, r, c);
            weights[(size_t)r * cols + (size_t)c] = terms.scaled + terms.minimum;
            sizes[(size_t)r * cols + (size_t)c] = fabs(terms.scaled) + fabs(terms.minimum) + fabs(terms.centre);
        }
    for (int t = 0; t < p->n; t++) {
        quantised_values(p, t, values, steps);
        for (int c = 0; c < p->cols; c++) {
            exact[c] = (double)p->x[t * p->ldx + c];
            larger[c] = fmax(fabs(exact[c]), fabs(values[c]));
        }
        for (int r = 0; r < p->rows; r++) {
            const double *row = weights + (size_t)r * cols, *row_sizes = sizes + (size_t)r * cols;
            double same = 0, before = 0, magnitude = 0, bound = 0;
            for (int c = 0; c < p->cols; c++) {
                same += row[c] * values[c];
                before += row[c] * exact[c];
                magnitude += row_sizes[c] * larger[c];
                bound += 0.501 * fabs(row[c]) * steps[c];
            }
            const double found = p->y[t * p->ldy + r], rounding = sum_error(p->cols) * magnitude;
            assert_near(found, same, rounding, "product of quants", t, r);
            assert_near(found, before, rounding + bound, "product", t, r);
        }
    }
    free(values);
}

static void check(const struct problem *p)
{
    if (NUMBERS_COUNT)
        check_numbers(p);
    for (int t = 0; t + 1 < p->n; t++)
        for (ptrdiff_t i = p->rows; i < p->ldy; i++)
            assert_true(isnan(p->y[t * p->ldy + i])); // the poison between the rows
}

static const enum dtype types[] = {DTYPE_Q8,    DTYPE_Q4,     DTYPE_Q4N,    DTYPE_Q5,    DTYPE_Q6,    DTYPE_Q5U,   DTYPE_Q4K,
                                   DTYPE_Q5K,   DTYPE_Q6K,    DTYPE_Q4A,    DTYPE_Q5A,   DTYPE_MXFP4, DTYPE_IQ4NL, DTYPE_IQ4XS,
                                   DTYPE_Q4Z32, DTYPE_Q4Z64,  DTYPE_Q4Z128, DTYPE_Q3K,   DTYPE_Q3,    DTYPE_Q2,    DTYPE_Q2K,
                                   DTYPE_IQ3S,  DTYPE_IQ3XXS, DTYPE_IQ2S,   DTYPE_IQ2XS, DTYPE_IQ2XXS};

enum { TYPES = sizeof types / sizeof *types, KINDS = 2 * TYPES }; // every form with every type

// Of the types that another's kernels multiply only every third case is checked: their scales alone are read in their own way.
static bool left_out(int kind, int i)
{
    switch (types[kind % TYPES]) {
    case DTYPE_Q4A:
    case DTYPE_Q5A:
    case DTYPE_IQ4XS:
    case DTYPE_Q4Z32:
    case DTYPE_Q4Z64:
    case DTYPE_Q4Z128:
    case DTYPE_IQ3XXS:
    case DTYPE_IQ2S:
    case DTYPE_IQ2XS:
    case DTYPE_IQ2XXS:
        return (kind + i) % 3 != 0;
    default:
        return false;
    }
}
static struct problem make_kind(struct fixture *f, int kind, int rows, int cols, int n)
{
    return make_problem(f, &forms[kind / TYPES], types[kind % TYPES], rows, cols, n);
}

static void test_few(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int rows[] = {1, 2, 3, 4, 5, 9, 13};
    enum { ROWS = sizeof rows / sizeof *rows };
    const int step = thorough() ? 2 : ROWS; // the next instruction set has other rows
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 1; n <= 8; n++)
            for (int i = (kind + n) % 2; i < N_WIDTHS; i += 2) // the next type has the other widths, the next width other rows
                for (int j = (n + i / 2 + f->turn) % step; j < ROWS && !left_out(kind, n + i / 2); j += step) {
                    const struct problem p = make_kind(f, kind, rows[j], widths[i], n);
                    quantise(&p, i % 2 ? 1024 : 256);
                    multiply(&p, 0, p.rows);
                    check(&p);
                    release(f);
                }
}

static void test_many(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int counts[] = {9, 16, 17, 23, 25, 31, 33, 48, 49, 64, 65, 100};
    enum { COUNTS = sizeof counts / sizeof *counts };
    const int step = thorough() ? 2 : COUNTS;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < N_WIDTHS; i++)
            for (int j = (kind + i + f->turn) % step; j < COUNTS && !left_out(kind, i); j += step) { // as above
                const struct problem p = make_kind(f, kind, 1 + (i * 7 + j * 11) % 34, widths[i], counts[j]);
                quantise(&p, j % 2 ? 128 : 1024);
                multiply(&p, 0, p.rows);
                check(&p);
                release(f);
            }
}

// More rows and tokens than any block has.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[][3] = {{150, 40, 9},   {275, 32, 50},  {33, 70, 1000}, {9, 300, 401},
                                   {135, 600, 35}, {75, 1100, 64}, {21, 2100, 12}};
    for (int i = 0; i < 2 * TYPES; i++) {
        const int *size = sizes[i % 7];
        const struct problem p = make_kind(f, i, size[0], size[1], size[2]);
        quantise(&p, 128);
        multiply(&p, 0, p.rows);
        check(&p);
        release(f);
    }
}

// Of a prompt's tokens those first that have so many beside them, and again of n alone. What few tokens take for themselves is
// left out.
static void test_beside_others(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int counts[] = {1, 5, 8, 9, 16, 17, 24, 25, 48, 64};
    enum { ALL = 70, COUNTS = sizeof counts / sizeof *counts };
    for (int kind = 0; kind < KINDS; kind++) {
        const struct problem all = make_kind(f, kind, 21, widths[5 + kind % (N_WIDTHS - 5)], ALL);
        quantise(&all, 1024);
        multiply(&all, 0, all.rows);
        for (int i = kind % 2; i < COUNTS; i += 2) {
            const struct quant_form *form = plan_quant_form(all.quant, counts[i] > QUANT_FEW ? counts[i] : QUANT_FEW + 1);
            struct problem some = all;
            some.n = counts[i];
            some.y = guarded(f, sizeof *some.y * (size_t)((some.n - 1) * some.ldy + some.rows));
            some.quantised = guarded_scratch(f, form->size(some.n, some.cols));
            quantise_as(form, &some, 1024);
            multiply_as(form, &some, 0, some.rows, (struct fetching){.streams = 2});
            for (int t = 0; t < some.n; t++)
                assert_memory_equal(some.y + t * some.ldy, all.y + t * all.ldy, sizeof *all.y * (size_t)all.rows);
        }
        release(f);
    }
}

// The scale of a column's half of a group, by the first quant there that is not 0: the column's own may be.
static double scale_at(const struct problem *p, int row, int col)
{
    for (int c = col / 16 * 16; c < col / 16 * 16 + 16; c++)
        if (quant_at(p, row, c))
            return terms_at(p, row, c).scaled / quant_at(p, row, c);
    return 0;
}

// How far a weight, or its scale alone, reaches: what the block's scale is taken by.
static double tiles_reach(const struct problem *p, int row, int col)
{
    const struct terms terms = terms_at(p, row, col);
    const bool bytes = low_bytes(p->type) == 32 || p->type == DTYPE_IQ4NL || p->type == DTYPE_IQ4XS;
    const int quant = quant_at(p, row, col), whole = bytes                      ? 128
                                                     : is_grid(p->type)         ? 64
                                                     : has_low_pairs(p->type)   ? 4
                                                     : high_bytes(p->type) == 4 ? 16
                                                                                : 8;
    const bool affine = terms.centre != 0, wide = has_row_scale(p->type) || p->type == DTYPE_MXFP4 || high_bytes(p->type) == 8;
    const double scale = fabs(quant ? terms.scaled / quant : scale_at(p, row, col));
    return affine ? fabs(terms.centre) + fabs(terms.centre + terms.minimum) : scale * (wide ? 32 : whole) + fabs(terms.minimum);
}

// By tiles of bytes tokens and weights are 16-bit integers, with a scale for each block of n columns: what a product may lose
// there. Half a unit of a token; of a weight half of one by its scale's factor, by its product, and by what is added; both
// units together; and the product of the low bytes. x, weights, reaches: (n)
static double tiles_loss(const float *x, const double *weights, const double *reaches, int n)
{
    double tokens = 0, sizes = 0, most_x = 0, most_w = 0;
    for (int c = 0; c < n; c++) {
        const double size = fabs((double)x[c]);
        tokens += size;
        sizes += fabs(weights[c]);
        most_x = size > most_x ? size : most_x;
        most_w = reaches[c] > most_w ? reaches[c] : most_w;
    }
    const double x_unit = most_x / 32639, w_unit = most_w / 32637;
    return 0.5 * x_unit * sizes + 1.5 * w_unit * tokens + n * x_unit * w_unit * (0.75 + 128 * 128);
}

static void check_tiles(const struct problem *p)
{
    double *weights = malloc(2 * sizeof *weights * (size_t)p->cols), *reaches = weights + p->cols;
    for (int r = 0; r < p->rows; r++) {
        for (int c = 0; c < p->cols; c++) { // once, not for each token
            weights[c] = weight_at(p, r, c);
            reaches[c] = tiles_reach(p, r, c);
        }
        for (int t = 0; t < p->n; t++) {
            const float *x = p->x + t * p->ldx;
            double sum = 0, lost = 0;
            for (int c = 0; c < p->cols; c++)
                sum += weights[c] * (double)x[c];
            for (int c = 0; c < p->cols; c += MATMUL16_BLOCK)
                lost +=
                    tiles_loss(x + c, weights + c, reaches + c, p->cols - c < MATMUL16_BLOCK ? p->cols - c : MATMUL16_BLOCK);
            assert_near(p->y[t * p->ldy + r], sum, 1.001 * lost, "product by tiles", t, r);
        }
    }
    free(weights);
}

static void multiply_tiles(struct fixture *f, const struct matmul16 *by, const struct problem *p)
{
    void *packed = guarded_scratch(f, by->size(p->n, p->cols));
    by->pack(packed, p->x, p->ldx, p->n, p->cols, 0, p->cols);
    by->product[p->type](&(struct product_args){
        .y = p->y,
        .ldy = p->ldy,
        .w = p->w,
        .type = p->type,
        .rows = p->rows,
        .last_row = p->rows,
        .cols = p->cols,
        .x = packed,
        .n = p->n,
        .scratch = guarded_scratch(f, by->scratch),
    });
}

static void test_tiles(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct matmul16 *by = matmul16_of(f->kernels, MATMUL16_TILES_BYTES);
    for (int kind = 0; by && kind < TYPES * N_WIDTHS; kind++) {
        const int i = kind / TYPES, rows = i == 5 ? 270 : 1 + kind % 40, n = i == 6 ? 530 : 3 + kind * 7 % 60;
        const struct problem p = make_kind(f, kind % TYPES, rows, widths[i], n);
        multiply_tiles(f, by, &p);
        if (NUMBERS_COUNT)
            check_tiles(&p);
        release(f);
    }
}

// All quants are the smallest that there are; q2k's, which have no sign, the largest. Of grids the last. q4k's and q5k's
// scales, which the quants may be multiplied by, are the largest.
static void smallest(const struct problem *p)
{
    const size_t groups = (size_t)p->groups, low = groups * low_bytes(p->type), high = groups * high_bytes(p->type);
    for (size_t r = 0; r < (size_t)p->rows; r++) {
        uint8_t *row = p->w + r * (low + high);
        const bool nibbles = p->type == DTYPE_Q4 || p->type == DTYPE_Q4K || p->type == DTYPE_Q4A || zeros_in_eight(p->type);
        memset(row,
               p->type == DTYPE_Q8                                                  ? 0x80
               : nibbles                                                            ? 0x88
               : p->type == DTYPE_MXFP4 || p->type == DTYPE_Q2K || is_grid(p->type) ? 0xff
                                                                                    : 0,
               low);
        memset(row + low, p->type == DTYPE_Q5 ? 0 : high_bytes(p->type) == 4 ? 0xff : 0xaa, high);
    }
    for (size_t i = 0; i < all_scales(p); i++)
        if ((p->type == DTYPE_Q4K || p->type == DTYPE_Q5K) && i % 16 >= 4 && i % 16 < 12)
            p->w[all_quants(p) + i] |= 63;
}

// The largest sums that there can be: no integer overflows.
static void test_extremes(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int counts[] = {1, 8, 20, 92};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 4; i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const int n = counts[i];
                if (!thorough() && (kind + i + f->turn + (sign > 0)) % 2) // the next instruction set has the other sign
                    continue;
                const struct problem p = make_kind(f, kind, 5, 480, n);
                smallest(&p);
                for (int x = 0; x < (n - 1) * p.ldx + p.cols; x++)
                    p.x[x] = (float)sign * 1e30f;
                quantise(&p, 1024);
                multiply(&p, 0, p.rows);
                check(&p);
                release(f);
            }
}

static void test_row_shares(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 1; n <= 70 && !left_out(kind, 0); n = n < 9 ? n + 1 : n + 23) {
            if (!thorough() && (kind + n + f->turn) % 2)
                continue;
            const struct problem p = make_kind(f, kind, 83, 333, n);
            const size_t bytes = sizeof(float) * (size_t)((n - 1) * p.ldy + p.rows);
            float *whole = malloc(bytes);
            quantise(&p, 128);
            multiply(&p, 0, p.rows);
            memcpy(whole, p.y, bytes);
            memset(p.y, 0xff, bytes);
            for (int first = 0, last; first < p.rows; first = last) {
                last = first + 1 + below(f, 30);
                last = last < p.rows ? last : p.rows;
                multiply_by(&p, first, last, (struct fetching){.streams = first % 3 ? 2 : 4, .to_l2 = last % 2});
            }
            assert_memory_equal(p.y, whole, bytes);
            free(whole);
            release(f);
        }
}

// Tokens wide enough that `to_l2` counts.
static void test_fetching(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 1 + (thorough() ? 0 : kind % 2); n <= QUANT_FEW && !left_out(kind, 1); n += thorough() ? 1 : 2) {
            const struct problem p = make_kind(f, kind, 9, L1_KEEPS / (int)sizeof(int16_t) + 57, n);
            const size_t bytes = sizeof(float) * (size_t)((n - 1) * p.ldy + p.rows);
            float *near = malloc(bytes);
            quantise(&p, p.cols);
            for (int i = 0; i < 4; i++) {
                memset(p.y, 0xff, bytes);
                multiply_by(&p, 0, p.rows, (struct fetching){.streams = i / 2 ? 4 : 2, .to_l2 = i % 2});
                if (i == 0)
                    memcpy(near, p.y, bytes);
                assert_memory_equal(p.y, near, bytes);
            }
            free(near);
            release(f);
        }
}

// A value that is not a number, or infinite, makes a product that is none, and leaves other tokens alone.
static void test_not_numbers(void **state)
{
    struct fixture *f = fixture_of(state);
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 3; n <= 71 && !left_out(kind, 2); n += 17) // 3, 20, 37, 54, 71
            for (int v = thorough() ? 0 : (kind + n) % 3; v < 3; v += thorough() ? 1 : 3) {
                const struct problem p = make_kind(f, kind, 4, 100, n);
                p.x[1 * p.ldx + 70] = values[v];
                quantise(&p, 1024);
                multiply(&p, 0, p.rows);
                for (int r = 0; r < p.rows; r++) {
                    assert_false(isfinite(p.y[p.ldy + r]));
                    assert_true(isfinite(p.y[r]) && isfinite(p.y[2 * p.ldy + r]));
                }
                release(f);
            }
}

static void test_rows_to_fp32(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < N_WIDTHS; i++) {
            const struct problem p = make_kind(f, type, 3, widths[i], 1);
            float *y = guarded(f, sizeof *y * (size_t)p.cols);
            for (int r = 0; r < p.rows; r++) {
                quant_row_to_fp32(y, p.type, p.w, p.rows, p.cols, r);
                for (int c = 0; c < p.cols; c++)
                    assert_true(y[c] == (float)weight_at(&p, r, c));
            }
            release(f);
        }
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"products with few tokens equal the reference", test_few},
        {"products with many tokens equal the reference", test_many},
        {"products across blocks equal the reference", test_blocks},
        {"a token has the same bits, however many are beside it", test_beside_others},
        {"products by tiles of bytes equal the reference", test_tiles},
        {"the largest sums do not overflow", test_extremes},
        {"shares of rows, and streams, give the same bits", test_row_shares},
        {"fetching to L2 gives the same bits", test_fetching},
        {"what is not a number stays none", test_not_numbers},
        {"rows become floats exactly", test_rows_to_fp32},
    };
    return run_on_every_isa("quantised kernels", cases, sizeof cases / sizeof *cases);
}
