// The KV cache's index arithmetic against a plain simulation: slots that remember the position last written to them.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/kv_cache.h"

// Writes chunk after chunk; before each, all that each of its queries sees must be where kv_slot() says.
static void simulate(struct kv_policy kv, int chunk, int total)
{
    int64_t *slots = malloc(sizeof *slots * kv.capacity);
    for (int i = 0; i < kv.capacity; i++)
        slots[i] = -1;
    for (int begin = 0; begin < total; begin += chunk) {
        const int end = begin + chunk < total ? begin + chunk : total;
        for (int p = begin; p < end; p++) {
            assert_in_range(kv_slot(&kv, p), 0, kv.capacity - 1);
            slots[kv_slot(&kv, p)] = p;
        }
        for (int p = begin; p < end; p++) {
            int seen = 0;
            const bool apart = kv_sinks_apart(&kv, p);
            for (int j = 0; apart && j < kv.n_sinks; j++, seen++)
                assert_int_equal(slots[j], j);
            for (int64_t j = kv_first_visible(&kv, p); j <= p; j++, seen++)
                assert_int_equal(slots[kv_slot(&kv, j)], j);
            assert_int_equal(seen, kv_n_visible(&kv, p));
        }
    }
    free(slots);
}

static void test_what_is_visible_is_there(void **state)
{
    (void)state;
    for (int context = 1; context < 40; context += 3)
        for (int window = 0; window < 20; window += 4)
            for (int chunk = 1; chunk < 50; chunk += 7)
                for (int sinks = 0; sinks < 6; sinks += 2) {
                    simulate(kv_policy_make(context, window, true, sinks, chunk), chunk, 5 * context + chunk);
                    simulate(kv_policy_make(context, window, false, sinks, chunk), chunk, context);
                }
}

static void test_a_window_as_long_as_the_context_needs_no_sinks(void **state)
{
    (void)state;
    const struct kv_policy same = kv_policy_make(48, 48, true, 4, 5), longer = kv_policy_make(49, 48, true, 4, 5);
    assert_int_equal(same.n_sinks, 0);
    assert_int_equal(same.span, longer.span);
    assert_int_equal(same.capacity, longer.capacity);
    assert_int_equal(kv_policy_make(47, 48, true, 4, 5).n_sinks, 4); // a context of the user's, shorter than the model's window
}

static void test_runs_are_consecutive_and_cover(void **state)
{
    (void)state;
    const struct kv_policy kv = kv_policy_make(16, 0, true, 3, 5);
    for (int64_t p = 0; p < 200; p++) {
        int64_t from = kv_first_visible(&kv, p);
        while (from <= p) {
            const int64_t end = kv_run_end(&kv, from, p + 1);
            assert_true(end > from);
            for (int64_t j = from; j < end; j++)
                assert_int_equal(kv_slot(&kv, j), kv_slot(&kv, from) + (j - from));
            from = end;
        }
    }
}

static void test_holds_means_that_nothing_was_overwritten(void **state)
{
    (void)state;
    const int chunk = 7;
    const struct kv_policy kv = kv_policy_make(20, 0, true, 2, chunk);
    int64_t slots[64];
    for (int written = 1; written < 100; written++) {
        for (int p = 0; p < written; p++)
            slots[kv_slot(&kv, p)] = p;
        for (int back = 0; back <= written; back++) {
            bool there = true; // what the query at `back` sees of what was there before it
            for (int64_t j = kv_first_visible(&kv, back); j < back; j++)
                there &= slots[kv_slot(&kv, j)] == j;
            if (kv_holds(&kv, back, written))
                assert_true(there);
            if (back >= written - chunk + 1)
                assert_true(kv_holds(&kv, back, written)); // at least a chunk can always be taken back
        }
    }
}

static void test_positions_in_the_billions(void **state)
{
    (void)state;
    const struct kv_policy kv = kv_policy_make(1000, 0, true, 4, 64);
    const int64_t p = INT64_C(1) << 40;
    assert_int_equal(kv_n_visible(&kv, p), 1000);
    assert_int_equal(p - kv_first_visible(&kv, p) + 1, 996);
    assert_in_range(kv_slot(&kv, p), 4, kv.capacity - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_visible_is_there),
        cmocka_unit_test(test_a_window_as_long_as_the_context_needs_no_sinks),
        cmocka_unit_test(test_runs_are_consecutive_and_cover),
        cmocka_unit_test(test_holds_means_that_nothing_was_overwritten),
        cmocka_unit_test(test_positions_in_the_billions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
