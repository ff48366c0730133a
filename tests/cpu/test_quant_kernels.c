// Products of quantised matrices: against sums in double of the same quants, to rounding; against the tokens as they were
// before they were quantised, within the bound that half a step of each value gives.
#include "cpu/machine/isa.h"
#include "cpu/plan.h"
#include "kernels_testing.h"
#include "model/quant.h"
#include "model/quant_values.h"

static const int widths[] = {1, 31, 32, 33, 64, 96, 128, 200, 256, 352, 512, 544, 1000, 1057};

enum { N_WIDTHS = sizeof widths / sizeof *widths };

// How tokens are quantised, by the rules that ref/quant.c states.
struct form {
    bool int8;
    int block;  // columns with one scale
    float most; // of the integers
};
static const struct form forms[] = {{false, 128, 32512}, {true, 32, 127}};

struct problem {
    enum dtype type;
    const struct form *form;
    const struct quant_kernels *quant;
    int rows, cols, groups, n;
    ptrdiff_t ldx, ldy;
    uint8_t *w; // quants, then scales, as docs/format.md has them
    float *x;   // (n, ldx)
    float *y;   // (n, ldy)
    void *quantised, *scratch;
};

static bool has_row_scale(enum dtype type)
{
    return type == DTYPE_Q4N || type == DTYPE_Q5 || type == DTYPE_Q6;
}
// Eight groups' scales stand together.
static bool in_eights(enum dtype type)
{
    return type == DTYPE_Q4K || type == DTYPE_Q5K || type == DTYPE_Q6K;
}
static bool has_pairs(enum dtype type) // of a scale and a minimum
{
    return type == DTYPE_Q4A || type == DTYPE_Q5A;
}

// Bytes of a group: in a row's first plane, and in its second; and of eight groups' scales.
static size_t low_bytes(enum dtype type)
{
    return type == DTYPE_Q8 ? 32 : 16;
}
static size_t high_bytes(enum dtype type)
{
    const bool five = type == DTYPE_Q5 || type == DTYPE_Q5U || type == DTYPE_Q5K || type == DTYPE_Q5A;
    return five ? 4 : type == DTYPE_Q6 || type == DTYPE_Q6K ? 8 : 0;
}
static size_t scale_bytes(enum dtype type)
{
    return has_row_scale(type) ? 8 : type == DTYPE_Q6K ? 18 : has_pairs(type) ? 32 : 16;
}
static size_t all_scales(const struct problem *p) // bytes
{
    return (size_t)p->rows * (size_t)p->groups * scale_bytes(p->type) / 8;
}
static size_t all_quants(const struct problem *p) // bytes
{
    return (size_t)p->rows * (size_t)p->groups * (low_bytes(p->type) + high_bytes(p->type));
}

static int quant_at(const struct problem *p, int row, int col)
{
    const size_t groups = (size_t)p->groups, low = low_bytes(p->type), high = high_bytes(p->type), group = (size_t)col / 32;
    const uint8_t *quants = p->w + (size_t)row * groups * (low + high) + group * low;
    const uint8_t *more = p->w + (size_t)row * groups * (low + high) + groups * low + group * high;
    const int c = col % 32, nibble = c % 2 ? quants[c / 2] >> 4 : quants[c / 2] & 15;
    switch (p->type) {
    case DTYPE_Q8:
        return (int8_t)quants[c];
    case DTYPE_Q4:
    case DTYPE_Q4K:
    case DTYPE_Q4A:
        return nibble < 8 ? nibble : nibble - 16;
    case DTYPE_Q4N:
        return q4n_values[nibble];
    case DTYPE_Q5:
        return q5_values[nibble + (more[c % 8 / 2] >> (c / 8 * 2 + c % 2) & 1) * 16];
    case DTYPE_Q5U:
    case DTYPE_Q5K:
    case DTYPE_Q5A:
        return nibble - (more[c % 8 / 2] >> (c / 8 * 2 + c % 2) & 1) * 16;
    default: {
        const int two = more[c % 2 * 4 + c % 8 / 2] >> c / 8 * 2 & 3;
        return two < 2 ? two * 16 + nibble : two * 16 + nibble - 64;
    }
    }
}

static double half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return fp16_value(half);
}

// A weight, without its row's scale, which is not the kernels', as the terms of a sum. Minima are rounded as what they come to
// with the scale times `centre`, by which quants with a sign are less than those of the format's formula.
struct terms {
    double scaled, minimum, centre;
};
static struct terms terms_at(const struct problem *p, int row, int col)
{
    const int quant = quant_at(p, row, col), centre = high_bytes(p->type) ? 16 : 8, unsigned_quant = quant + centre;
    const size_t i = (size_t)row * (size_t)p->groups + (size_t)col / 32;
    const uint8_t *scales = p->w + all_quants(p), *eight = scales + i / 8 * scale_bytes(p->type);
    if (has_row_scale(p->type))
        return (struct terms){quant * (int8_t)scales[i], 0, 0};
    if (has_pairs(p->type))
        return (struct terms){unsigned_quant * half_at(scales + 4 * i), half_at(scales + 4 * i + 2),
                              centre * half_at(scales + 4 * i)};
    if (p->type == DTYPE_Q6K)
        return (struct terms){quant * ((int8_t)eight[2 + col % 32 / 16 * 8 + (int)(i % 8)] * half_at(eight)), 0, 0};
    if (in_eights(p->type)) {
        const int byte = eight[4 + i % 8], nibble = i % 2 ? eight[12 + i % 8 / 2] >> 4 : eight[12 + i % 8 / 2] & 15;
        return (struct terms){unsigned_quant * (byte % 64 * half_at(eight)), -(byte / 64 + 4 * nibble) * half_at(eight + 2),
                              centre * (byte % 64 * half_at(eight))};
    }
    return (struct terms){quant * half_at(scales + 2 * i), 0, 0};
}
static double weight_at(const struct problem *p, int row, int col)
{
    const struct terms terms = terms_at(p, row, col);
    return terms.scaled + terms.minimum;
}

// Of either sign, subnormal ones among them.
static void random_half(struct fixture *f, uint8_t *at, size_t i)
{
    const uint16_t half =
        (uint16_t)((i % 7 == 0 ? below(f, 0x0400) : 0x1c00 + below(f, 0x1000)) | (uniform(f) < 0 ? 0x8000 : 0));
    memcpy(at, &half, sizeof half);
}

static struct problem make_problem(struct fixture *f, const struct form *form, enum dtype type, int rows, int cols, int n)
{
    cols = in_eights(type) ? (cols + 255) / 256 * 256 : cols;
    struct problem p = {.type = type, .form = form, .rows = rows, .cols = cols, .groups = (cols + 31) / 32, .n = n};
    p.quant = form->int8 ? f->kernels->quant8 : f->kernels->quant;
    p.ldx = cols + n % 3;
    p.ldy = rows + n % 2;
    const size_t n_groups = (size_t)rows * (size_t)p.groups, bytes = all_quants(&p);
    p.w = guarded(f, bytes + all_scales(&p));
    for (size_t i = 0; i < bytes + all_scales(&p); i++)
        p.w[i] = (uint8_t)below(f, 256); // past the last column too: what stands there must not count
    const size_t apart = has_pairs(type) ? 4 : in_eights(type) ? scale_bytes(type) : 2;
    for (size_t i = 0; i < n_groups / (in_eights(type) ? 8 : 1) && !has_row_scale(type); i++) {
        random_half(f, p.w + bytes + apart * i, i);
        if (has_pairs(type) || type == DTYPE_Q4K || type == DTYPE_Q5K)
            random_half(f, p.w + bytes + apart * i + 2, i + 3);
    }
    p.x = random_floats(f, (size_t)((n - 1) * p.ldx + cols), 1.0);
    for (int t = 0; t < n; t++) // groups of very different sizes, and some that are all zero
        for (int c = 0; c < cols; c++)
            p.x[t * p.ldx + c] *= (t + c / 32) % 5 == 0 ? 0 : (float)ldexp(1, (t * 3 + c / 32 * 7) % 24 - 12);
    p.y = guarded(f, sizeof *p.y * (size_t)((n - 1) * p.ldy + rows));
    p.quantised = guarded_scratch(f, plan_quant_form(p.quant, n)->size(n, cols));
    p.scratch = guarded_scratch(f, p.quant->scratch);
    return p;
}

// In pieces, as a team shares it.
static void quantise(const struct problem *p, int piece)
{
    for (int c = 0; c < p->cols; c += piece)
        plan_quant_form(p->quant, p->n)
            ->quantise(p->quantised, p->x, p->ldx, p->n, p->cols, c, p->cols - c < piece ? p->cols : c + piece);
}

static void multiply_by(const struct problem *p, int first, int last, struct fetching fetching)
{
    plan_quant_form(p->quant, p->n)
        ->product[p->type](&(struct product_args){
            .y = p->y + first,
            .ldy = p->ldy,
            .w = p->w,
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

static const enum dtype types[] = {DTYPE_Q8,  DTYPE_Q4,  DTYPE_Q4N, DTYPE_Q5,  DTYPE_Q6, DTYPE_Q5U,
                                   DTYPE_Q4K, DTYPE_Q5K, DTYPE_Q6K, DTYPE_Q4A, DTYPE_Q5A};

enum { TYPES = sizeof types / sizeof *types, KINDS = 2 * TYPES }; // every form with every type
static struct problem make_kind(struct fixture *f, int kind, int rows, int cols, int n)
{
    return make_problem(f, &forms[kind / TYPES], types[kind % TYPES], rows, cols, n);
}

static void test_few(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int rows[] = {1, 2, 3, 4, 5, 9, 13};
    enum { ROWS = sizeof rows / sizeof *rows };
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 1; n <= 8; n++)
            for (int i = (kind + n) % 2; i < N_WIDTHS; i += 2)    // the next type, which shares loops, has the other widths
                for (int j = (n + i / 2) % 2; j < ROWS; j += 2) { // and the next width the other rows
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
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < N_WIDTHS; i++)
            for (int j = (kind + i) % 2; j < COUNTS; j += 2) { // as above
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

// By tiles of bytes tokens and weights are 16-bit integers, with a scale for each block of columns: what a product may lose
// there. Half a unit of a token; of a weight half of one by its scale's factor, by its product, and by what is added; both
// units together; and the product of the low bytes.
static double tiles_loss(const struct problem *p, int row, int t, int first, int last)
{
    double tokens = 0, weights = 0, most_x = 0, most_w = 0;
    for (int c = first; c < last; c++) {
        const struct terms terms = terms_at(p, row, c);
        const int quant = quant_at(p, row, c), whole = low_bytes(p->type) == 32 ? 128 : high_bytes(p->type) == 4 ? 16 : 8;
        const bool affine = terms.centre != 0, wide = p->type == DTYPE_Q4N || p->type == DTYPE_Q5 || high_bytes(p->type) == 8;
        const double scale = fabs(quant ? terms.scaled / quant : 0),
                     reach = affine ? fabs(terms.centre) + fabs(terms.centre + terms.minimum) : scale * (wide ? 32 : whole);
        const double x = fabs((double)p->x[t * p->ldx + c]);
        tokens += x;
        weights += fabs(terms.scaled + terms.minimum);
        most_x = x > most_x ? x : most_x;
        most_w = reach > most_w ? reach : most_w;
    }
    const double x_unit = most_x / 32639, w_unit = most_w / 32637;
    return 0.5 * x_unit * weights + 1.5 * w_unit * tokens + (last - first) * x_unit * w_unit * (0.75 + 128 * 128);
}

static void multiply_tiles(struct fixture *f, const struct matmul16 *by, const struct problem *p)
{
    void *packed = guarded_scratch(f, by->size(p->n, p->cols));
    by->pack(packed, p->x, p->ldx, p->n, p->cols, 0, p->cols);
    by->product[p->type](&(struct product_args){
        .y = p->y,
        .ldy = p->ldy,
        .w = p->w,
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
        for (int t = 0; t < n; t++)
            for (int r = 0; r < rows; r++) {
                double sum = 0, lost = 0;
                for (int c = 0; c < p.cols; c++)
                    sum += weight_at(&p, r, c) * (double)p.x[t * p.ldx + c];
                for (int c = 0; c < p.cols; c += MATMUL16_BLOCK)
                    lost += tiles_loss(&p, r, t, c, c + MATMUL16_BLOCK < p.cols ? c + MATMUL16_BLOCK : p.cols);
                assert_near(p.y[t * p.ldy + r], sum, 1.001 * lost, "product by tiles", t, r);
            }
        release(f);
    }
}

// All quants are the smallest that there are.
static void smallest(const struct problem *p)
{
    const size_t groups = (size_t)p->groups, low = groups * low_bytes(p->type), high = groups * high_bytes(p->type);
    for (size_t r = 0; r < (size_t)p->rows; r++) {
        uint8_t *row = p->w + r * (low + high);
        const bool nibbles = p->type == DTYPE_Q4 || p->type == DTYPE_Q4K || p->type == DTYPE_Q4A;
        memset(row, p->type == DTYPE_Q8 ? 0x80 : nibbles ? 0x88 : 0, low);
        memset(row + low, p->type == DTYPE_Q5 ? 0 : high_bytes(p->type) == 4 ? 0xff : 0xaa, high);
    }
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
        for (int n = 1; n <= 70; n = n < 9 ? n + 1 : n + 23) {
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
        for (int n = 1; n <= QUANT_FEW; n++) {
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
        for (int n = 3; n <= 71; n += 17) // 3, 20, 37, 54, 71
            for (int v = 0; v < 3; v++) {
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
        {"products by tiles of bytes equal the reference", test_tiles},
        {"the largest sums do not overflow", test_extremes},
        {"shares of rows, and streams, give the same bits", test_row_shares},
        {"fetching to L2 gives the same bits", test_fetching},
        {"what is not a number stays none", test_not_numbers},
        {"rows become floats exactly", test_rows_to_fp32},
    };
    return run_on_every_isa("quantised kernels", cases, sizeof cases / sizeof *cases);
}
