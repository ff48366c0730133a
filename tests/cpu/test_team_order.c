// The team's atomic operations in many orders, on up to 64 threads: each item once, each step after the one before, no wake-up
// lost, whoever is late. And what a step costs by a model of caches.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "team_simulation.h"

enum { STEPS = 9, RUNS = 3, MOST = 256, RUN_STEPS = 16 };

struct work {
    unsigned char (*done)[MOST]; // (STEPS, MOST): how often an item was
    int *n;                      // (STEPS) items
    int *early;                  // items that began before the step before was over
};

typedef bool claim_function(struct member *me, int n, int grain, struct grains *span);
static claim_function *const claims[] = {team_claim_share, team_claim, team_claim_near};

static void do_steps(struct member *me, const void *arguments)
{
    const struct work *w = arguments;
    for (int step = 0; step < STEPS; step++)
        for (struct grains span; claims[step % 3](me, w->n[step], 1 + step % 2, &span);)
            for (int i = span.first; i < span.last; i++) {
                w->done[step][i]++;
                sim_work(0);
                for (int k = 0; step > 0 && k < w->n[step - 1]; k++)
                    *w->early += w->done[step - 1][k] != 1;
            }
}

static void check_order(int n_threads, int n_running, uint64_t seed, uint64_t late)
{
    unsigned char done[STEPS][MOST];
    int n[STEPS], early = 0, wrong = 0;
    sim_begin(SIM_ANY, seed, 3, late);
    struct team *team = team_open(n_threads, false, NULL);
    assert_non_null(team);
    for (int run = 0; run < RUNS; run++) {
        memset(done, 0, sizeof done);
        for (int step = 0; step < STEPS; step++) // none, one, fewer than members, many
            n[step] = (int)sim_draw(4) == 0 ? (int)sim_draw(2) : (int)sim_draw(sim_draw(2) ? MOST : (unsigned)n_threads + 1);
        const struct work w = {done, n, &early};
        team_run(team, n_running, do_steps, &w, sizeof w);
        for (int step = 0; step < STEPS; step++)
            for (int i = 0; i < MOST; i++)
                wrong += done[step][i] != (i < n[step]);
        team_forget(team); // `done` and `n` are changed next
    }
    team_close(team);
    sim_end();
    assert_int_equal(early, 0);
    assert_int_equal(wrong, 0);
}

static void test_every_order(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8, 9, 16, 33, 64};
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int i = 0; i < 9; i++) {
            const uint64_t some = seed * UINT64_C(0x9e3779b97f4a7c15);
            const uint64_t late = seed % 3 == 0 ? 0 : seed % 3 == 1 ? some : ~UINT64_C(1); // none, about half, all but one
            check_order(sizes[i], sizes[i], seed, late);
            if (seed % 4 == 3 && sizes[i] > 2)
                check_order(sizes[i], sizes[i] - 1, seed, late);
        }
}

// ns that a step of so many grains a member takes beyond their work, and lines that move from core to core.
struct cost {
    double ns, lines;
};

static void do_work(struct member *me, const void *arguments)
{
    const int n = *(const int *)arguments;
    for (int step = 0; step < RUN_STEPS; step++)
        for (struct grains span; team_claim_share(me, n, 1, &span);)
            sim_work((unsigned)(span.last - span.first) * 1000 + sim_draw(100));
}

static struct cost cost_of(int n_threads)
{
    sim_begin(SIM_TIMED, 1, 1 << 20, 0);
    struct team *team = team_open(n_threads, false, NULL);
    assert_non_null(team);
    const int n = 8 * n_threads;
    team_run(team, n_threads, do_work, &n, sizeof n); // all are there
    const uint64_t lines = sim.transfers, begin = sim.threads[0].clock;
    team_run(team, n_threads, do_work, &n, sizeof n);
    const struct cost cost = {(double)(sim.threads[0].clock - begin) / RUN_STEPS - 8000,
                              (double)(sim.transfers - lines) / RUN_STEPS};
    team_close(team);
    sim_end();
    return cost;
}

// Waiting for one line after another would make it eight times as long.
static void test_steps_of_many_cores(void **state)
{
    (void)state;
    const struct cost few = cost_of(8), many = cost_of(64);
    print_message("8 threads: %.0f ns, %.0f lines; 64: %.0f ns, %.0f lines\n", few.ns, few.lines, many.ns, many.lines);
    assert_true(many.ns < 4 * few.ns);
    assert_true(many.lines < 16 * few.lines);
}

int main(void)
{
    alarm(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_steps_of_many_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
