// The machine's limits, as far as they can be known beforehand: positive, finite, and not faster than any machine is. And
// slices of plain reading, by a kernel that counts instead of reading.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/machine/isa.h"
#include "cpu/machine/limits.h"
#include "cpu/machine/reading.h"
#include "thorough.h"
#include "util/clock.h"
#include "util/memory.h"

static void measure(const struct cpu_kernels *kernels, int n_threads)
{
    yalm_error error;
    yalm_limits limits = {NAN, NAN, NAN, 0};
    struct team *team = team_open(n_threads, false, &error);
    assert_non_null(team);
    const double start = clock_seconds();
    assert_int_equal(limits_measure(team, kernels, 0.1, NULL, &limits, &error), YALM_OK);
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

// ------------------------------------------------------------------------------------------ slices

enum { BLOCK = 24 << 20, MAX_UNITS = 1024 };

static struct reader reader;
static atomic_int n_reads[MAX_UNITS]; // of each unit
static atomic_ullong n_bytes;

// Takes 20 µs by one pattern, and 200 by all others.
static uint64_t count_reading(const void *data, size_t bytes, int n_streams, int ahead)
{
    const double until = clock_seconds() + (n_streams == 4 && ahead == 2048 ? 2e-5 : 2e-4);
    const ptrdiff_t at = (const char *)data - reader.block;
    assert_true(at >= 0 && bytes == reader.unit && at % (ptrdiff_t)reader.unit == 0 &&
                at / (ptrdiff_t)reader.unit < reader.n_units);
    atomic_fetch_add(&n_reads[at / (ptrdiff_t)reader.unit], 1);
    atomic_fetch_add(&n_bytes, bytes);
    while (clock_seconds() < until)
        ;
    return 1;
}

static void test_slices_count_what_they_read(void **state)
{
    (void)state;
    struct cpu_kernels kernels = *cpu_kernels_select("scalar");
    kernels.read_streams = count_reading;
    yalm_error error;
    struct team *team = team_open(2, false, &error);
    assert_non_null(team);
    reader = (struct reader){0};
    assert_true(reader_open(&reader, team, &kernels, BLOCK));
    assert_true(reader.n_units * reader.unit <= BLOCK && reader.n_units * reader.unit > BLOCK / 2);
    assert_true(reader.n_units >= 64 && reader.n_units <= MAX_UNITS);
    assert_int_equal(reader.pattern.n_streams, 4);
    assert_int_equal(reader.pattern.ahead, 2048);

    for (int i = 0; i < MAX_UNITS; i++)
        n_reads[i] = 0;
    n_bytes = 0;
    double told = 0;
    for (int i = 0; i < 20; i++) {
        const double start = clock_seconds(), gb_per_s = reader_slice(&reader, team, 0.005), took = clock_seconds() - start;
        assert_true(took >= 0.005);
        told += gb_per_s * took;
    }
    const double counted = 1e-9 * (double)n_bytes;
    assert_true(told >= 0.999 * counted && told <= 1.2 * counted);
    int least = n_reads[0], most = n_reads[0];
    for (int i = 0; i < reader.n_units; i++) {
        least = n_reads[i] < least ? n_reads[i] : least;
        most = n_reads[i] > most ? n_reads[i] : most;
    }
    assert_true(least > 0 && most <= least + 4); // slice after slice goes on where the last one ended
    reader_close(&reader);
    team_close(team);
}

static void test_slices_end_where_memory_is_short(void **state)
{
    (void)state;
    const struct cpu_kernels *kernels = cpu_kernels_select("auto");
    yalm_error error;
    struct team *team = team_open(2, false, &error);
    assert_non_null(team);
    reader = (struct reader){0};
    assert_true(reader_open(&reader, team, kernels, BLOCK));
    assert_true(reader_slice(&reader, team, 0.01) > 0);
    reader.reserved = UINT64_MAX;
    assert_true(reader_measure(&reader, team, kernels, 0.01) == 0 && reader.block == NULL);
    reader.reserved = 0;
    assert_true(reader_measure(&reader, team, kernels, 0.01) == 0 && reader.block == NULL);
    reader_close(&reader);
    team_close(team);
}

// The reader's block stays where it is, and where the reader has none, limits are measured all the same. A reader takes as much
// as four times the last-level cache, which is too much for some machines: then it has none either.
static void test_limits_read_the_readers_block(void **state)
{
    (void)state;
    const struct cpu_kernels *kernels = cpu_kernels_select("auto");
    yalm_error error;
    yalm_limits limits = {0};
    struct team *team = team_open(2, false, &error);
    assert_non_null(team);
    reader = (struct reader){0};
    assert_true(reader_open(&reader, team, kernels, BLOCK));
    const char *block = reader.block;
    const uint64_t available = memory_available();
    assert_int_equal(limits_measure(team, kernels, 0.5, &reader, &limits, &error), YALM_OK);
    assert_true(limits.read_gb_per_s > 0.01 && limits.fma_gop_per_s > 0.01);
    assert_true(reader.block == block || available < (uint64_t)1 << 32);
    reader_close(&reader);
    reader.refused = true;
    limits = (yalm_limits){0};
    assert_int_equal(limits_measure(team, kernels, thorough() ? 0.5 : 0.1, &reader, &limits, &error), YALM_OK);
    assert_true(limits.read_gb_per_s > 0.01 && reader.block == NULL);
    team_close(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_uneven_shares),
        cmocka_unit_test(test_scalar),
        cmocka_unit_test(test_slices_count_what_they_read),
        cmocka_unit_test(test_slices_end_where_memory_is_short),
        cmocka_unit_test(test_limits_read_the_readers_block),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
