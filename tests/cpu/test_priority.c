// Keys drawn by priority (cpu/long/priority.h): which are taken, against their definition in double precision, and that what
// they stand for adds up to what all keys add up to.
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "cpu/long/priority.h"

enum { N = 600, K = 60 };

static uint64_t seed = 5;

static double uniform(void) // in [0, 1)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

static double number_of(int j) // u
{
    return ((double)((uint32_t)(j + 1) * 2654435769u) + 0.5) / 4294967296.0;
}

struct drawn {
    int indices[N + 17];
    float values[N + 17], bias[N];
    int n;
};

static struct drawn draw(const float *w, int head, bool logarithmic)
{
    static float lifts[N + PRIORITY_PHASES];
    struct drawn d = {0};
    float priorities[N];
    priority_lifts(lifts, N, logarithmic);
    const float *of_head = lifts + priority_phase(head);
    for (int j = 0; j < N; j++)
        priorities[j] = logarithmic ? logf(w[j]) + of_head[j] : w[j] * of_head[j];
    struct candidates c = {d.indices, d.values, 0};
    c.n = select_top(&sparse_kernels_scalar, d.indices, d.values, priorities, 0, N, K + 1);
    const float threshold = priority_take(&c);
    d.n = c.n;
    priority_biases(d.bias, &c, threshold, of_head, logarithmic);
    return d;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// The K with the largest w / u, ascending, each standing for θ / w where that is more than 1.
static void test_by_definition(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        float w[N];
        double priorities[N], sorted[N];
        const int head = round * 37;
        for (int j = 0; j < N; j++) {
            w[j] = (float)exp(10 * uniform() * uniform());
            priorities[j] = sorted[j] = (double)w[j] / number_of(j + priority_phase(head));
        }
        qsort(sorted, N, sizeof *sorted, descending);
        for (int logarithmic = 0; logarithmic < 2; logarithmic++) {
            const struct drawn d = draw(w, head, logarithmic);
            assert_int_equal(d.n, K);
            for (int i = 0; i < d.n; i++) {
                const int j = d.indices[i];
                assert_true(i == 0 || j > d.indices[i - 1]);
                assert_true(priorities[j] > sorted[K] * (1 - 1e-5));
                assert_true(fabs((double)d.bias[i] - fmax(0, log(sorted[K] / (double)w[j]))) < 2e-5);
            }
        }
    }
}

// Over many heads, whose numbers begin elsewhere, the drawn sum is the whole one in the mean; that of the best is not. So it is
// of what no weight says.
static void test_right_in_the_mean(void **state)
{
    (void)state;
    enum { HEADS = 1000 };
    float w[N];
    double x[N], all = 0, weights = 0, drawn = 0, drawn_weights = 0, square = 0;
    for (int j = 0; j < N; j++) {
        w[j] = (float)exp(4 * uniform());
        x[j] = uniform();
        all += (double)w[j] * x[j];
        weights += (double)w[j];
    }
    for (int head = 0; head < HEADS; head++) {
        const struct drawn d = draw(w, head, false);
        double sum = 0;
        for (int i = 0; i < d.n; i++) {
            const double stands_for = exp((double)d.bias[i]) * (double)w[d.indices[i]];
            sum += stands_for * x[d.indices[i]];
            drawn_weights += stands_for / HEADS;
        }
        drawn += sum / HEADS;
        square += (sum / all - 1) * (sum / all - 1) / HEADS;
    }
    assert_true(fabs(drawn / all - 1) < 0.01 && fabs(drawn_weights / weights - 1) < 0.01);
    assert_true(sqrt(square) < 0.15); // each alone is off by so much: about 1 / sqrt(K)
}

// A threshold of 0, where most weights are: nothing stands for more than itself, and nothing is infinite.
static void test_zeros(void **state)
{
    (void)state;
    float w[N] = {0};
    for (int j = 0; j < K / 2; j++)
        w[j * 7] = 1;
    const struct drawn d = draw(w, 3, false);
    for (int i = 0; i < d.n; i++)
        assert_true(d.bias[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_definition),
        cmocka_unit_test(test_right_in_the_mean),
        cmocka_unit_test(test_zeros),
    };
    return cmocka_run_group_tests_name("keys drawn by priority", tests, NULL, NULL);
}
