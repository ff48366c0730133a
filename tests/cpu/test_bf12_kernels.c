// Products with bf12 weights against a double-precision reference, and rows unpacked to the bit. The rows are packed here,
// after docs/format.md alone.
#include "kernels_testing.h"

static const int widths[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 144, 256, 300, 513, 4097};

enum { N_WIDTHS = sizeof widths / sizeof *widths, REACH = 15 };

struct problem {
    int rows, cols, n;
    ptrdiff_t ldx, ldy;
    uint16_t *numbers; // (rows, cols) bfloat16
    void *w;           // the same as bf12
    float *x;          // (n, ldx)
    float *y;          // (n, ldy)
};

static void put16(uint8_t *to, int value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

static void pack_number(uint8_t *block, int c, uint16_t number, int code)
{
    uint32_t words[48];
    memcpy(words, block, sizeof words);
    const uint32_t bits = (uint32_t)(number & 0x807f) << 16;
    const int turn = c % 64 / 16 * 8;
    words[c / 64 * 16 + c % 16] |= turn ? bits >> turn | bits << (32 - turn) : bits;
    words[32 + c % 16] |= (uint32_t)code << 4 * (c / 16);
    memcpy(block, words, sizeof words);
}

// Its codes count down from `largest`; returns how many of the numbers are exceptions.
static int pack_row(uint8_t *row, const uint16_t *numbers, int cols, int largest)
{
    const int header = (cols + 4095) / 4096 * 64;
    int n = 0;
    memset(row, 0, bf12_row_bytes(cols));
    for (int c = 0; c < (cols + 127) / 128 * 128; c++) {
        const int exponent = c < cols ? numbers[c] >> 7 & 255 : 0, code = exponent ? largest - exponent : REACH;
        const bool fits = code >= 0 && (code < REACH || !exponent);
        pack_number(row + header + c / 128 * 192, c % 128, fits && c < cols ? numbers[c] : 0, fits ? code : REACH);
        if (fits)
            continue;
        n++;
        assert_true(4 + 4 * n <= header);
        put16(row + 4 * n, c);
        put16(row + 4 * n + 2, numbers[c]);
    }
    row[0] = (uint8_t)largest;
    put16(row + 2, n);
    return n;
}

// Numbers that rows of weights have, and others: zeros of both signs, what is far below the rest and far above it.
static struct problem make_problem(struct fixture *f, int rows, int cols, int n, int margin)
{
    struct problem p = {.rows = rows, .cols = cols, .n = n, .ldx = cols + margin, .ldy = rows + margin};
    const size_t row_bytes = bf12_row_bytes(cols);
    p.numbers = guarded(f, sizeof *p.numbers * (size_t)rows * cols);
    p.w = guarded(f, row_bytes * (size_t)rows);
    for (int r = 0; r < rows; r++) {
        uint16_t *row = p.numbers + (size_t)r * cols;
        const int largest = r % 5 == 4 ? 9 : 110 + below(f, 30);
        for (int c = 0; c < cols; c++) {
            const int lower = below(f, 100) < 80 ? below(f, 4) : below(f, REACH + 1);
            const int exponent =
                lower < REACH && lower < largest ? largest - lower : 0; // 0: zeros, and the least numbers of all
            row[c] = (uint16_t)(below(f, 2) << 15 | exponent << 7 | (exponent || c % 2 ? below(f, 128) : 0));
        }
        for (int i = 0; i < r % 4 && cols > 20; i++)
            row[below(f, cols)] = (uint16_t)((i % 2 ? largest + 3 : largest > 40 ? largest - 17 : 30) << 7 | below(f, 128));
        pack_row((uint8_t *)p.w + (size_t)r * row_bytes, row, cols, largest);
    }
    p.x = random_floats(f, (size_t)(n - 1) * p.ldx + cols, 1.0);
    p.y = guarded(f, sizeof *p.y * ((size_t)(n - 1) * p.ldy + rows));
    return p;
}

static void check_row(const struct problem *p, int r)
{
    if (!NUMBERS_COUNT)
        return;
    for (int t = 0; t < p->n; t++) {
        double sum = 0, magnitude = 0;
        for (int c = 0; c < p->cols; c++) {
            const double product = bf16_value(p->numbers[(size_t)r * p->cols + c]) * (double)p->x[t * p->ldx + c];
            sum += product;
            magnitude += fabs(product);
        }
        assert_near(p->y[t * p->ldy + r], sum, sum_error(p->cols) * magnitude + 1e-44, "product", t, r);
    }
}

static void matvec(const struct fixture *f, const struct problem *p, int first, int last, bool to_l2)
{
    f->kernels->matvec[DTYPE_BF12](p->y + first, p->ldy, p->w, first, last, p->cols, p->x, p->ldx, p->n, to_l2);
}

static void test_matvec(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 1; n <= f->kernels->matvec_max; n++)
        for (int i = 0; i < N_WIDTHS; i++)
            for (int rows = 1; rows <= 13; rows += rows < 5 ? 1 : 4) {
                const struct problem p = make_problem(f, rows, widths[i], n, i % 2 * 3);
                matvec(f, &p, 0, rows, false);
                for (int r = 0; r < rows; r++)
                    check_row(&p, r);
                for (int t = 0; t + 1 < n; t++)
                    for (ptrdiff_t j = rows; j < p.ldy; j++)
                        assert_true(isnan(p.y[t * p.ldy + j])); // the poison
                release(f);
            }
}

static void test_unpack(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_WIDTHS; i++)
        for (int first = 0; first < 6; first += 2) {
            const struct problem p = make_problem(f, 11, widths[i], 1, 0);
            const int last = first + 1 + i % 5;
            const size_t numbers = (size_t)(last - first) * p.cols;
            uint16_t *to = guarded(f, numbers * sizeof *to);
            f->kernels->unpack_bf12(to, p.w, first, last, p.cols);
            assert_memory_equal(to, p.numbers + (size_t)first * p.cols, numbers * sizeof *to);
            release(f);
        }
}

// Every exponent, infinities and NaNs among them, sign and fraction.
static void test_every_number(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { COLS = 2 * 128 * REACH };
    for (int largest = 0; largest < 256; largest++) {
        uint16_t *numbers = guarded(f, COLS * sizeof *numbers), *to = guarded(f, COLS * sizeof *to);
        uint8_t *row = guarded(f, bf12_row_bytes(COLS));
        for (int c = 0; c < COLS; c++) {
            const int exponent = largest - c % REACH;
            numbers[c] = (uint16_t)((exponent > 0 ? exponent : 0) << 7 | c / REACH % 128 | (c < COLS / 2 ? 0 : 0x8000));
        }
        assert_int_equal(pack_row(row, numbers, COLS, largest), 0);
        f->kernels->unpack_bf12(to, row, 0, 1, COLS);
        assert_memory_equal(to, numbers, COLS * sizeof *to);
        release(f);
    }
}

static void test_row_shares(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 1; n <= f->kernels->matvec_max; n++) {
        const struct problem p = make_problem(f, 83, 333, n, 0);
        const size_t bytes = sizeof(float) * (size_t)n * p.rows;
        float *whole = malloc(bytes);
        matvec(f, &p, 0, p.rows, false);
        memcpy(whole, p.y, bytes);
        memset(p.y, 0xff, bytes);
        for (int first = 0, last; first < p.rows; first = last) {
            last = first + 1 + below(f, 30);
            last = last < p.rows ? last : p.rows;
            matvec(f, &p, first, last, true);
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
    for (int n = 1; n <= f->kernels->matvec_max; n++) {
        const struct problem p = make_problem(f, 5, L1_KEEPS / (int)sizeof(float) + 57, n, 0);
        const size_t bytes = sizeof(float) * (size_t)n * p.rows;
        float *near = malloc(bytes);
        matvec(f, &p, 0, p.rows, false);
        memcpy(near, p.y, bytes);
        memset(p.y, 0xff, bytes);
        matvec(f, &p, 0, p.rows, true);
        assert_memory_equal(p.y, near, bytes);
        free(near);
        release(f);
    }
}

// A product is the same to the bit whichever tokens come along.
static void test_token_alone(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 2; n <= f->kernels->matvec_max; n++) {
        struct problem p = make_problem(f, 21, 205, n, 0);
        float alone[21];
        matvec(f, &p, 0, p.rows, false);
        struct problem last = p;
        last.n = 1;
        last.x = p.x + (n - 1) * p.ldx;
        last.y = alone;
        matvec(f, &last, 0, p.rows, false);
        assert_memory_equal(alone, p.y + (n - 1) * p.ldy, sizeof alone);
        release(f);
    }
}

// Of a damaged file: more exceptions than a header has room for, of columns that are not there, and codes below an exponent of
// zero.
static void test_damaged(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_WIDTHS; i++) {
        const struct problem p = make_problem(f, 3, widths[i], 2, 0);
        const size_t row_bytes = bf12_row_bytes(p.cols);
        float before[2] = {0};
        matvec(f, &p, 0, 3, false);
        before[0] = p.y[0];
        before[1] = p.y[p.ldy];
        uint8_t *middle = (uint8_t *)p.w + row_bytes;
        memset(middle, 0xff, row_bytes); // the header's exceptions are of column 65535 then
        middle[0] = 3;
        matvec(f, &p, 0, 3, false);
        assert_true(p.y[0] == before[0] && p.y[p.ldy] == before[1]);
        check_row(&p, 2);
        uint16_t *to = guarded(f, 3 * (size_t)p.cols * sizeof *to);
        f->kernels->unpack_bf12(to, p.w, 0, 3, p.cols);
        assert_memory_equal(to, p.numbers, (size_t)p.cols * sizeof *to);
        assert_memory_equal(to + 2 * (size_t)p.cols, p.numbers + 2 * (size_t)p.cols, (size_t)p.cols * sizeof *to);
        release(f);
    }
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"matvec equals the reference", test_matvec},
        {"unpacked rows are the numbers to the bit", test_unpack},
        {"every exponent, sign and fraction", test_every_number},
        {"shares of rows give the same bits", test_row_shares},
        {"fetching to L2 gives the same bits", test_fetching},
        {"other tokens do not change a product", test_token_alone},
        {"damaged rows harm no others", test_damaged},
    };
    return run_on_every_isa("bf12 kernels", cases, sizeof cases / sizeof *cases);
}
