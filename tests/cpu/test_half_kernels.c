// Products by float16 multiply-adds, and by bfloat16 dot products, against a double-precision reference, at awkward sizes and magnitudes. Each is
// skipped where the machine has none.
#include "kernels_testing.h"

static yalm_activations form;
static const struct half_kernels *half; // of that form

static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_FP8, DTYPE_FP8_E5M2};

struct problem {
    enum dtype type;
    int rows, cols, n;
    ptrdiff_t ldx, ldy;
    void *w;
    float *x, *y;
};

static struct problem make_problem(struct fixture *f, enum dtype type, int rows, int cols, int n)
{
    struct problem p = {.type = type, .rows = rows, .cols = cols, .n = n, .ldx = cols + n % 3, .ldy = rows + cols % 2};
    p.w = random_elements(f, type, (size_t)rows * cols);
    p.x = random_floats(f, (size_t)(n - 1) * p.ldx + cols, 1.0);
    p.y = guarded(f, sizeof *p.y * ((size_t)(n - 1) * p.ldy + rows));
    return p;
}

static void multiply(struct fixture *f, const struct problem *p, int pieces)
{
    void *packed = guarded_scratch(f, half->size(p->n, p->cols)), *scratch = guarded_scratch(f, half->scratch);
    for (int at = 0, step = ((p->cols + pieces - 1) / pieces + 127) / 128 * 128; at < p->cols; at += step)
        half->pack(packed, p->x, p->ldx, p->n, p->cols, at, at + step < p->cols ? at + step : p->cols);
    for (int i = 0; i < pieces; i++) { // the rows in as many claims
        const int first = p->rows * i / pieces, last = p->rows * (i + 1) / pieces;
        half->product[p->type](&(struct matmul_args){
            .y = p->y + first,
            .ldy = p->ldy,
            .w = p->w,
            .first_row = first,
            .last_row = last,
            .cols = p->cols,
            .packed = packed,
            .n = p->n,
            .scratch = scratch,
        });
    }
}

// What may be lost, of the sum of the products' magnitudes. float16: both factors are rounded by at most 2^-11 of themselves, and by 2^-11 of the
// sum so far at each of a run's 64 additions, in all at most 2^-10 + 64 · 2^-11 ≈ 2^-5. Errors that fall at random stay far below: an eighth of that
// is asked. bfloat16: x is rounded by at most 2^-8, and so are fp16 weights; bf16 and fp8 ones are not, and sums are float32's.
static double loss(enum dtype type)
{
    if (form == YALM_ACTIVATIONS_FP16)
        return 0x1p-8;
    return (type == DTYPE_FP16 ? 0x1p-7 : 0x1p-8) + 0x1p-15;
}

static void check(const struct problem *p, int r, int t)
{
    double sum = 0, magnitude = 0, weights = 0;
    for (int c = 0; c < p->cols; c++) {
        const double product = value_of(p->type, p->w, (size_t)r * p->cols + c) * (double)p->x[t * p->ldx + c];
        sum += product;
        magnitude += fabs(product);
        weights += fabs(value_of(p->type, p->w, (size_t)r * p->cols + c));
    }
    // bfloat16's instruction takes subnormal tokens and sums for 0.
    const double flushed = form == YALM_ACTIVATIONS_BF16 ? 0x1p-126 * (weights + 2 * p->cols) : 0;
    assert_near(p->y[t * p->ldy + r], sum, loss(p->type) * magnitude + flushed + 1e-43, "product", t, r);
}

static void check_all(const struct problem *p)
{
    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < p->rows; r++)
            check(p, r, t);
    for (int t = 0; t + 1 < p->n; t++)
        for (ptrdiff_t i = p->rows; i < p->ldy; i++)
            assert_true(isnan(p->y[t * p->ldy + i])); // the poison
}

static void test_shapes(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int cols[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 191, 300}, tokens[] = {1, 9, 31, 32, 33, 64, 65, 100, 129};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < 11; i++)
            for (int j = 0; j < 9; j++) {
                const struct problem p = make_problem(f, types[type], 1 + (i * 5 + j * 11) % 30, cols[i], tokens[j]);
                multiply(f, &p, 1 + j % 3);
                check_all(&p);
                release(f);
            }
}

// More rows, columns and tokens than any block has.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[][3] = {{275, 31, 50}, {17, 1057, 33}, {9, 70, 1300}, {140, 300, 401}};
    for (int i = 0; i < 4; i++) {
        const struct problem p = make_problem(f, types[i], sizes[i][0], sizes[i][1], sizes[i][2]);
        multiply(f, &p, 2);
        check_all(&p);
        release(f);
    }
}

// Everything of one sign and at its largest: no run of sums may leave float16's range.
static void test_largest(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < 2; type++) {
        const struct problem p = make_problem(f, types[type], 9, 200, 40);
        for (int i = 0; i < 9 * 200; i++)
            ((uint16_t *)p.w)[i] = type == 0 ? 0x7bff : 0x6e7f; // 65504; 2 · 10^28
        for (int i = 0; i < 39 * (int)p.ldx + 200; i++)
            p.x[i] = 9999.0f;
        multiply(f, &p, 1);
        check_all(&p);
        release(f);
    }
}

// Columns of x that are thousands of times the others, and rows and tokens of very different magnitudes, subnormal halves among them.
static void test_outliers(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int type = 0; type < 2; type++) {
        const struct problem p = make_problem(f, types[type], 20, 260, 50);
        for (int t = 0; t < p.n; t++)
            for (int c = 0; c < p.cols; c++)
                p.x[t * p.ldx + c] *= (c % 97 == 5 ? 5000.0f : 1.0f) * ldexpf(1, t * 2 - 50);
        for (int r = 0; r < p.rows; r++)
            for (int c = 0; c < p.cols; c++) {
                uint16_t *w = (uint16_t *)p.w + r * p.cols + c;
                if (types[type] == DTYPE_BF16)
                    *w = (uint16_t)((*w & 0x807f) | (60 + 6 * r + c % 5) << 7); // from 2^-67 to 2^51
                else if (r % 2)
                    *w &= 0x83ff; // subnormal
            }
        multiply(f, &p, 1);
        check_all(&p);
        release(f);
    }
}

// A token, or a row, with NaN or infinity: its products are not finite, the others' are untouched.
static void test_not_finite(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct problem p = make_problem(f, DTYPE_FP16, 12, 150, 40);
    p.x[3 * p.ldx + 140] = NAN;
    p.x[7 * p.ldx + 2] = INFINITY;
    ((uint16_t *)p.w)[5 * 150 + 9] = 0x7e00;
    ((uint16_t *)p.w)[6 * 150 + 149] = 0xfc00;
    multiply(f, &p, 1);
    for (int t = 0; t < p.n; t++)
        for (int r = 0; r < p.rows; r++)
            if (t == 3 || r == 5)
                assert_true(isnan(p.y[t * p.ldy + r]));
            else if (t == 7 || r == 6)
                assert_false(isfinite(p.y[t * p.ldy + r]));
            else
                check(&p, r, t);
}

// All zero; and what is below float32's normal numbers.
static void test_zeros(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct problem p = make_problem(f, DTYPE_FP16, 10, 130, 35);
    for (int i = 0; i < 130; i++) {
        p.x[2 * p.ldx + i] = i % 2 ? 0.0f : -0.0f;
        p.x[4 * p.ldx + i] = 1e-41f;
        ((uint16_t *)p.w)[3 * 130 + i] = 0x8000;
    }
    multiply(f, &p, 1);
    check_all(&p);
    for (int i = 0; i < 10; i++)
        assert_true(p.y[2 * p.ldy + i] == 0);
}

static void test_without(void **state)
{
    (void)state;
    skip(); // this machine, or this build, has no such arithmetic
}

static int run_form(const char *name, yalm_activations activations)
{
    const struct kernel_case cases[] = {
        {"odd shapes", test_shapes}, {"more than a block", test_blocks}, {"the largest", test_largest},
        {"outliers", test_outliers}, {"not finite", test_not_finite},    {"zeros", test_zeros},
    };
    form = activations;
    half = half_kernels_select(cpu_kernels_select("auto"), form);
    struct CMUnitTest tests[6];
    for (int i = 0; i < 6; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, half ? cases[i].run : test_without, fixture_open, fixture_close,
                                       (void *)(uintptr_t) "auto"};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    const int failed = run_form("float16 kernels", YALM_ACTIVATIONS_FP16);
    return failed + run_form("bfloat16 kernels", YALM_ACTIVATIONS_BF16);
}
