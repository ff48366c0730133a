// Selection against a reference that sorts, and the kernels of sparse.h against their formulas in double precision.
#include "cpu/kernels/rows.h"
#include "cpu/long/select.h"
#include "kernels_testing.h"

struct item {
    float value;
    int index;
};

// The larger value first, the lower index first where they are equal, NaN last.
static int before(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (isnan(x->value) != isnan(y->value))
        return isnan(x->value) ? 1 : -1;
    if (!isnan(x->value) && x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

// The k best of x[first … last), ascending, by sorting; to be freed.
static int *sorted_selection(const float *x, int first, int last, int k)
{
    const int n = last - first;
    struct item *items = malloc(sizeof *items * (size_t)(n ? n : 1));
    int *indices = malloc(sizeof *indices * (size_t)(k ? k : 1));
    for (int i = 0; i < n; i++)
        items[i] = (struct item){x[first + i], first + i};
    qsort(items, (size_t)n, sizeof *items, before);
    for (int i = 0; i < k; i++)
        indices[i] = items[i].index;
    qsort(indices, (size_t)k, sizeof *indices, ascending);
    free(items);
    return indices;
}

static void check_top(struct fixture *f, const float *x, int first, int last, int k)
{
    int *found = guarded(f, sizeof *found * (size_t)(last - first + 16));
    float *values = guarded(f, sizeof *values * (size_t)(last - first + 16));
    const int expected_n = k < last - first ? k : last - first;
    const int n = select_top(f->kernels->sparse, found, values, x, first, last, k);
    assert_int_equal(n, expected_n);
    int *expected = sorted_selection(x, first, last, expected_n);
    for (int i = 0; i < n; i++) {
        if (found[i] != expected[i])
            fail_msg("n %d, k %d: the selection's item %d is %d, expected %d", last - first, k, i, found[i], expected[i]);
        assert_memory_equal(&values[i], &x[found[i]], sizeof *values);
    }
    free(expected);
}

enum { KINDS = 10 };

static float *problem(struct fixture *f, int kind, int n)
{
    float *x = random_floats(f, (size_t)n, kind == 1 ? 1e-3 : 30);
    for (int i = 0; i < n; i++)
        switch (kind) {
        case 2: // many ties
            x[i] = (float)below(f, 5);
            break;
        case 3: // all equal
            x[i] = -2.5f;
            break;
        case 4:
            x[i] = below(f, 3) ? -INFINITY : x[i];
            break;
        case 5: // nothing else
            x[i] = -INFINITY;
            break;
        case 6: // zeros of both signs, which are equal
            x[i] = below(f, 2) ? 0.0f : -0.0f;
            break;
        case 7:
            x[i] = below(f, 4) ? NAN : x[i];
            break;
        case 8: // one that is larger than all others, and infinity
            x[i] = i == n / 2 ? 1e30f : i == n / 3 ? INFINITY : x[i];
            break;
        case 9: // all magnitudes alike
            x[i] = copysignf(exp2f(4 * x[i]), below(f, 3) ? 1.0f : -1.0f);
            break;
        default:
            break;
        }
    return x;
}

static void test_selection_is_that_of_a_sort(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[] = {1, 2, 15, 16, 17, 100, 255, 1000, 2047, 2048, 5003};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int n = sizes[i], ks[] = {0, 1, n / 16 + 1, n / 3, n - 1, n, n + 5};
            for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
                const float *x = problem(f, kind, n);
                check_top(f, x, 0, n, ks[j]);
                check_top(f, x, n / 5, n - n / 7, ks[j] < n ? ks[j] : n);
                release(f);
            }
        }
}

// A periodic row, of which a sample that keeps the beat would see one value alone.
static void test_periodic_rows(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int period = 2; period <= 64; period++) {
        float *x = random_floats(f, 9000, 1);
        for (int i = 0; i < 9000; i++)
            x[i] = (float)(i % period) + x[i] / 4;
        check_top(f, x, 0, 9000, 9000 / 16);
        release(f);
    }
}

// Rows in two calls each, the first perhaps of nothing: their maxima and sums, alone and with the exponentials kept, and the
// weights made of these.
static void test_softmax(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct sparse_kernels *kernels = f->kernels->sparse;
    for (int round = 0; round < 300; round++) {
        const int n = 1 + below(f, 300), rows = 1 + below(f, 8), cut = below(f, n + 1);
        const float *x = random_floats(f, (size_t)n * rows, round % 4 ? 10 : 80);
        float *kept = guarded(f, sizeof *kept * (size_t)n * rows), *w = guarded(f, sizeof *w * (size_t)n);
        float base[8][2], factor[8][2];
        memcpy(kept, x, sizeof *kept * (size_t)n * rows);
        for (int r = 0; r < rows; r++) {
            float sum = 0, max = -INFINITY, kept_sum = 0, *row = kept + (size_t)r * n;
            kernels->softmax_stats(x + (size_t)r * n, cut, &max, &sum);
            kernels->softmax_stats(x + (size_t)r * n + cut, n - cut, &max, &sum);
            base[r][0] = base[r][1] = -INFINITY;
            kernels->softmax_keep(row, cut, &base[r][0], &kept_sum);
            base[r][1] = base[r][0];
            kernels->softmax_keep(row + cut, n - cut, &base[r][1], &kept_sum);
            double most = -INFINITY, total = 0;
            for (int j = 0; j < n; j++)
                most = fmax(most, x[r * n + j]);
            for (int j = 0; j < n; j++)
                total += exp(x[r * n + j] - most);
            assert_near(max, most, 0, "max", r, 0);
            assert_near(base[r][1], most, 0, "max of what is kept", r, 0);
            assert_near(sum, total, total * (4e-6 + sum_error(n)), "sum", r, 0);
            assert_near(kept_sum, total, total * (4e-6 + sum_error(n)), "sum of what is kept", r, 0);
            for (int j = 0; j < n; j++) {
                const double expected = exp((double)x[r * n + j] - (double)base[r][j >= cut]);
                assert_near(row[j], expected, expected * 4e-6 + 2e-28, "exponential", r, j);
            }
            factor[r][0] = cut > 0 ? expf(base[r][0] - max) / sum : 0;
            factor[r][1] = 1 / sum;
        }
        float by[8];
        for (int second = 0; second < 2; second++) {
            const int from = second ? cut : 0;
            for (int r = 0; r < rows; r++)
                by[r] = factor[r][second];
            kernels->weighted_sum(w + from, kept + from, n, rows, second ? n - cut : cut, by);
        }
        for (int j = 0; j < n; j++) {
            double expected = 0;
            for (int r = 0; r < rows; r++)
                expected += (double)factor[r][1] * exp((double)x[r * n + j] - (double)base[r][1]);
            assert_near(w[j], expected, expected * 8e-6 + 2e-27, "weight", j, rows);
        }
        release(f);
    }
}

static void test_softmax_of_nothing(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 0; n < 40; n++) {
        float *x = guarded(f, sizeof *x * (size_t)(n ? n : 1)), max = -INFINITY, sum = 0;
        for (int j = 0; j < n; j++)
            x[j] = -INFINITY;
        f->kernels->sparse->softmax_stats(x, n, &max, &sum);
        assert_true(max == -INFINITY && sum == 0);
        f->kernels->sparse->softmax_keep(x, n, &max, &sum);
        assert_true(max == -INFINITY && sum == 0);
        for (int j = 0; j < n; j++)
            assert_true(x[j] == 0);
        for (int j = 0; j < n; j++)
            x[j] = -INFINITY;
        max = 1, sum = 2; // and behind something
        f->kernels->sparse->softmax_keep(x, n, &max, &sum);
        assert_true(max == 1 && fabsf(sum - 2) < 1e-6f);
        for (int j = 0; j < n; j++)
            assert_true(x[j] == 0);
        release(f);
    }
}

static void test_sums_of_some(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 0; n < 100; n++) {
        const int size = n + 1 + below(f, 200);
        const float *x = random_floats(f, (size_t)size, 1);
        int *indices = guarded(f, sizeof *indices * (size_t)(n ? n : 1));
        double sum = 0, magnitude = 0;
        for (int j = 0; j < n; j++) {
            indices[j] = j == n / 2 ? size - 1 : below(f, size);
            sum += (double)x[indices[j]];
            magnitude += fabs((double)x[indices[j]]);
        }
        assert_near(f->kernels->sparse->sum_at(x, indices, n), sum, magnitude * sum_error(n), "sum", n, 0);
        release(f);
    }
}

// What is kept moves together in its order; the ends of a range are numbers, whatever else is there.
static void test_keep_and_range(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct sparse_kernels *kernels = f->kernels->sparse;
    for (int n = 0; n < 100; n++)
        for (int kind = 0; kind < KINDS; kind++) {
            float *values = problem(f, kind, n), least = NAN, largest = NAN;
            int *indices = guarded(f, sizeof *indices * (size_t)(n ? n : 1));
            float expected[100], low = INFINITY, high = -INFINITY;
            int numbers[100], kept = 0;
            const float from = n > 0 ? values[below(f, n)] : 0; // may be NaN, which nothing reaches
            for (int j = 0; j < n; j++) {
                indices[j] = 7 * j + 1;
                low = fminf(low, values[j]);
                high = fmaxf(high, values[j]);
                if (values[j] >= from) {
                    numbers[kept] = indices[j];
                    expected[kept++] = values[j];
                }
            }
            kernels->range(values, n, &least, &largest);
            assert_true(least == low && largest == high);
            assert_int_equal(kernels->keep(indices, values, n, from), kept);
            assert_memory_equal(indices, numbers, sizeof *indices * (size_t)kept);
            assert_memory_equal(values, expected, sizeof *values * (size_t)kept);
            release(f);
        }
}

static void test_exact_sums(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { N = 37, ROWS = 500 };
    float *rows = random_floats(f, N * ROWS, 100);
    double forth[N] = {0}, back[N] = {0};
    for (int i = 0; i < ROWS; i++)
        f->kernels->sparse->add_exactly(forth, rows + i * N, N, 1);
    for (int i = ROWS; i-- > 0;)
        f->kernels->sparse->add_exactly(back, rows + i * N, N, 1);
    assert_memory_equal(forth, back, sizeof forth); // in any order
    for (int c = 0; c < N; c++) {
        double sum = 0;
        for (int i = 0; i < ROWS; i++)
            sum += rows[i * N + c];
        assert_near(forth[c], sum, ROWS * 0x1p-25 + 1e-9, "sum", c, 0);
    }
    for (int i = 0; i < ROWS; i++)
        f->kernels->sparse->add_exactly(forth, rows + i * N, N, -1);
    for (int c = 0; c < N; c++)
        assert_true(forth[c] == 0); // what came went
}

// Gathered rows give what the same rows give one after another; with a bias of ln m, what they give m times.
static void test_gathered_attention(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int dims[] = {8, 20, 64, 128, 200};
    for (int round = 0; round < 120; round++) {
        const enum kv_type kv = (enum kv_type)(round % KV_TYPES);
        const int d = dims[round % 5], queries = 1 + round % 8, slots = 1 + below(f, 700), n = 1 + below(f, slots);
        const size_t row = (size_t)d * kv_sizes[kv];
        char *k = guarded(f, row * (size_t)slots), *v = guarded(f, row * (size_t)slots);
        const int most = round % 4 == 3 ? 3 : 1; // times that a row stands for itself
        char *k_run = guarded(f, row * (size_t)(most * n)), *v_run = guarded(f, row * (size_t)(most * n));
        float *k_scales = random_floats(f, (size_t)slots, 0.01), *v_scales = random_floats(f, (size_t)slots, 0.01);
        float *k_run_scales = guarded(f, sizeof(float) * (size_t)(most * n)),
              *v_run_scales = guarded(f, sizeof(float) * (size_t)(most * n));
        for (size_t i = 0; i < (size_t)slots * d; i++)
            for (int which = 0; which < 2; which++) {
                const float x = (float)uniform(f);
                char *to = which ? v : k;
                if (kv == KV_FP32)
                    ((float *)to)[i] = x;
                else if (kv == KV_INT8)
                    ((int8_t *)to)[i] = (int8_t)(100 * x);
                else
                    f->kernels->to_fp16((uint16_t *)to + i, &x, 1);
            }
        int *rows = guarded(f, sizeof *rows * (size_t)n), n_run = 0;
        float *bias = guarded(f, sizeof *bias * (size_t)n);
        for (int j = 0; j < n; j++) {
            const int times = 1 + below(f, most);
            rows[j] = (int)((long)j * slots / n);
            bias[j] = logf((float)times);
            for (int i = 0; i < times; i++, n_run++) {
                memcpy(k_run + n_run * row, k + rows[j] * row, row);
                memcpy(v_run + n_run * row, v + rows[j] * row, row);
                k_run_scales[n_run] = k_scales[rows[j]];
                v_run_scales[n_run] = v_scales[rows[j]];
            }
        }
        float acc[2][8 * 200] = {{0}}, max[2][8], sum[2][8] = {{0}};
        for (int i = 0; i < 8; i++)
            max[0][i] = max[1][i] = -INFINITY;
        struct attend_args args = {
            .acc = acc[0],
            .max = max[0],
            .sum = sum[0],
            .q = random_floats(f, (size_t)queries * d, 1),
            .k = k,
            .v = v,
            .k_scales = k_scales,
            .v_scales = v_scales,
            .n_queries = queries,
            .n_keys = n,
            .head_dim = d,
            .fetching = {.streams = 2 + round / 15 % 2 * 2, .to_l2 = round % 2},
            .next_k = k,
            .next_v = v,
            .next_rows = round % 2 ? rows : NULL, // they are only fetched
            .n_next = round % 2 ? n : 0,
            .bias = most > 1 ? bias : NULL,
            .scratch = guarded_scratch(f, f->kernels->attend_scratch),
        };
        attend_rows(f->kernels, f->kernels->attend[kv], kv, &args, (struct given_rows){rows, round % 5 == 0},
                    guarded_scratch(f, attend_rows_tile(row)));
        args.acc = acc[1], args.max = max[1], args.sum = sum[1], args.k = k_run, args.v = v_run;
        args.k_scales = k_run_scales, args.v_scales = v_run_scales, args.n_keys = n_run, args.bias = NULL;
        f->kernels->attend[kv](&args);
        for (int i = 0; i < queries; i++) {
            const double all[2] = {log((double)sum[0][i]) + (double)max[0][i], log((double)sum[1][i]) + (double)max[1][i]};
            assert_near(all[0], all[1], 1e-5 + 1e-6 * fabs(all[1]), "sum", i, 0);
            for (int c = 0; c < d; c++)
                assert_near(acc[0][i * d + c] / sum[0][i], acc[1][i * d + c] / sum[1][i], 1e-5, "output", i, c);
        }
        release(f);
    }
}

// An element of the copy by its definition (sparse.h).
static double copied(enum copy_type type, const uint8_t *copy, ptrdiff_t stride, int slot, int component)
{
    const uint8_t *run = copy + component * stride;
    if (type == COPY_FP16)
        return fp16_value(((const uint16_t *)run)[slot]);
    if (type == COPY_INT8)
        return ((const int8_t *)run)[slot];
    const int pair = run[slot / 256 * 128 + slot % 128];
    return (slot % 256 < 128 ? pair & 15 : pair >> 4) - 8;
}

static double largest_magnitude(const float *x, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

// Against the formula in double; bytes: the queries have been rounded to 127ths of their largest component.
static void check_component_scores(const struct score_args *a, enum copy_type type, bool bytes)
{
    for (int i = 0; i < a->n_queries; i++) {
        const float *q = a->q + (ptrdiff_t)i * a->r;
        const double unit = bytes ? largest_magnitude(q, a->r) / 127 : 0;
        for (int j = 0; j < a->n; j++) {
            double sum = 0, magnitude = 0, rounded = 0;
            const double scale = type == COPY_FP16 ? 1 : (double)a->scales[a->slot + j];
            for (int c = 0; c < a->r; c++) {
                const double key = copied(type, a->copy, a->stride, a->slot + j, a->components[c]);
                const double term = scale * (double)q[c] * key;
                sum += term;
                magnitude += fabs(term);
                rounded += fabs(scale * key) * unit / 2;
            }
            assert_near(a->scores[i * a->ld + j], sum, (a->r + 2) * 0x1p-24 * magnitude + rounded * 1.0001, "score", i, j);
        }
    }
}

static void test_component_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    const bool vnni = !strcmp(f->kernels->name, "avx512vnni") || !strcmp(f->kernels->name, "amx");
    for (int round = 0; round < 240; round++) {
        const enum copy_type type = (enum copy_type)(round % COPY_TYPES);
        const int d = 1 + below(f, 40), r = 1 + below(f, d), queries = 1 + below(f, 9), blocks = 1 + below(f, 7);
        const int slot = below(f, blocks * COPY_GROUP), n = 1 + below(f, blocks * COPY_GROUP - slot), ld = n + below(f, 5);
        const ptrdiff_t stride = copy_stride(type, blocks * COPY_GROUP);
        const size_t size = (size_t)(stride * d);
        uint8_t *copy = type == COPY_FP16 ? random_elements(f, DTYPE_FP16, size / 2) : guarded(f, size);
        for (size_t i = 0; type != COPY_FP16 && i < size; i++)
            copy[i] = (uint8_t)below(f, 256);
        const float *scales = random_floats(f, (size_t)blocks * COPY_GROUP, 0.02);
        const float *q = random_floats(f, (size_t)queries * r, 1);
        int *components = guarded(f, sizeof *components * (size_t)r);
        for (int c = 0; c < r; c++)
            components[c] = (int)((long)c * d / r);
        const size_t n_scores = (size_t)(queries - 1) * ld + n;
        float *scores = guarded(f, sizeof *scores * n_scores), *again = guarded(f, sizeof *again * n_scores);
        const yalm_activations activations = below(f, 2) ? YALM_ACTIVATIONS_INT16 : YALM_ACTIVATIONS_FP32;
        void (*const score)(const struct score_args *) = score_select(f->kernels, activations, type);
        const bool bytes = score != f->kernels->sparse->score[type];
        assert_true(bytes == (vnni && type == COPY_INT8 && activations != YALM_ACTIVATIONS_FP32));
        struct score_args args = {.scores = scores,
                                  .ld = ld,
                                  .copy = copy,
                                  .stride = stride,
                                  .scales = type == COPY_FP16 ? NULL : scales,
                                  .q = q,
                                  .components = components,
                                  .n_queries = queries,
                                  .r = r,
                                  .slot = slot,
                                  .n = n};
        score(&args);
        check_component_scores(&args, type, bytes);
        // A slot's score is the same to the bit whatever slots are scored with it.
        const int before = below(f, n + 1);
        args.scores = again;
        args.n = before;
        score(&args);
        args.scores += before;
        args.slot += before;
        args.n = n - before;
        score(&args);
        for (int i = 0; i < queries; i++)
            assert_memory_equal(again + (size_t)i * ld, scores + (size_t)i * ld, sizeof *scores * (size_t)n);
        release(f);
    }
}

int main(void)
{
    const struct kernel_case cases[] = {
        {"selection is that of a sort", test_selection_is_that_of_a_sort},
        {"periodic rows", test_periodic_rows},
        {"softmax", test_softmax},
        {"softmax of nothing", test_softmax_of_nothing},
        {"sums of some", test_sums_of_some},
        {"keep and range", test_keep_and_range},
        {"exact sums", test_exact_sums},
        {"gathered attention", test_gathered_attention},
        {"component scores", test_component_scores},
    };
    return run_on_every_isa("select", cases, sizeof cases / sizeof *cases);
}
