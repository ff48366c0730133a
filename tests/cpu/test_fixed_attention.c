// Attention of many queries in 16-bit integers against a naive double-precision softmax, to what rounding to such integers may
// lose.
#include "attention_problem.h"

enum { BLOCK = 128, GROUP = 32, PAIRS = GROUP / 2, TURN_PAIRS = 4, TURNS_IN_BLOCK = BLOCK / (2 * TURN_PAIRS) };
static const double largest_sum = (1 << 17) - GROUP, largest_value = 32767;

static const int head_dims[] = {2, 8, 20, 33, 48, 64, 80, 96, 128, 200, 256};
static const enum kv_type types[] = {KV_FP16, KV_INT8};

enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

// Half a unit of what has its largest magnitude's power of two / 2^13 for one.
static double half_of_power(double largest)
{
    int exponent;
    frexp(largest, &exponent);
    return largest > 0 ? ldexp(1, exponent - 1 - 13 - 1) : 0;
}

// Half a unit of a query's block of n components.
static double half_of_query(const float *q, int n)
{
    double turns[TURNS_IN_BLOCK] = {0}, largest = 0, sum = 0;
    for (int c = 0; c < n; c++) {
        turns[c / GROUP * (PAIRS / TURN_PAIRS) + c % PAIRS / TURN_PAIRS] += fabs((double)q[c]);
        largest = fmax(largest, fabs((double)q[c]));
    }
    for (int i = 0; i + 4 <= TURNS_IN_BLOCK; i++)
        sum = fmax(sum, turns[i] + turns[i + 1] + turns[i + 2] + turns[i + 3]);
    return fmax(largest / largest_value, sum / largest_sum) / 2 * (1 + 1e-5);
}

struct score {
    double value, error;
};

static struct score score_of(const struct problem *p, int i, int j)
{
    const int d = p->head_dim;
    struct score score = {0, 0};
    double magnitude = 0;
    for (int c0 = 0; c0 < d; c0 += BLOCK) {
        const int n = d - c0 < BLOCK ? d - c0 : BLOCK;
        const float *q = p->q + (ptrdiff_t)i * d + c0;
        double largest = 0;
        for (int c = 0; c < n; c++)
            largest = fmax(largest, fabs(value_of(p->type, p->k_exact, (size_t)j * d + c0 + c)));
        const double of_query = half_of_query(q, n), of_key = p->kv == KV_INT8 ? 0 : half_of_power(largest);
        for (int c = 0; c < n; c++) {
            const double k = value_of(p->type, p->k_exact, (size_t)j * d + c0 + c);
            score.value += q[c] * k;
            score.error += of_query * (fabs(k) + of_key) + fabs((double)q[c]) * of_key;
            magnitude += fabs(q[c] * k);
        }
    }
    score.error += 2 * sum_error(d) * magnitude;
    return score;
}

// Weights are off by their scores' errors and by half a unit, which is at most that of weights that are all 1; values by half a
// unit of their component's largest.
static void check_outputs(const struct problem *p, int i, int first, int last, const double *weights, double sum,
                          double relative)
{
    const int d = p->head_dim;
    const double of_weight = fmax(1 / largest_value, fmin(GROUP, sum) / largest_sum) / 2 * (1 + 1e-5);
    for (int c = 0; c < d; c++) {
        double y = 0, error = 0, largest = 0;
        for (int j = 0; j < p->n_keys; j++)
            largest = fmax(largest, fabs(value_of(p->type, p->v_exact, (size_t)j * d + c)));
        const double of_value = half_of_power(largest);
        for (int j = first; j < last; j++) {
            const double v = value_of(p->type, p->v_exact, (size_t)j * d + c);
            y += weights[j] * v;
            error += 2 * relative * weights[j] * fabs(v) + (weights[j] + of_weight) * of_value + of_weight * fabs(v);
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
    if (!NUMBERS_COUNT)
        return;
    double *weights = malloc(sizeof *weights * (size_t)p->n_keys), max = -INFINITY, error = 0, sum = 0;
    assert_non_null(weights);
    for (int j = first; j < last; j++) {
        const struct score score = score_of(p, i, j);
        weights[j] = score.value;
        max = fmax(max, score.value);
        error = fmax(error, score.error);
    }
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

static struct problem fixed_problem(struct fixture *f, enum kv_type kv, int n_queries, int n_keys, int head_dim, double range)
{
    struct problem p = make_problem(f, kv, n_queries, n_keys, head_dim, range);
    p.fixed = fixed_attention_select(f->kernels, YALM_ACTIVATIONS_INT16);
    if (!p.fixed)
        skip(); // no VNNI
    p.scratch = guarded_scratch(f, p.fixed->scratch);
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
    static const int n_queries[] = {9, 16, 17, 33, 48, 63, 64, 65};
    for (int i = 0; i < 8; i++)
        for (int d = 0; d < N_HEAD_DIMS; d++) {
            struct problem p =
                fixed_problem(f, types[(i + d) % 2], n_queries[i], 1 + (i * 71 + d * 29) % 150, head_dims[d], 1.0);
            if (d % 3 == 0)
                random_masks(f, &p);
            check(f, &p);
        }
    for (int i = 0; i < 2; i++) { // as little as there can be
        const struct problem p = fixed_problem(f, types[i], 16, 1, 2, 1.0);
        check(f, &p);
    }
}

// More queries and keys than any block has.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[][3] = {{192, 130, 24}, {200, 300, 20}, {17, 650, 128},
                                   {385, 129, 8},  {20, 256, 256}, {100, 31, 64}};
    for (int i = 0; i < 2 * (int)(sizeof sizes / sizeof *sizes); i++) {
        const int *size = sizes[i / 2];
        struct problem p = fixed_problem(f, types[i % 2], size[0], size[1], size[2], 1.0);
        check(f, &p);
        p = fixed_problem(f, types[i % 2], size[0], size[1], size[2], 1.0);
        random_masks(f, &p);
        check(f, &p);
    }
}

// Causal, as prefill calls it: query i sees keys up to its own, and, with a window, none before the window's.
static void test_causal(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int window = 0; window < 2; window++) {
        struct problem p = fixed_problem(f, KV_FP16, 100, 360, 64, 1.0);
        p.first = guarded(f, sizeof(int) * 100);
        p.last = guarded(f, sizeof(int) * 100);
        for (int i = 0; i < p.n_queries; i++) {
            p.first[i] = window ? i + 150 : 0;
            p.last[i] = 260 + i + 1;
        }
        check(f, &p);
    }
}

static void test_nothing_seen(void **state)
{
    struct fixture *f = fixture_of(state);
    struct problem p = fixed_problem(f, KV_FP16, 50, 100, 64, 1.0);
    p.first = guarded(f, sizeof(int) * 50);
    p.last = guarded(f, sizeof(int) * 50);
    for (int i = 0; i < 50; i++) {
        p.first[i] = i % 3 * 50;
        p.last[i] = i % 7 ? p.first[i] : 100;
    }
    check(f, &p);
}

static void test_pieces(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 10; round++) {
        struct problem p =
            fixed_problem(f, types[round % 2], 9 + below(f, 60), 2 + below(f, 500), head_dims[below(f, N_HEAD_DIMS)], 1.0);
        random_masks(f, &p);
        attend_pieces(f, &p, 200);
        for (int i = 0; i < p.n_queries; i++)
            check_query(&p, i);
        release(f);
    }
}

// Everything alike, and as large as its unit allows: no sum of integers may leave 32 bits, in scores or outputs.
static void test_largest(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int sign = 0; sign < 4; sign++) {
        struct problem p = fixed_problem(f, KV_FP16, 49, 300, 128, 1.0);
        for (int i = 0; i < p.n_queries * p.head_dim; i++)
            p.q[i] = 1;
        for (int i = 0; i < p.n_keys * p.head_dim; i++) {
            ((uint16_t *)p.k)[i] = (uint16_t)(0x3fff | (sign & 1 ? 0x8000 : 0)); // 1.999
            ((uint16_t *)p.v)[i] = (uint16_t)(0x3fff | (sign & 2 ? 0x8000 : 0));
        }
        check(f, &p);
    }
}

// Scores of ±1e3, whose maximum changes from block to block, so that e^x would overflow; keys and values a thousand times the
// others' size.
static void test_outliers(void **state)
{
    struct fixture *f = fixture_of(state);
    struct problem p = fixed_problem(f, KV_FP16, 33, 600, 64, 0);
    for (int j = 0; j < p.n_keys; j++)
        ((uint16_t *)p.k)[j * p.head_dim] = (uint16_t)(j < 300 ? 0xbc00 + j : 0x3800 + j);
    for (int i = 0; i < p.n_queries; i++)
        p.q[i * p.head_dim] = i % 2 ? -1e3f : 1e3f;
    check(f, &p);
    p = fixed_problem(f, KV_FP16, 40, 500, 128, 0.002);
    for (int j = 0; j < p.n_keys; j++) {
        ((uint16_t *)p.k)[j * p.head_dim + j % 3] = 0x63d0; // 1,000
        ((uint16_t *)p.v)[j * p.head_dim + j % 128] = (uint16_t)(0x63d0 | (j % 2 ? 0x8000 : 0));
    }
    check(f, &p);
}

static bool all_finite(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

// A number that is none shows where it matters, and nowhere else.
static void test_not_finite(void **state)
{
    struct fixture *f = fixture_of(state);
    static const uint16_t bad[] = {0x7e00, 0xfe00, 0x7c00, 0xfc00};
    enum { N = 40, KEYS = 200, D = 64 };
    for (int b = 0; b < 4; b++) {
        struct problem p = fixed_problem(f, KV_FP16, N, KEYS, D, 1.0);
        ((uint16_t *)p.v)[150 * D + 5] = bad[b];
        p.q[7 * D + 3] = b % 2 ? NAN : INFINITY;
        attend(f, &p, 0, KEYS);
        for (int i = 0; i < N; i++) {
            if (i == 7) {
                assert_true(isnan(p.sum[i]));
                continue;
            }
            assert_true(isfinite(p.sum[i]) && !isfinite(p.acc[i * D + 5]));
            assert_true(all_finite(p.acc + i * D, 5) && all_finite(p.acc + i * D + 6, D - 6));
        }
        release(f);
        p = fixed_problem(f, KV_FP16, N, KEYS, D, 1.0);
        ((uint16_t *)p.k)[150 * D + 5] = bad[b];
        attend(f, &p, 0, KEYS);
        for (int i = 0; i < N; i++)
            assert_true(b >= 2 || isnan(p.sum[i]));
        release(f);
    }
}

// Twelve uniform numbers' sum is nearly normal.
static double normal(struct fixture *f)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += uniform(f) / 2;
    return sum;
}

// What is lost of usual numbers: scores with a standard deviation of 2 over 1,000 keys.
static void test_usual_loss(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { N = 48, KEYS = 1000, D = 128 };
    struct problem p = fixed_problem(f, KV_FP16, N, KEYS, D, 1.0);
    struct problem exact = p;
    for (int i = 0; i < N * D; i++)
        p.q[i] = (float)(2 / sqrt(D) * normal(f));
    float row[D];
    for (int j = 0; j < 2 * KEYS; j++) {
        for (int c = 0; c < D; c++)
            row[c] = (float)normal(f);
        f->kernels->to_fp16((uint16_t *)(j < KEYS ? p.k : p.v) + j % KEYS * D, row, D);
    }
    attend(f, &p, 0, KEYS);
    const size_t bytes = sizeof(float) * N * D;
    float *found = malloc(bytes);
    assert_non_null(found);
    double lost = 0, size = 0;
    for (int i = 0; i < N * D; i++)
        found[i] = p.acc[i] / p.sum[i / D];
    exact.fixed = NULL;
    exact.scratch = guarded_scratch(f, f->kernels->attend_scratch);
    start_again(&p);
    attend(f, &exact, 0, KEYS);
    for (int i = 0; i < N * D; i++) {
        const double y = p.acc[i] / p.sum[i / D];
        lost += (found[i] - y) * (found[i] - y);
        size += y * y;
    }
    free(found);
    print_message("lost: %.2g of the outputs' root mean square\n", sqrt(lost / size));
    assert_true(lost > 0 && sqrt(lost / size) < 3e-4);
    release(f);
}

static void test_repeatable(void **state)
{
    struct fixture *f = fixture_of(state);
    struct problem p = fixed_problem(f, KV_FP16, 50, 400, 80, 1.0);
    const size_t bytes = sizeof(float) * 50 * 80;
    float *before = malloc(bytes);
    assert_non_null(before);
    attend(f, &p, 0, 400);
    memcpy(before, p.acc, bytes);
    start_again(&p);
    memset(p.scratch, 0xff, p.fixed->scratch); // whatever was there
    attend(f, &p, 0, 400);
    assert_memory_equal(before, p.acc, bytes);
    free(before);
    release(f);
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"shapes", test_shapes},
        {"sizes past the blocks", test_blocks},
        {"causal and sliding masks", test_causal},
        {"queries that see nothing stay as they were", test_nothing_seen},
        {"pieces add up to the whole", test_pieces},
        {"the largest sums", test_largest},
        {"outliers", test_outliers},
        {"not finite", test_not_finite},
        {"what is usually lost", test_usual_loss},
        {"same bits each time", test_repeatable},
    };
    return run_on_every_isa("attention in 16-bit integers", cases, sizeof cases / sizeof *cases);
}
