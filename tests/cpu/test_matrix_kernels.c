// Matrix products against a double-precision reference, at sizes that are a multiple of nothing.
#include "kernels_testing.h"

static const int awkward[] = {1, 2, 7, 31, 32, 33, 47, 64, 96, 129, 257, 400};

enum { N_AWKWARD = sizeof awkward / sizeof *awkward };

struct problem {
    enum dtype type;
    int rows, cols, n;
    ptrdiff_t ldx, ldy;
    void *w;  // (rows, cols)
    float *x; // (n, ldx)
    float *y; // (n, ldy)
};

static struct problem make_problem(struct fixture *f, enum dtype type, int rows, int cols, int n, int margin)
{
    struct problem p = {.type = type, .rows = rows, .cols = cols, .n = n, .ldx = cols + margin, .ldy = rows + margin};
    p.w = random_elements(f, type, (size_t)rows * cols);
    p.x = random_floats(f, (size_t)(n - 1) * p.ldx + cols, 1.0);
    p.y = guarded(f, sizeof *p.y * ((size_t)(n - 1) * p.ldy + rows));
    return p;
}

// Row r of the product, for all tokens, where y's first row is `first`; elements between the rows must be as they were.
static void check_row(const struct problem *p, const float *y, int r, int first)
{
    if (!NUMBERS_COUNT)
        return;
    for (int t = 0; t < p->n; t++) {
        double sum = 0, magnitude = 0;
        for (int c = 0; c < p->cols; c++) {
            const double product = value_of(p->type, p->w, (size_t)r * p->cols + c) * (double)p->x[t * p->ldx + c];
            sum += product;
            magnitude += fabs(product);
        }
        assert_near(y[t * p->ldy + r - first], sum, sum_error(p->cols) * magnitude, "product", t, r);
    }
}

static void check_margin(const struct problem *p)
{
    for (int t = 0; t + 1 < p->n; t++)
        for (ptrdiff_t i = p->rows; i < p->ldy; i++)
            assert_true(isnan(p->y[t * p->ldy + i])); // the poison
}

static void matvec_by(const struct fixture *f, const struct problem *p, int first, int last, bool to_l2)
{
    f->kernels->matvec[p->type](p->y + first, p->ldy, p->w, first, last, p->cols, p->x, p->ldx, p->n, to_l2);
}

static void matvec(const struct fixture *f, const struct problem *p, int first, int last)
{
    matvec_by(f, p, first, last, last % 2);
}

static void test_matvec(void **state)
{
    struct fixture *f = fixture_of(state);
    assert_in_range(f->kernels->matvec_max, 1, 8);
    for (int type = 0; type < DTYPE_FLOATS; type++)
        for (int n = 1; n <= f->kernels->matvec_max; n++)
            for (int i = 0; i < N_AWKWARD; i++)
                for (int rows = 1; rows <= 13; rows += rows < 5 ? 1 : 4) {
                    const struct problem p = make_problem(f, (enum dtype)type, rows, awkward[i], n, i % 2 * 3);
                    matvec(f, &p, 0, rows);
                    for (int r = 0; r < rows; r++)
                        check_row(&p, p.y, r, 0);
                    check_margin(&p);
                    release(f);
                }
}

static float *packed(struct fixture *f, const struct problem *p, int pieces)
{
    float *to = guarded_scratch(f, sizeof *to * f->kernels->packed_size(p->n, p->cols));
    for (int i = 0; i < pieces; i++)
        f->kernels->pack_tokens(to, p->x, p->ldx, p->n, p->cols, p->cols * i / pieces, p->cols * (i + 1) / pieces);
    return to;
}

static void matmul(struct fixture *f, const struct problem *p, const float *x, int first, int last)
{
    f->kernels->matmul[p->type](&(struct product_args){
        .y = p->y + first,
        .ldy = p->ldy,
        .w = p->w,
        .first_row = first,
        .last_row = last,
        .cols = p->cols,
        .x = x,
        .n = p->n,
        .scratch = guarded_scratch(f, f->kernels->matmul_scratch),
    });
}

static void check_matmul(struct fixture *f, enum dtype type, int rows, int cols, int n)
{
    const struct problem p = make_problem(f, type, rows, cols, n, n % 3);
    matmul(f, &p, packed(f, &p, 1 + n % 3), 0, rows);
    for (int r = 0; r < rows; r++)
        check_row(&p, p.y, r, 0);
    check_margin(&p);
    release(f);
}

static void test_matmul(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < DTYPE_FLOATS; type++)
        for (int i = 0; i < N_AWKWARD; i++)
            for (int j = 0; j < N_AWKWARD; j++)
                check_matmul(f, (enum dtype)type, 1 + (i * 5 + j * 11) % 40, awkward[i], awkward[j] % 130 + 1);
}

// More rows, columns and tokens than any block has.
static void test_matmul_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    check_matmul(f, DTYPE_FP16, 150, 40, 9);
    check_matmul(f, DTYPE_BF16, 275, 31, 50);
    check_matmul(f, DTYPE_FP16, 17, 1057, 33);
    check_matmul(f, DTYPE_FP32, 9, 70, 1000);
    check_matmul(f, DTYPE_FP16, 140, 300, 401);
    check_matmul(f, DTYPE_FP8, 275, 290, 50);
    check_matmul(f, DTYPE_FP8_E5M2, 17, 1057, 33);
}

static void test_row_shares(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < DTYPE_FLOATS; type++)
        for (int n = 1; n <= 70; n = n < 9 ? n + 1 : n + 23) {
            const struct problem p = make_problem(f, (enum dtype)type, 83, 333, n, 0);
            const size_t bytes = sizeof(float) * (size_t)n * p.rows;
            const bool few = n <= f->kernels->matvec_max;
            float *x = packed(f, &p, 2), *whole = malloc(bytes);
            if (few)
                matvec(f, &p, 0, p.rows);
            else
                matmul(f, &p, x, 0, p.rows);
            memcpy(whole, p.y, bytes);
            memset(p.y, 0xff, bytes);
            for (int first = 0, last; first < p.rows; first = last) {
                last = first + 1 + below(f, 30);
                last = last < p.rows ? last : p.rows;
                if (few)
                    matvec(f, &p, first, last);
                else
                    matmul(f, &p, x, first, last);
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
    for (int type = 0; type < DTYPE_FLOATS; type++)
        for (int n = 1; n <= f->kernels->matvec_max; n++) {
            const struct problem p = make_problem(f, (enum dtype)type, 13, L1_KEEPS / (int)sizeof(float) + 57, n, 0);
            const size_t bytes = sizeof(float) * (size_t)n * p.rows;
            float *near = malloc(bytes);
            matvec_by(f, &p, 0, p.rows, false);
            memcpy(near, p.y, bytes);
            memset(p.y, 0xff, bytes);
            matvec_by(f, &p, 0, p.rows, true);
            assert_memory_equal(p.y, near, bytes);
            for (int r = 0; r < p.rows; r++)
                check_row(&p, p.y, r, 0);
            free(near);
            release(f);
        }
}

// A product is the same to the bit whichever tokens come along.
static void check_alone(struct fixture *f, enum dtype type, int cols, int most)
{
    for (int n = 2; n <= most; n = n < f->kernels->matvec_max ? n + 1 : n + 17) {
        const struct problem p = make_problem(f, type, 21, cols, n, 0);
        if (n <= f->kernels->matvec_max)
            matvec(f, &p, 0, p.rows);
        else
            matmul(f, &p, packed(f, &p, 1), 0, p.rows);
        struct problem one = p;
        one.n = n <= f->kernels->matvec_max ? 1 : n - 1; // without the first
        one.x = p.x + (p.n - one.n) * p.ldx;
        one.y = guarded(f, sizeof(float) * (size_t)one.n * (size_t)one.ldy);
        if (n <= f->kernels->matvec_max)
            matvec(f, &one, 0, one.rows);
        else if (one.n > f->kernels->matvec_max)
            matmul(f, &one, packed(f, &one, 1), 0, one.rows);
        if (n <= f->kernels->matvec_max || one.n > f->kernels->matvec_max)
            assert_memory_equal(one.y, p.y + (p.n - one.n) * p.ldy, sizeof(float) * (size_t)one.n * (size_t)one.ldy);
        release(f);
    }
}

static void test_token_alone(void **state)
{
    struct fixture *f = fixture_of(state);
    check_alone(f, DTYPE_FP16, 205, 60);
    check_alone(f, DTYPE_FP16, 2 * 2048 + 77, f->kernels->matvec_max); // tokens that L1 does not keep
    check_alone(f, DTYPE_BF16, 2 * 2048 + 77, f->kernels->matvec_max);
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"matvec equals the reference", test_matvec},
        {"matmul equals the reference", test_matmul},
        {"matmul across blocks equals the reference", test_matmul_blocks},
        {"shares of rows give the same bits", test_row_shares},
        {"fetching to L2 gives the same bits", test_fetching},
        {"other tokens do not change a product", test_token_alone},
    };
    return run_on_every_isa("matrix kernels", cases, sizeof cases / sizeof *cases);
}
