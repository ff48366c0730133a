// The machine's limits, as far as they can be known beforehand: positive, finite, and not faster than any machine is.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/limits.h"
#include "util/clock.h"

static void measure(const struct cpu_kernels *kernels, int n_threads)
{
    yalm_error error;
    yalm_limits limits = {NAN, NAN, NAN, 0};
    struct team *team = team_open(n_threads, false, &error);
    assert_non_null(team);
    const double start = clock_seconds();
    assert_int_equal(limits_measure(team, kernels, 0.1, &limits, &error), YALM_OK);
    assert_true(clock_seconds() - start < 60); // at least one pass over the grid, and no endless loop
    assert_true(limits.read_gb_per_s > 0.01 && limits.read_gb_per_s < 1e5);
    assert_true(limits.fma_gop_per_s > 0.01 && limits.fma_gop_per_s < 1e6);
    assert_true(limits.dot_gop_per_s > 0.01 && limits.dot_gop_per_s < 1e6);
    team_close(team);
}

static void test_one_thread(void **state)
{
    (void)state;
    measure(cpu_kernels_select("auto"), 1);
}

static void test_uneven_shares(void **state)
{
    (void)state;
    measure(cpu_kernels_select("auto"), 3);
}

static void test_scalar(void **state)
{
    (void)state;
    measure(cpu_kernels_select("scalar"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_uneven_shares),
        cmocka_unit_test(test_scalar),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
