// Products by float16 multiply-adds, by bfloat16 dot products, and by tiles of bfloat16 in one to three parts, against a double-precision reference, at
// awkward sizes and magnitudes. Each is skipped where the machine has none.
#include "kernels_testing.h"

static yalm_activations form;
static bool tiled;
static const struct half_kernels *half; // of that form

static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_FP8, DTYPE_FP8_E5M2, DTYPE_FP32, DTYPE_Q8, DTYPE_Q4};
enum { TYPES = sizeof types / sizeof *types };

// Any bytes as quants, then scales, of either sign, subnormal ones among them.
static void *random_quants(struct fixture *f, enum dtype type, int rows, int cols)
{
    const size_t groups = (size_t)rows * quant_groups(cols), bytes = groups * dtype_group_bytes[type];
    uint8_t *w = guarded(f, bytes + 2 * groups);
    for (size_t i = 0; i < bytes; i++)
        w[i] = (uint8_t)below(f, 256);
    for (size_t i = 0; i < groups; i++) {
        const int magnitude = i % 7 == 0 ? below(f, 0x0400) : 0x1c00 + below(f, 0x1000);
        const uint16_t scale = (uint16_t)(magnitude | (uniform(f) < 0 ? 0x8000 : 0));
        memcpy(w + bytes + 2 * i, &scale, sizeof scale);
    }
    return w;
}

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
    p.w = dtype_group_bytes[type] ? random_quants(f, type, rows, cols) : random_elements(f, type, (size_t)rows * cols);
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
            .rows = p->rows,
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
// is asked. bfloat16: x is rounded by at most 2^-8, and so are fp16 weights; bf16 and fp8 ones are not, and sums are float32's. Tiles of two parts lose
// at most 2^-16 of each factor, and the product of the second parts. Of three, what float32's own products lose, but for quantised weights.
static double loss(enum dtype type, int cols)
{
    const bool exact = type == DTYPE_BF16 || type == DTYPE_FP8 || type == DTYPE_FP8_E5M2;
    if (form == YALM_ACTIVATIONS_FP16 && !tiled)
        return 0x1p-8;
    if (form == YALM_ACTIVATIONS_BF16 || form == YALM_ACTIVATIONS_INT8)
        return (exact ? 0x1p-8 : 0x1p-7) + 0x1p-15;
    const bool two = form == YALM_ACTIVATIONS_FP16 || dtype_group_bytes[type];
    return (two ? 0x1.8p-15 : 0x1p-22) + cols * 0x1p-29; // errors of sums fall at random
}

static double weight_at(const struct problem *p, int r, int c)
{
    const size_t group = dtype_group_bytes[p->type], groups = quant_groups(p->cols);
    if (!group)
        return value_of(p->type, p->w, (size_t)r * p->cols + c);
    const size_t at = (size_t)r * groups * QUANT_GROUP + c;
    const uint8_t *w = p->w;
    uint16_t scale;
    memcpy(&scale, w + p->rows * groups * group + 2 * (r * groups + c / QUANT_GROUP), sizeof scale);
    const int nibble = c % 2 ? w[at / 2] >> 4 : w[at / 2] & 15;
    return fp16_value(scale) * (p->type == DTYPE_Q8 ? (int8_t)w[at] : nibble < 8 ? nibble : nibble - 16);
}

static void check(const struct problem *p, int r, int t)
{
    double sum = 0, magnitude = 0, weights = 0;
    for (int c = 0; c < p->cols; c++) {
        const double weight = weight_at(p, r, c), product = weight * (double)p->x[t * p->ldx + c];
        sum += product;
        magnitude += fabs(product);
        weights += fabs(weight);
    }
    // bfloat16's instructions take subnormal tokens, parts and sums for 0.
    const double flushed = tiled || form == YALM_ACTIVATIONS_BF16 ? 0x1p-126 * (3 * weights + 6 * p->cols) : 0;
    assert_near(p->y[t * p->ldy + r], sum, loss(p->type, p->cols) * magnitude + flushed + 1e-43, "product", t, r);
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
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < 11 && half->product[types[type]]; i++)
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
    static const int sizes[TYPES][3] = {{275, 31, 50},  {17, 1057, 33},  {9, 70, 1300},  {140, 300, 401},
                                        {300, 530, 40}, {290, 1030, 60}, {33, 1100, 545}};
    for (int i = 0; i < TYPES; i++) {
        if (!half->product[types[i]])
            continue;
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

static int run_form(const char *name, const char *isa, yalm_activations activations)
{
    const struct kernel_case cases[] = {
        {"odd shapes", test_shapes}, {"more than a block", test_blocks}, {"the largest", test_largest},
        {"outliers", test_outliers}, {"not finite", test_not_finite},    {"zeros", test_zeros},
    };
    form = activations;
    const struct cpu_kernels *kernels = cpu_kernels_select(isa);
    tiled = !strcmp(isa, "amx");
    half = kernels ? half_kernels_select(kernels, form) : NULL;
    const bool floats = !half || half->product[DTYPE_FP16]; // else only the first two are of use
    struct CMUnitTest tests[6];
    for (int i = 0; i < 6; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, half && (floats || i < 2) ? cases[i].run : test_without, fixture_open,
                                       fixture_close, (void *)(uintptr_t) "auto"};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    int failed = run_form("float16 kernels", "avx512vnni", YALM_ACTIVATIONS_FP16);
    failed += run_form("bfloat16 kernels", "avx512vnni", YALM_ACTIVATIONS_BF16);
    failed += run_form("tiles of three parts", "amx", YALM_ACTIVATIONS_INT16);
    failed += run_form("tiles of two parts", "amx", YALM_ACTIVATIONS_FP16);
    failed += run_form("tiles of one part", "amx", YALM_ACTIVATIONS_BF16);
    return failed + run_form("tiles for bytes", "amx", YALM_ACTIVATIONS_INT8);
}
