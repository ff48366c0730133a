// Attention over keys and values against a naive double-precision softmax.
#include "attention_problem.h"

static const int head_dims[] = {8, 20, 33, 48, 64, 80, 96, 128, 256};

enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

// A score's error is that of a sum of head_dim products; e^x carries it over as a relative error and adds 2e-6 of its own, as
// does each change of the maximum; then the values are summed in float.
static void check_query(const struct problem *p, int i)
{
    const int first = p->first ? p->first[i] : 0, last = p->first ? p->last[i] : p->n_keys, d = p->head_dim;
    if (first >= last) {
        assert_true(p->max[i] == -INFINITY && p->sum[i] == 0);
        for (int c = 0; c < d; c++)
            assert_true(p->acc[i * d + c] == 0);
        return;
    }
    if (!NUMBERS_COUNT)
        return;
    double *scores = malloc(2 * sizeof *scores * (size_t)p->n_keys), *weights = scores + p->n_keys;
    double max = -INFINITY, magnitude = 0, sum = 0;
    for (int j = first; j < last; j++) {
        double terms = 0;
        scores[j] = 0;
        for (int c = 0; c < d; c++) {
            const double term = (double)p->q[i * d + c] * value_of(p->type, p->k_exact, (size_t)j * d + c);
            scores[j] += term;
            terms += fabs(term);
        }
        if (p->softcap > 0)
            scores[j] = p->softcap * tanh(scores[j] / p->softcap);
        scores[j] += p->bias ? (double)p->bias[j] : 0;
        max = fmax(max, scores[j]);
        magnitude = fmax(magnitude, terms);
    }
    for (int j = first; j < last; j++)
        sum += weights[j] = exp(scores[j] - max);
    const double score_error = 2 * sum_error(d) * magnitude + 1e-6 * p->softcap + (p->bias ? 1e-6 : 0); // of e^x in tanh
    const double relative = expm1(score_error) + 4e-6 + 2 * sum_error(last - first);
    assert_near(p->max[i], max, score_error, "max", i, 0);
    assert_near(p->sum[i] * exp(p->max[i] - max), sum, (relative + score_error) * sum, "sum", i, 0);
    for (int c = 0; c < d; c++) {
        double y = 0, y_magnitude = 0;
        for (int j = first; j < last; j++) {
            const double term = weights[j] / sum * value_of(p->type, p->v_exact, (size_t)j * d + c);
            y += term;
            y_magnitude += fabs(term);
        }
        assert_near(p->acc[i * d + c] / p->sum[i], y, 2 * relative * y_magnitude + 1e-30, "output", i, c);
    }
    free(scores);
}

static void check(struct fixture *f, const struct problem *p)
{
    attend(f, p, 0, p->n_keys);
    for (int i = 0; i < p->n_queries; i++)
        check_query(p, i);
    release(f);
}

static void test_groups(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int kv = 0; kv < KV_TYPES; kv++)
        for (int d = 0; d < N_HEAD_DIMS; d++)
            for (int group = 1; group <= 8; group++) {
                const struct problem p =
                    make_problem(f, (enum kv_type)kv, group, 1 + (group * 37 + d * 53) % 150, head_dims[d], 1.0);
                check(f, &p);
            }
}

static void test_many_queries(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int n_queries[] = {9, 16, 31, 47};
    for (int kv = 0; kv < KV_TYPES; kv++)
        for (int d = 0; d < N_HEAD_DIMS; d++)
            for (int i = 0; i < 4; i++) {
                const struct problem p =
                    make_problem(f, (enum kv_type)kv, n_queries[i], 1 + (i * 71 + d * 29) % 97, head_dims[d], 1.0);
                check(f, &p);
            }
}

// More queries, keys and components than any block has.
static void test_blocks(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int sizes[][3] = {{1, 1500, 128}, {3, 700, 300}, {140, 210, 24}, {17, 650, 48}, {10, 9, 520}, {4, 300, 8}};
    for (int i = 0; i < 2 * (int)(sizeof sizes / sizeof *sizes); i++) {
        const enum kv_type kv = i % 2 ? KV_INT8 : KV_FP16;
        const int *size = sizes[i / 2];
        struct problem p = make_problem(f, kv, size[0], size[1], size[2], 1.0);
        check(f, &p);
        p = make_problem(f, kv, size[0], size[1], size[2], 1.0);
        random_masks(f, &p);
        check(f, &p);
    }
}

static void test_masks(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 150; round++) {
        struct problem p = make_problem(f, (enum kv_type)(round % KV_TYPES), 1 + below(f, round % 3 ? 8 : 70),
                                        1 + below(f, 300), head_dims[below(f, 4)], 1.0);
        random_masks(f, &p);
        check(f, &p);
    }
    for (int round = 0; round < 60; round++) { // lengths that have loops of their own, several blocks
        struct problem p =
            make_problem(f, round % 2 ? KV_FP16 : KV_INT8, 1 + round / 2 % 8, 1 + below(f, 600), below(f, 2) ? 64 : 128, 1.0);
        random_masks(f, &p);
        check(f, &p);
    }
}

// Of every cache, length of a head and number of queries, and where many scores are at the bound.
static void test_capped_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 90; round++) {
        struct problem p = make_problem(f, (enum kv_type)(round % KV_TYPES), 1 + below(f, round % 4 ? 8 : 70),
                                        1 + below(f, 300), head_dims[round % N_HEAD_DIMS], round % 2 ? 1.0 : 6.0);
        p.softcap = round % 5 ? 2.5f : 50;
        random_masks(f, &p);
        check(f, &p);
    }
}

// Of every cache, length of a head and number of queries: what is added to the scores.
static void test_biased_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 90; round++) {
        struct problem p = make_problem(f, (enum kv_type)(round % KV_TYPES), 1 + below(f, round % 4 ? 8 : 70),
                                        1 + below(f, 300), head_dims[round % N_HEAD_DIMS], 1.0);
        p.bias = random_floats(f, (size_t)p.n_keys, 3.0);
        random_masks(f, &p);
        check(f, &p);
    }
}

static void test_nothing_seen(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int n_queries[] = {1, 2, 3, 4, 8, 20};
    for (int round = 0; round < 6; round++) {
        const int n = n_queries[round];
        struct problem p = make_problem(f, KV_FP16, n, 100, 64, 1.0);
        p.first = guarded(f, sizeof(int) * (size_t)n);
        p.last = guarded(f, sizeof(int) * (size_t)n);
        for (int i = 0; i < n; i++)
            p.first[i] = p.last[i] = i % 3 * 50;
        check(f, &p);
    }
}

// Causal, as prefill calls it: query i sees keys up to its own.
static void test_causal(void **state)
{
    struct fixture *f = fixture_of(state);
    struct problem p = make_problem(f, KV_FP16, 100, 260, 64, 1.0);
    p.first = guarded(f, sizeof(int) * 100);
    p.last = guarded(f, sizeof(int) * 100);
    for (int i = 0; i < p.n_queries; i++) {
        p.first[i] = i < 40 ? 0 : i - 40;
        p.last[i] = 160 + i + 1;
    }
    check(f, &p);
}

// Scores around ±1e4: e^x of them would overflow, and the maximum changes from block to block.
static void test_large_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 1; n <= 33; n += 16) {
        struct problem p = make_problem(f, KV_FP32, n, 600, 64, 1000.0);
        check(f, &p);
        p = make_problem(f, KV_FP32, n, 600, 64, 0);
        for (int j = 0; j < p.n_keys; j++)
            ((float *)p.k)[j * p.head_dim] = (float)(j - 300) / 300;
        for (int i = 0; i < n; i++)
            p.q[i * p.head_dim] = i % 2 ? -1e4f : 1e4f;
        check(f, &p);
    }
}

static void test_pieces(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int round = 0; round < 30; round++) {
        struct problem p = make_problem(f, (enum kv_type)(round % KV_TYPES), 1 + below(f, round % 2 ? 8 : 50),
                                        2 + below(f, 500), head_dims[below(f, 7)], 1.0);
        random_masks(f, &p);
        attend_pieces(f, &p, 150);
        for (int i = 0; i < p.n_queries; i++)
            check_query(&p, i);
        release(f);
    }
}

static void test_repeatable(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 3; n <= 24; n += 21) {
        struct problem p = make_problem(f, KV_FP16, n, 400, 80, 1.0);
        const size_t bytes = sizeof(float) * (size_t)n * 80;
        float *before = malloc(bytes);
        attend(f, &p, 0, 400);
        memcpy(before, p.acc, bytes);
        start_again(&p);
        attend(f, &p, 0, 400);
        assert_memory_equal(before, p.acc, bytes);
        free(before);
        release(f);
    }
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"groups of 1 to 8 heads equal the reference", test_groups},
        {"many queries equal the reference", test_many_queries},
        {"sizes past the blocks equal the reference", test_blocks},
        {"random masks", test_masks},
        {"capped scores", test_capped_scores},
        {"biased scores", test_biased_scores},
        {"queries that see nothing stay as they were", test_nothing_seen},
        {"causal and sliding masks", test_causal},
        {"scores of 1e4 do not overflow", test_large_scores},
        {"pieces add up to the whole", test_pieces},
        {"same bits each time", test_repeatable},
    };
    return run_on_every_isa("attention kernels", cases, sizeof cases / sizeof *cases);
}
