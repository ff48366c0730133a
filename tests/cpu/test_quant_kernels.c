// Products of quantised matrices: against sums in double of the same quants, to rounding; against the tokens as they were before they were
// quantised, within the bound that half a step of each value gives.
#include "kernels_testing.h"

static const int widths[] = {1, 31, 32, 33, 64, 96, 128, 200, 256, 352, 512, 544, 1000, 1057};

enum { N_WIDTHS = sizeof widths / sizeof *widths };

struct problem {
    enum dtype type;
    int rows, cols, groups, n;
    ptrdiff_t ldx, ldy;
    uint8_t *w; // quants, then scales, as docs/format.md has them
    float *x;   // (n, ldx)
    float *y;   // (n, ldy)
    void *quantised, *scratch;
};

static int quant_at(const struct problem *p, int row, int col)
{
    const size_t i = (size_t)row * (size_t)p->groups * 32 + (size_t)col;
    if (p->type == DTYPE_Q8)
        return (int8_t)p->w[i];
    const int nibble = col % 2 ? p->w[i / 2] >> 4 : p->w[i / 2] & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

static double scale_at(const struct problem *p, int row, int group)
{
    const size_t quants = (size_t)p->rows * (size_t)p->groups * (p->type == DTYPE_Q8 ? 32 : 16);
    uint16_t half;
    memcpy(&half, p->w + quants + 2 * ((size_t)row * (size_t)p->groups + (size_t)group), sizeof half);
    return fp16_value(half);
}

static struct problem make_problem(struct fixture *f, enum dtype type, int rows, int cols, int n)
{
    struct problem p = {.type = type, .rows = rows, .cols = cols, .groups = (cols + 31) / 32, .n = n};
    p.ldx = cols + n % 3;
    p.ldy = rows + n % 2;
    const size_t n_groups = (size_t)rows * (size_t)p.groups, bytes = type == DTYPE_Q8 ? 32 : 16;
    p.w = guarded(f, n_groups * (bytes + 2));
    for (size_t i = 0; i < n_groups * bytes; i++)
        p.w[i] = (uint8_t)below(f, 256); // past the last column too: what stands there must not count
    for (size_t i = 0; i < n_groups; i++) {
        // Of either sign, subnormal ones among them.
        const uint16_t half =
            (uint16_t)((i % 7 == 0 ? below(f, 0x0400) : 0x1c00 + below(f, 0x1000)) | (uniform(f) < 0 ? 0x8000 : 0));
        memcpy(p.w + n_groups * bytes + 2 * i, &half, 2);
    }
    p.x = random_floats(f, (size_t)((n - 1) * p.ldx + cols), 1.0);
    for (int t = 0; t < n; t++) // groups of very different sizes, and some that are all zero
        for (int c = 0; c < cols; c++)
            p.x[t * p.ldx + c] *= (t + c / 32) % 5 == 0 ? 0 : (float)ldexp(1, (t * 3 + c / 32 * 7) % 24 - 12);
    p.y = guarded(f, sizeof *p.y * (size_t)((n - 1) * p.ldy + rows));
    p.quantised = guarded_scratch(f, f->kernels->quant->size(n, cols));
    p.scratch = guarded_scratch(f, f->kernels->quant->scratch);
    return p;
}

// In pieces, as a team shares it.
static void quantise(const struct fixture *f, const struct problem *p, int piece)
{
    for (int c = 0; c < p->cols; c += piece)
        f->kernels->quant->quantise(p->quantised, p->x, p->ldx, p->n, p->cols, c, p->cols - c < piece ? p->cols : c + piece);
}

static void multiply(const struct fixture *f, const struct problem *p, int first, int last)
{
    f->kernels->quant->product[p->type](&(struct quant_args){
        .y = p->y + first,
        .ldy = p->ldy,
        .w = p->w,
        .rows = p->rows,
        .cols = p->cols,
        .first_row = first,
        .last_row = last,
        .x = p->quantised,
        .n = p->n,
        .scratch = p->scratch,
    });
}

// What a value becomes: by the rule that kernels_scalar_quant.c states.
static double quantised_value(const float *block, int n, int i, double *step)
{
    float most = 0;
    for (int j = 0; j < n; j++)
        most = fmaxf(most, fabsf(block[j]));
    const float scale = most / 32512;
    *step = scale;
    return most > 0 ? (double)nearbyintf(block[i] * (32512 / most)) * (double)scale : 0;
}

static void check(const struct problem *p)
{
    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < p->rows; r++) {
            double same = 0, before = 0, magnitude = 0, bound = 0;
            for (int c = 0; c < p->cols; c++) {
                const int first = c / 128 * 128, n = p->cols - first < 128 ? p->cols - first : 128;
                const double w = quant_at(p, r, c) * scale_at(p, r, c / 32);
                double step;
                same += w * quantised_value(p->x + t * p->ldx + first, n, c - first, &step);
                before += w * (double)p->x[t * p->ldx + c];
                magnitude += fabs(w * (double)p->x[t * p->ldx + c]);
                bound += 0.501 * fabs(w) * step;
            }
            const double found = p->y[t * p->ldy + r], rounding = sum_error(p->cols) * magnitude;
            assert_near(found, same, rounding, "product of quants", t, r);
            assert_near(found, before, rounding + bound, "product", t, r);
        }
    for (int t = 0; t + 1 < p->n; t++)
        for (ptrdiff_t i = p->rows; i < p->ldy; i++)
            assert_true(isnan(p->y[t * p->ldy + i])); // the poison between the rows
}

static const enum dtype types[] = {DTYPE_Q8, DTYPE_Q4};

static void test_few(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < 2; type++)
        for (int n = 1; n <= 8; n++)
            for (int i = 0; i < N_WIDTHS; i++)
                for (int rows = 1; rows <= 13; rows += rows < 5 ? 1 : 4) {
                    const struct problem p = make_problem(f, types[type], rows, widths[i], n);
                    quantise(f, &p, i % 2 ? 1024 : 256);
                    multiply(f, &p, 0, rows);
                    check(&p);
                    release(f);
                }
}

static void test_many(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int counts[] = {9, 16, 17, 31, 33, 48, 49, 100};
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < N_WIDTHS; i++)
            for (int j = 0; j < 8; j++) {
                const struct problem p = make_problem(f, types[type], 1 + (i * 7 + j * 11) % 34, widths[i], counts[j]);
                quantise(f, &p, j % 2 ? 128 : 1024);
                multiply(f, &p, 0, p.rows);
                check(&p);
                release(f);
            }
}

// More rows and tokens than any block has.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[][3] = {{150, 40, 9}, {275, 32, 50}, {33, 70, 1000}, {9, 300, 401}};
    for (int i = 0; i < 4; i++) {
        const struct problem p = make_problem(f, types[i % 2], sizes[i][0], sizes[i][1], sizes[i][2]);
        quantise(f, &p, 128);
        multiply(f, &p, 0, p.rows);
        check(&p);
        release(f);
    }
}

// The largest sums that there can be: no integer overflows.
static void test_extremes(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < 2; type++)
        for (int n = 1; n <= 20; n += 19)
            for (int sign = -1; sign <= 1; sign += 2) {
                const struct problem p = make_problem(f, types[type], 5, 480, n);
                memset(p.w, types[type] == DTYPE_Q8 ? 0x80 : 0x88, (size_t)p.rows * 15 * (types[type] == DTYPE_Q8 ? 32 : 16));
                for (int i = 0; i < (n - 1) * p.ldx + p.cols; i++)
                    p.x[i] = (float)sign * 1e30f;
                quantise(f, &p, 1024);
                multiply(f, &p, 0, p.rows);
                check(&p);
                release(f);
            }
}

static void test_row_shares(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < 2; type++)
        for (int n = 1; n <= 70; n = n < 9 ? n + 1 : n + 23) {
            const struct problem p = make_problem(f, types[type], 83, 333, n);
            const size_t bytes = sizeof(float) * (size_t)((n - 1) * p.ldy + p.rows);
            float *whole = malloc(bytes);
            quantise(f, &p, 128);
            multiply(f, &p, 0, p.rows);
            memcpy(whole, p.y, bytes);
            memset(p.y, 0xff, bytes);
            for (int first = 0, last; first < p.rows; first = last) {
                last = first + 1 + below(f, 30);
                last = last < p.rows ? last : p.rows;
                multiply(f, &p, first, last);
            }
            assert_memory_equal(p.y, whole, bytes);
            free(whole);
            release(f);
        }
}

// A value that is not a number, or infinite, makes a product that is none, and leaves other tokens alone.
static void test_not_numbers(void **state)
{
    struct fixture *f = fixture_of(state);
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int type = 0; type < 2; type++)
        for (int n = 3; n <= 20; n += 17)
            for (int v = 0; v < 3; v++) {
                const struct problem p = make_problem(f, types[type], 4, 100, n);
                p.x[1 * p.ldx + 70] = values[v];
                quantise(f, &p, 1024);
                multiply(f, &p, 0, p.rows);
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
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < N_WIDTHS; i++) {
            const struct problem p = make_problem(f, types[type], 3, widths[i], 1);
            float *y = guarded(f, sizeof *y * (size_t)p.cols);
            for (int r = 0; r < p.rows; r++) {
                quant_row_to_fp32(y, p.type, p.w, p.rows, p.cols, r);
                for (int c = 0; c < p.cols; c++)
                    assert_true(y[c] == (float)(quant_at(&p, r, c) * scale_at(&p, r, c / 32)));
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
        {"the largest sums do not overflow", test_extremes},
        {"shares of rows give the same bits", test_row_shares},
        {"what is not a number stays none", test_not_numbers},
        {"rows become floats exactly", test_rows_to_fp32},
    };
    return run_on_every_isa("quantised kernels", cases, sizeof cases / sizeof *cases);
}
