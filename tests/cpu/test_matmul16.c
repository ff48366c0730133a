// Products by 16-bit integers, by tiles of bfloat16 in three parts and in one, and by tiles of bytes,
// against a double-precision reference, at awkward sizes and magnitudes. Each is skipped where the machine has none.
#include "cpu/machine/isa.h"
#include "kernels_testing.h"

static yalm_activations form;
static bool tiled, fixed;                        // by tiles; as 16-bit integers
static const struct matmul16 *half, *half_short; // of that form; NULL, or those of fewer tokens

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

static void multiply_as(struct fixture *f, const struct matmul16 *by, const struct problem *p, int pieces)
{
    void *packed = guarded_scratch(f, by->size(p->n, p->cols)), *scratch = guarded_scratch(f, by->scratch);
    for (int at = 0, step = ((p->cols + pieces - 1) / pieces + MATMUL16_BLOCK - 1) / MATMUL16_BLOCK * MATMUL16_BLOCK;
         at < p->cols; at += step)
        by->pack(packed, p->x, p->ldx, p->n, p->cols, at, at + step < p->cols ? at + step : p->cols);
    for (int i = 0; i < pieces; i++) { // the rows in as many claims
        const int first = p->rows * i / pieces, last = p->rows * (i + 1) / pieces;
        by->product[p->type](&(struct product_args){
            .y = p->y + first,
            .ldy = p->ldy,
            .w = p->w,
            .type = p->type,
            .rows = p->rows,
            .first_row = first,
            .last_row = last,
            .cols = p->cols,
            .x = packed,
            .n = p->n,
            .scratch = scratch,
        });
    }
}

static void multiply(struct fixture *f, const struct problem *p, int pieces)
{
    multiply_as(f, half_short && p->n <= half_short->most ? half_short : half, p, pieces);
}

// What may be lost, of the sum of the products' magnitudes. Tiles of one part round a token by at most 2^-8, and so a quantised
// weight. Of three parts quantised weights have two, which lose at most 2^-16 of each factor and the product of the second
// parts; the others lose what float32's own products do.
static double loss(enum dtype type, int cols)
{
    if (fixed)
        return 0x1p-21; // of float32's sums: the rest is integer_loss() or bytes_loss()
    if (form == YALM_ACTIVATIONS_INT8)
        return 0x1p-7 + 0x1p-15;
    return (dtype_group_bytes[type] ? 0x1.8p-15 : 0x1.8p-22) +
           cols * 0x1p-29; // up to six products of parts, a rounding each; errors of sums fall at random
}

static double scale_at(const struct problem *p, int r, int c) // of a quantised weight
{
    const size_t groups = quant_groups(p->cols);
    uint16_t scale;
    memcpy(&scale, (uint8_t *)p->w + p->rows * groups * dtype_group_bytes[p->type] + 2 * (r * groups + c / QUANT_GROUP),
           sizeof scale);
    return fp16_value(scale);
}

static double weight_at(const struct problem *p, int r, int c)
{
    if (!dtype_group_bytes[p->type])
        return value_of(p->type, p->w, (size_t)r * p->cols + c);
    const size_t at = (size_t)r * quant_groups(p->cols) * QUANT_GROUP + c;
    const uint8_t *w = p->w;
    const int nibble = c % 2 ? w[at / 2] >> 4 : w[at / 2] & 15;
    return scale_at(p, r, c) * (p->type == DTYPE_Q8 ? (int8_t)w[at] : nibble < 8 ? nibble : nibble - 16);
}

enum { SHORT = 28 }; // tokens, and fewer, that are multiplied along their columns

// The largest sum of magnitudes in columns of [first, last) that are summed in integers: any 32, from a multiple of 8 on; of a
// short prompt every 16th pair.
static double most_sum(const float *x, bool is_short, int first, int last)
{
    double most = 0;
    for (int from = first; from < (is_short ? first + 32 : last); from += is_short ? 2 : 8) {
        double sum = 0;
        for (int i = 0; i < (is_short ? MATMUL16_BLOCK / 16 : 32); i++) {
            const int c = is_short ? from + i / 2 * 32 + i % 2 : from + i;
            sum += c < last ? fabs((double)x[c]) : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

// What a product of 16-bit integers may lose in columns [first, last), which share a scale: half a unit of a token, and of a
// weight that is no multiple of its own. The unit of a token is what its largest value needs, or the largest sum of magnitudes
// in columns that are summed in integers; that of a weight the power of two of which the largest one is 2^13 to 2^14. What is
// below 10^-30 counts as 0.
static double integer_loss(const struct problem *p, int r, int t, int first, int last)
{
    double rounded = 0, weights = 0, most_x = 0, most_w = 0;
    for (int c = first; c < last; c++) {
        const double x = fabs((double)p->x[t * p->ldx + c]), w = fabs(weight_at(p, r, c));
        weights += w;
        most_x = x > most_x ? x : most_x;
        most_w = w > most_w ? w : most_w;
    }
    if (most_x <= 1e-30 || most_w <= 1e-30)
        return most_x * weights;
    const double of_sums = most_sum(p->x + t * p->ldx, p->n <= SHORT, first, last) / 131040;
    const double x_unit = 1.0001 * (most_x / 32767 > of_sums ? most_x / 32767 : of_sums);
    const double w_unit = ldexp(1, ilogb(most_w) - 13);
    for (int c = first; c < last; c++)
        if (fmod(weight_at(p, r, c), w_unit) != 0)
            rounded += fabs((double)p->x[t * p->ldx + c]) + 0.5 * x_unit;
    return 0.5 * x_unit * weights + 0.5 * w_unit * rounded;
}

// The same of tiles of bytes: half a unit of a token; one of a weight, half of it by its group's factor; the product of both;
// and that of the low bytes.
static double bytes_loss(const struct problem *p, int r, int t, int first, int last)
{
    const double whole = p->type == DTYPE_Q8 ? 128 : 8; // the largest quant
    double tokens = 0, weights = 0, most_x = 0, most_scale = 0;
    for (int c = first; c < last; c++) {
        const double x = fabs((double)p->x[t * p->ldx + c]), scale = fabs(scale_at(p, r, c));
        tokens += x;
        weights += fabs(weight_at(p, r, c));
        most_x = x > most_x ? x : most_x;
        most_scale = scale > most_scale ? scale : most_scale;
    }
    const double x_unit = most_x / 32639, w_unit = most_scale * whole / 32639;
    const double flushed = most_x / 32639 < 0x1p-125 ? most_x * weights : 0; // such tokens are 0
    return 0.5 * x_unit * weights + w_unit * tokens + (last - first) * x_unit * w_unit * (0.5 + 128 * 128) + flushed;
}

static void check(const struct problem *p, int r, int t)
{
    if (!NUMBERS_COUNT)
        return;
    double sum = 0, magnitude = 0, weights = 0;
    for (int c = 0; c < p->cols; c++) {
        const double weight = weight_at(p, r, c), product = weight * (double)p->x[t * p->ldx + c];
        sum += product;
        magnitude += fabs(product);
        weights += fabs(weight);
    }
    // bfloat16's instructions take subnormal tokens, parts and sums for 0.
    const double flushed = tiled ? 0x1p-126 * (3 * weights + 6 * p->cols) : 0;
    double lost = loss(p->type, p->cols) * magnitude;
    const int block = tiled || p->n <= SHORT ? MATMUL16_BLOCK : QUANT_BLOCK;
    for (int c = 0; fixed && c < p->cols; c += block)
        lost += (tiled ? bytes_loss : integer_loss)(p, r, t, c, c + block < p->cols ? c + block : p->cols);
    assert_near(p->y[t * p->ldy + r], sum, lost + flushed + 1e-43, "product", t, r);
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
    static const int cols[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 191, 300},
                     tokens[] = {1, 9, 31, 32, 33, 64, 65, 100, 129, 5, 12, 22, 24, 25, 28, 29};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < 11 && half->product[types[type]]; i++)
            for (int j = 0; j < (int)(sizeof tokens / sizeof *tokens); j++) {
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
    for (int i = 0; i < 2 * TYPES; i++) {
        const int type = i % TYPES, n = i < TYPES ? sizes[type][2] : 6 + 3 * type;
        if (!half->product[types[type]])
            continue;
        const struct problem p = make_problem(f, types[type], sizes[type][0], sizes[type][1], n);
        multiply(f, &p, 2);
        check_all(&p);
        release(f);
    }
}

// Everything of one sign and at its largest, and then only columns that are summed in integers: 32 that lie together, or every
// 16th pair. No run of sums may leave float16's range, or 32 bits.
static void test_largest(void **state)
{
    enum { COLS = 260, KINDS = 6 };
    struct fixture *f = fixture_of(state);
    for (int run = 0; run < 2 * KINDS * 2; run++) {
        const int type = run % 2, kind = run / 2 % KINDS;
        const struct problem p = make_problem(f, types[type], 9, COLS, run < 2 * KINDS ? 40 : 10);
        for (int i = 0; i < 9 * COLS; i++)
            ((uint16_t *)p.w)[i] = type == 0 ? 0x7bff : 0x6e7f; // 65504; 2 · 10^28
        for (int t = 0; t < p.n; t++)
            for (int c = 0; c < COLS; c++) {
                const bool chosen = kind == 0 || (kind < KINDS - 1 ? c >= 8 * kind && c < 8 * kind + 32 : c % 32 < 2);
                p.x[t * p.ldx + c] = chosen ? 9999 : 0;
            }
        multiply(f, &p, 1);
        check_all(&p);
        release(f);
    }
}

// Columns of x that are thousands of times the others, and rows and tokens of very different magnitudes, subnormal halves among
// them.
static void test_outliers(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < 4; i++) {
        const int type = i % 2;
        const struct problem p = make_problem(f, types[type], 20, 260, i < 2 ? 50 : 20);
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

static void put_bits(const struct problem *p, int row, int col, unsigned bits)
{
    const size_t at = (size_t)row * p->cols + col;
    if (dtype_sizes[p->type] == 1)
        ((uint8_t *)p->w)[at] = (uint8_t)bits;
    else
        ((uint16_t *)p->w)[at] = (uint16_t)bits;
}

// A token, or a row, with NaN or infinity: its products are not finite, the others' are untouched.
static void test_not_finite(void **state)
{
    struct fixture *f = fixture_of(state);
    static const struct {
        enum dtype type;
        unsigned none, infinite;
    } kinds[] = {{DTYPE_FP16, 0x7e00, 0xfc00}, {DTYPE_BF16, 0xffc0, 0x7f80}, {DTYPE_FP8_E5M2, 0xfe, 0x7c}};
    for (int i = 0; i < 6; i++) {
        const struct problem p = make_problem(f, kinds[i / 2].type, 12, 150, i % 2 ? 8 : 40);
        p.x[3 * p.ldx + 140] = NAN;
        p.x[7 * p.ldx + 2] = INFINITY;
        put_bits(&p, 5, 9, kinds[i / 2].none);
        put_bits(&p, 6, 149, kinds[i / 2].infinite);
        multiply(f, &p, 1);
        for (int t = 0; t < p.n; t++)
            for (int r = 0; r < p.rows; r++)
                if (t == 3 || r == 5)
                    assert_true(isnan(p.y[t * p.ldy + r]));
                else if (t == 7 || r == 6)
                    assert_false(isfinite(p.y[t * p.ldy + r]));
                else
                    check(&p, r, t);
        release(f);
    }
}

// fp8: all finite codes, in rows (for each exponent one) whose largest are of that exponent.
static void test_codes(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < 4; i++) {
        const enum dtype type = i % 2 ? DTYPE_FP8 : DTYPE_FP8_E5M2;
        const int bits = type == DTYPE_FP8 ? 3 : 2, most = type == DTYPE_FP8 ? 0x7e : 0x7b, rows = (most >> bits) + 1;
        const struct problem p = make_problem(f, type, rows, 400, i < 2 ? 35 : 7);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 400; c++) {
                const int largest = ((r + 1) << bits) - 1 < most ? ((r + 1) << bits) - 1 : most;
                put_bits(&p, r, c, (unsigned)(c % 5 ? below(f, largest + 1) : largest) | (uniform(f) < 0 ? 0x80 : 0));
            }
        multiply(f, &p, 1);
        check_all(&p);
        release(f);
    }
}

// All zero; and what is below float32's normal numbers.
static void test_zeros(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < 4; i++) {
        const struct problem p = make_problem(f, types[i % 2], 10, 130, i < 2 ? 35 : 7);
        for (int c = 0; c < 130; c++) {
            p.x[2 * p.ldx + c] = c % 2 ? 0.0f : -0.0f;
            p.x[4 * p.ldx + c] = 1e-41f;
            ((uint16_t *)p.w)[3 * 130 + c] = 0x8000;
            ((uint16_t *)p.w)[5 * 130 + c] = 3; // 2 · 10^-7; 3 · 10^-40
        }
        multiply(f, &p, 1);
        check_all(&p);
        for (int r = 0; r < 10; r++)
            assert_true(p.y[2 * p.ldy + r] == 0);
        release(f);
    }
}

// Quantised weights: tokens of very different magnitudes with outliers, rows whose groups differ by thousands, and by nothing
// else than zeros; tokens and scales that are not finite spoil their own products alone.
static void test_scales(void **state)
{
    struct fixture *f = fixture_of(state);
    static const enum dtype quantised[] = {DTYPE_Q8, DTYPE_Q4};
    for (int type = 0; type < 2; type++) {
        const struct problem p = make_problem(f, quantised[type], 19, 620, 40);
        const int groups = quant_groups(p.cols);
        uint16_t *scales = (uint16_t *)((char *)p.w + (size_t)p.rows * groups * dtype_group_bytes[p.type]);
        for (int t = 0; t < p.n; t++)
            for (int c = 0; c < p.cols; c++)
                p.x[t * p.ldx + c] *= t == 9 ? 0 : (c % 97 == 5 ? 5000.0f : 1.0f) * ldexpf(1, t * 4 - 135);
        for (int g = 0; g < groups; g++) {
            scales[4 * groups + g] = 0;
            scales[8 * groups + g] = (uint16_t)(g % 5 == 2 ? 0x7bff : 0x0c00 + g); // 65504, and 2^-12 and more
            scales[10 * groups + g] = (uint16_t)(g % 5 == 2 ? 0x8001 : 0);         // -2^-24
        }
        p.x[3 * p.ldx + 600] = NAN;
        p.x[7 * p.ldx + 2] = -INFINITY;
        scales[5 * groups + 1] = 0x7e00;
        scales[6 * groups + 9] = 0xfc00;
        multiply(f, &p, 2);
        for (int t = 0; t < p.n; t++)
            for (int r = 0; r < p.rows; r++)
                if (t == 3 || r == 5 || t == 7 || r == 6)
                    assert_false(isfinite(p.y[t * p.ldy + r]));
                else
                    check(&p, r, t);
        release(f);
    }
}

// By the kernels of many tokens one has the same bits, however many are beside it.
static void test_beside_others(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int counts[] = {1, 7, 16, 17, 33, 48, 49, 65, 90};
    for (int type = 0; type < TYPES; type++) {
        if (!half->product[types[type]])
            continue;
        const struct problem all = make_problem(f, types[type], 45, 300 + 64 * type, 150);
        multiply_as(f, half, &all, 1);
        for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
            struct problem some = all;
            some.n = counts[i];
            some.y = guarded(f, sizeof *some.y * ((size_t)(some.n - 1) * some.ldy + some.rows));
            multiply_as(f, half, &some, 1);
            for (int t = 0; t < some.n; t++)
                assert_memory_equal(some.y + t * some.ldy, all.y + t * all.ldy, sizeof *all.y * (size_t)all.rows);
        }
        release(f);
    }
}

static void test_without(void **state)
{
    (void)state;
    skip(); // this machine, or this build, has no such arithmetic
}

static int run_form(const char *name, const char *isa, yalm_activations activations, enum matmul16_form of_many)
{
    const struct cpu_kernels *kernels = cpu_kernels_select(isa);
    form = activations;
    tiled = of_many != MATMUL16_INTEGERS;
    fixed = of_many == MATMUL16_INTEGERS || of_many == MATMUL16_TILES_BYTES;
    half = kernels ? matmul16_of(kernels, of_many) : NULL;
    half_short = half && !tiled ? matmul16_of(kernels, MATMUL16_SHORT) : NULL;
    const bool floats = half && half->product[DTYPE_FP16], quants = half && half->product[DTYPE_Q8];
    const struct {
        struct kernel_case test;
        bool runs;
    } cases[] = {
        {{"odd shapes", test_shapes}, half},
        {{"more than a block", test_blocks}, half},
        {{"the largest", test_largest}, floats},
        {{"outliers", test_outliers}, floats},
        {{"not finite", test_not_finite}, floats},
        {{"zeros", test_zeros}, floats},
        {{"codes", test_codes}, floats},
        {{"scales", test_scales}, quants},
        {{"beside others", test_beside_others}, half},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[CASES];
    for (int i = 0; i < CASES; i++)
        tests[i] = (struct CMUnitTest){cases[i].test.name, cases[i].runs ? cases[i].test.run : test_without, fixture_open,
                                       fixture_close, (void *)(uintptr_t) "auto"};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    int failed = run_form("16-bit integer kernels", "avx512vnni", YALM_ACTIVATIONS_INT16, MATMUL16_INTEGERS);
    failed += run_form("tiles of three parts", "amx", YALM_ACTIVATIONS_INT16, MATMUL16_TILES);
    failed += run_form("tiles for bytes", "amx", YALM_ACTIVATIONS_INT8, MATMUL16_TILES_ROUND);
    return failed + run_form("tiles of bytes", "amx", YALM_ACTIVATIONS_INT16, MATMUL16_TILES_BYTES);
}
