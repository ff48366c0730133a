// Attention of a few queries to an int8 cache by dot products of bytes against a naive double-precision softmax, to what
// rounding queries and weights to 16-bit integers may lose.
#include "attention_problem.h"
#include "cpu/kernels/rows.h"

static const double largest_integer = 127 * 256;
static const int head_dims[] = {64, 128, 192, 256};

enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims, MOST_QUERIES = 8 };

// Scores of query i to all keys; returns how far they may be off: by half a unit of each component, and float's own rounding.
static double scores_of(const struct problem *p, int i, double *scores)
{
    const int d = p->head_dim;
    const float *q = p->q + (ptrdiff_t)i * d;
    double largest = 0, error = 0;
    for (int c = 0; c < d; c++)
        largest = fmax(largest, fabs((double)q[c]));
    const double half_unit = largest / largest_integer / 2 * (1 + 1e-5);
    for (int j = 0; j < p->n_keys; j++) {
        double sum = 0, of_key = 0, magnitude = 0;
        for (int c = 0; c < d; c++) {
            const double k = value_of(p->type, p->k_exact, (size_t)j * d + c);
            sum += q[c] * k;
            of_key += fabs(k);
            magnitude += fabs(q[c] * k);
        }
        scores[j] = sum;
        error = fmax(error, half_unit * of_key + 2 * sum_error(d) * magnitude);
    }
    return error;
}

// Weights are off by their scores' errors, and, times their values' scales, by half a unit, which is at most that of all keys
// together.
static void check_outputs(const struct problem *p, int i, int first, int last, const double *weights, double sum,
                          double relative)
{
    const int d = p->head_dim;
    double largest = 0;
    for (int j = first; j < last; j++)
        largest = fmax(largest, weights[j] * fabs((double)p->v_scales[j]));
    const double half_unit = largest / largest_integer / 2 * (1 + 2 * relative + 1e-5);
    for (int c = 0; c < d; c++) {
        double y = 0, error = 0;
        for (int j = first; j < last; j++) {
            const size_t at = (size_t)j * d + c;
            const double v = value_of(p->type, p->v_exact, at);
            y += weights[j] * v;
            error += 2 * relative * weights[j] * fabs(v) + half_unit * abs(((const int8_t *)p->v)[at]);
        }
        assert_near(p->acc[i * d + c] / p->sum[i], y / sum, error / sum + 1e-30, "output", i, c);
    }
}

static void check_query(const struct problem *p, int i)
{
    const int first = p->first ? p->first[i] : 0, last = p->first ? p->last[i] : p->n_keys;
    if (first >= last) {
        assert_true(p->max[i] == -INFINITY && p->sum[i] == 0);
        for (int c = 0; c < p->head_dim; c++)
            assert_true(p->acc[i * p->head_dim + c] == 0);
        return;
    }
    double *weights = malloc(sizeof *weights * (size_t)p->n_keys), max = -INFINITY, sum = 0;
    assert_non_null(weights);
    const double error = scores_of(p, i, weights);
    for (int j = first; j < last; j++)
        max = fmax(max, weights[j]);
    for (int j = first; j < last; j++) {
        weights[j] = exp(weights[j] - max);
        sum += weights[j];
    }
    const double relative = expm1(2 * error) + 4e-6 + 2 * sum_error(last - first);
    assert_near(p->max[i], max, error, "max", i, 0);
    assert_near(p->sum[i] * exp(p->max[i] - max), sum, 2 * relative * sum, "sum", i, 0);
    check_outputs(p, i, first, last, weights, sum, relative);
    free(weights);
}

static struct problem byte_problem(struct fixture *f, int n_queries, int n_keys, int head_dim, double range)
{
    struct problem p = make_problem(f, KV_INT8, n_queries, n_keys, head_dim, range);
    p.few = byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_INT8, head_dim);
    if (!p.few)
        skip(); // no VNNI
    p.scratch = guarded_scratch(f, p.few->scratch);
    memset(p.scratch, 0x7f, p.few->scratch); // whatever was there
    return p;
}

static void check(struct fixture *f, const struct problem *p)
{
    attend(f, p, 0, p->n_keys);
    for (int i = 0; i < p->n_queries; i++)
        check_query(p, i);
    release(f);
}

static void test_shapes(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n_queries = 1; n_queries <= MOST_QUERIES; n_queries++)
        for (int d = 0; d < N_HEAD_DIMS; d++)
            for (int mask = 0; mask < 2; mask++) {
                struct problem p =
                    byte_problem(f, n_queries, 1 + (n_queries * 37 + d * 53 + mask * 31) % 150, head_dims[d], 1.0);
                if (mask)
                    random_masks(f, &p);
                check(f, &p);
            }
}

// More keys than any block has, and every remainder of the last block's keys that the kernels tell apart.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int n_keys[] = {127, 128, 129, 145, 255, 256, 385, 530};
    for (int i = 0; i < 8; i++) {
        struct problem p = byte_problem(f, 1 + i, n_keys[i], head_dims[i % N_HEAD_DIMS], 1.0);
        check(f, &p);
        p = byte_problem(f, 8 - i, n_keys[i], head_dims[i % N_HEAD_DIMS], 1.0);
        random_masks(f, &p);
        check(f, &p);
    }
    for (int n = 1; n <= 70; n++) {
        const struct problem p = byte_problem(f, 1 + n % 8, n, 64, 1.0);
        check(f, &p);
    }
}

static void test_pieces(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 20; round++) {
        struct problem p = byte_problem(f, 1 + below(f, 8), 2 + below(f, 500), head_dims[below(f, N_HEAD_DIMS)], 1.0);
        random_masks(f, &p);
        attend_pieces(f, &p, 200);
        for (int i = 0; i < p.n_queries; i++)
            check_query(&p, i);
        release(f);
    }
}

// All bytes, queries and weights at their largest, of either sign: no sum may leave 32 bits.
static void test_largest(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int sign = 0; sign < 8; sign++) {
        struct problem p = byte_problem(f, 1 + sign, 256, 256, 1.0);
        memset(p.k, sign & 1 ? -128 : 127, (size_t)p.n_keys * p.head_dim);
        memset(p.v, sign & 2 ? -128 : 127, (size_t)p.n_keys * p.head_dim);
        for (int j = 0; j < p.n_keys; j++) {
            p.k_scales[j] = p.v_scales[j] = 0x1p-7f;
            for (int c = 0; c < p.head_dim; c++) {
                ((float *)p.k_exact)[j * p.head_dim + c] = sign & 1 ? -1 : 0x7fp-7f;
                ((float *)p.v_exact)[j * p.head_dim + c] = sign & 2 ? -1 : 0x7fp-7f;
            }
        }
        for (int i = 0; i < p.n_queries * p.head_dim; i++)
            p.q[i] = sign & 4 ? -1 : 1;
        check(f, &p);
    }
}

// Scores of ±1e3, whose maximum changes from block to block, so that e^x would overflow; a value a thousand times the others'
// size.
static void test_outliers(void **state)
{
    struct fixture *f = fixture_of(state);
    struct problem p = byte_problem(f, 5, 600, 64, 0);
    for (int j = 0; j < p.n_keys; j++) {
        p.k_scales[j] = (float)(j + 1) / 600 / 127;
        for (int c = 0; c < p.head_dim; c++)
            ((float *)p.k_exact)[j * p.head_dim + c] = p.k_scales[j] * ((int8_t *)p.k)[j * p.head_dim + c];
    }
    for (int i = 0; i < p.n_queries; i++)
        p.q[i * p.head_dim] = i % 2 ? -1e3f : 1e3f;
    check(f, &p);
    p = byte_problem(f, 8, 300, 128, 0.1);
    for (int c = 0; c < p.head_dim; c++)
        ((float *)p.v_exact)[200 * p.head_dim + c] *= 1000;
    p.v_scales[200] *= 1000;
    check(f, &p);
}

// A number that is none shows where it matters, and nowhere else.
static void test_not_finite(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { N = 4, KEYS = 200, D = 64 };
    for (int bad = 0; bad < 2; bad++) {
        const float value = bad ? INFINITY : NAN;
        struct problem p = byte_problem(f, N, KEYS, D, 1.0);
        p.q[2 * D + 3] = value;
        attend(f, &p, 0, KEYS);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < D; c++)
                assert_true(i == 2 ? !isfinite(p.acc[i * D + c] / p.sum[i]) : isfinite(p.acc[i * D + c] / p.sum[i]));
        release(f);
        p = byte_problem(f, N, KEYS, D, 1.0);
        p.v_scales[150] = value;
        attend(f, &p, 0, KEYS);
        for (int i = 0; i < N; i++)
            assert_true(isfinite(p.sum[i]) && !isfinite(p.acc[i * D + 5]));
        release(f);
        p = byte_problem(f, N, KEYS, D, 1.0);
        p.k_scales[150] = value;
        attend(f, &p, 0, KEYS);
        for (int i = 0; i < N; i++)
            assert_true(bad || isnan(p.sum[i]));
        release(f);
    }
}

// Given rows are what the same rows are one after another; those with a bias far below 0 are as if they were not seen.
static void test_rows(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 60; round++) {
        const int d = head_dims[round % N_HEAD_DIMS], n = 1 + below(f, 300);
        struct problem p = byte_problem(f, 1 + round % 8, n, d, 1.0);
        const int slots = n + below(f, 400);
        int8_t *k = guarded(f, (size_t)slots * d), *v = guarded(f, (size_t)slots * d);
        float *k_scales = guarded(f, sizeof(float) * (size_t)slots), *v_scales = guarded(f, sizeof(float) * (size_t)slots);
        int *rows = guarded(f, sizeof *rows * (size_t)n);
        for (int j = 0; j < n; j++) {
            rows[j] = j == n - 1 ? slots - 1 : (int)((long)j * slots / n);
            memcpy(k + (ptrdiff_t)rows[j] * d, (int8_t *)p.k + (ptrdiff_t)j * d, (size_t)d);
            memcpy(v + (ptrdiff_t)rows[j] * d, (int8_t *)p.v + (ptrdiff_t)j * d, (size_t)d);
            k_scales[rows[j]] = p.k_scales[j];
            v_scales[rows[j]] = p.v_scales[j];
        }
        float *bias = round % 4 == 3 ? guarded(f, sizeof *bias * (size_t)n) : NULL;
        const int seen = bias ? 1 + below(f, n) : n;
        for (int j = 0; j < n && bias; j++)
            bias[j] = j < seen ? 0 : -1e4f;
        p.first = bias ? guarded(f, sizeof *p.first * (size_t)p.n_queries) : p.first;
        p.last = bias ? guarded(f, sizeof *p.last * (size_t)p.n_queries) : p.last;
        for (int i = 0; i < p.n_queries && bias; i++) {
            p.first[i] = 0;
            p.last[i] = seen;
        }
        attend_rows(f->kernels, p.few->attend[KV_INT8], KV_INT8,
                    &(struct attend_args){
                        .acc = p.acc,
                        .max = p.max,
                        .sum = p.sum,
                        .q = p.q,
                        .k = k,
                        .v = v,
                        .k_scales = k_scales,
                        .v_scales = v_scales,
                        .n_queries = p.n_queries,
                        .n_keys = n,
                        .head_dim = d,
                        .fetching = {.streams = 2 + round / 8 % 2 * 2, .to_l2 = round % 2},
                        .next_k = k,
                        .next_v = v,
                        .next_rows = round % 3 ? rows : NULL, // they are only fetched
                        .n_next = round % 3 ? n : 0,
                        .bias = bias,
                        .scratch = p.scratch,
                    },
                    (struct given_rows){rows, round % 5 == 0}, guarded_scratch(f, attend_rows_tile((size_t)d)));
        for (int i = 0; i < p.n_queries; i++)
            check_query(&p, i);
        release(f);
    }
}

// What is lost of usual numbers, beside float32 arithmetic with the same cache.
static void test_usual_loss(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { N = 8, KEYS = 1000, D = 128 };
    struct problem p = byte_problem(f, N, KEYS, D, 0.3);
    for (int j = 0; j < KEYS; j++)
        p.v_scales[j] = (float)(1 + uniform(f) / 2) / 127;
    attend(f, &p, 0, KEYS);
    double found[N * D], lost = 0, size = 0;
    for (int i = 0; i < N * D; i++)
        found[i] = p.acc[i] / p.sum[i / D];
    start_again(&p);
    p.few = NULL;
    p.scratch = guarded_scratch(f, f->kernels->attend_scratch);
    attend(f, &p, 0, KEYS);
    for (int i = 0; i < N * D; i++) {
        const double y = p.acc[i] / p.sum[i / D];
        lost += (found[i] - y) * (found[i] - y);
        size += y * y;
    }
    print_message("lost: %.2g of the outputs' root mean square\n", sqrt(lost / size));
    assert_true(lost > 0 && sqrt(lost / size) < 2e-4);
    release(f);
}

static void test_repeatable(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct problem p = byte_problem(f, 7, 400, 64, 1.0);
    float before[7 * 64];
    attend(f, &p, 0, 400);
    memcpy(before, p.acc, sizeof before);
    start_again(&p);
    memset(p.scratch, 0xff, p.few->scratch);
    attend(f, &p, 0, 400);
    assert_memory_equal(before, p.acc, sizeof before);
    release(f);
}

// Only where there is VNNI and integers are wanted, of an int8 cache, and of heads that are whole vectors.
static void test_selection(void **state)
{
    struct fixture *f = fixture_of(state);
    const bool vnni = !strcmp(f->kernels->name, "avx512vnni") || !strcmp(f->kernels->name, "amx");
    assert_true(!!byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_INT8, 64) == vnni);
    assert_null(byte_attention_select(f->kernels, YALM_ACTIVATIONS_FP32, KV_INT8, 64));
    assert_null(byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_FP16, 64));
    assert_null(byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_FP32, 64));
    assert_null(byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_INT8, 80));
    assert_null(byte_attention_select(f->kernels, YALM_ACTIVATIONS_INT16, KV_INT8, 320));
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"shapes", test_shapes},
        {"sizes past the blocks", test_blocks},
        {"pieces add up to the whole", test_pieces},
        {"the largest sums", test_largest},
        {"outliers", test_outliers},
        {"not finite", test_not_finite},
        {"given rows", test_rows},
        {"what is usually lost", test_usual_loss},
        {"same bits each time", test_repeatable},
        {"where it is taken", test_selection},
    };
    return run_on_every_isa("attention by bytes", cases, sizeof cases / sizeof *cases);
}
