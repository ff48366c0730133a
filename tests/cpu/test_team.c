// The team: every item once, steps one after another, members that are late or left out, pinning.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/machine/teams.h"

enum { ITEMS = 1000, STEPS = 50 };

typedef bool claim_function(struct member *me, int n, int grain, struct grains *span);

struct work {
    atomic_int (*counts)[ITEMS]; // (STEPS, ITEMS): how often item i of a step was done
    int n, grain;
    int lazy;              // this member sleeps before each step; -1: none
    atomic_int *early;     // items that began before the step before was over
    atomic_int *highest;   // thread that took part
    claim_function *other; // claims every other step
};

static void do_steps(struct member *me, const void *arguments)
{
    const struct work *w = arguments;
    for (int step = 0; step < STEPS; step++) {
        if (me->thread == w->lazy)
            usleep(300);
        claim_function *claim = step % 2 ? w->other : team_claim;
        static const char some[1 << 12];
        me->ahead.at = some; // fetched by those who wait
        me->ahead.bytes = step % 3 ? (ptrdiff_t)sizeof some : 0;
        for (struct grains span; claim(me, w->n, w->grain, &span);)
            for (int i = span.first; i < span.last; i++) {
                atomic_fetch_add(&w->counts[step][i], 1);
                if (step > 0 && atomic_load(&w->counts[step - 1][(i * 7) % w->n]) != 1)
                    atomic_fetch_add(w->early, 1);
                if (me->thread > atomic_load(w->highest))
                    atomic_store(w->highest, me->thread);
            }
    }
}

static void check_with(claim_function *other, int n_threads, int n_running, int n, int grain, int lazy)
{
    struct team *team = team_open(n_threads, false, NULL);
    assert_non_null(team);
    struct work w = {.n = n, .grain = grain, .lazy = lazy, .other = other};
    w.counts = malloc(sizeof *w.counts * STEPS);
    atomic_int early = 0, highest = 0;
    w.early = &early;
    w.highest = &highest;
    for (int run = 0; run < 20; run++) { // a member that sleeps through one run must not disturb the next
        memset((void *)w.counts, 0, sizeof *w.counts * STEPS);
        team_run(team, n_running, do_steps, &w, sizeof w);
        for (int step = 0; step < STEPS; step++)
            for (int i = 0; i < n; i++)
                assert_int_equal(w.counts[step][i], 1);
    }
    assert_int_equal(early, 0);
    assert_true(highest < n_running);
    team_close(team);
    free((void *)w.counts);
}

static void check(int n_threads, int n_running, int n, int grain, int lazy)
{
    check_with(team_claim, n_threads, n_running, n, grain, lazy);
    check_with(team_claim_share, n_threads, n_running, n, grain, lazy);
    check_with(team_claim_near, n_threads, n_running, n, grain, lazy);
}

static void test_every_item_once_and_in_order(void **state)
{
    (void)state;
    check(1, 1, 100, 7, -1);
    check(2, 2, ITEMS, 1, -1);
    check(3, 3, 17, 16, -1);
    check(7, 7, 5, 1, -1);
    check(4, 2, 64, 4, -1); // two of the members stay out
    check(2, 2, 0, 1, -1);  // steps without items
}

static void test_late_members_hold_nobody_up(void **state)
{
    (void)state;
    check(3, 3, 40, 4, 1);
    check(2, 2, 40, 4, 0);
}

static void add(void *context, int i)
{
    atomic_fetch_add((atomic_int *)context, i);
}

static void test_more_items_than_the_word_counts(void **state)
{
    (void)state;
    struct team *team = team_open(2, false, NULL);
    atomic_int sum = 0;
    team_for(team, 60000, add, &sum);
    assert_int_equal(sum, 60000 / 2 * 59999);
    sum = 0;
    team_for(team, 3 << 20, add, &sum); // grains grow; the sum wraps as unsigned arithmetic does
    assert_int_equal((unsigned)sum, (unsigned)(((uint64_t)(3 << 20) * ((3 << 20) - 1)) / 2));
    team_close(team);
}

// A member alone: its own share is everything, half of what is left at a time, from the front.
static void take_alone(struct member *me, const void *arguments)
{
    atomic_int *seen = *(atomic_int *const *)arguments;
    static const int lasts[] = {60, 90, 100, 103}; // of 11 grains 6, 3, 1, 1
    int i = 0;
    for (struct grains span; team_claim_share(me, 103, 10, &span); i++) {
        assert_in_range(i, 0, 3);
        assert_int_equal(span.first, i == 0 ? 0 : lasts[i - 1]);
        assert_int_equal(span.last, lasts[i]);
        atomic_fetch_add(seen, span.last - span.first);
    }
}

// The same a grain at a time.
static void take_alone_near(struct member *me, const void *arguments)
{
    atomic_int *seen = *(atomic_int *const *)arguments;
    int from = 0;
    for (struct grains span; team_claim_near(me, 103, 10, &span); from = span.last) {
        assert_int_equal(span.first, from);
        assert_int_equal(span.last, from < 100 ? from + 10 : 103);
        atomic_fetch_add(seen, span.last - span.first);
    }
}

struct shares {
    claim_function *claim;
    atomic_int *by; // (n): how often an item was taken
    int n, grain, absent;
};

static void take_shares(struct member *me, const void *arguments)
{
    const struct shares *w = arguments;
    if (me->thread == w->absent)
        usleep(20000);
    for (struct grains span; w->claim(me, w->n, w->grain, &span);) {
        const bool too_long = w->claim == team_claim_near && span.last - span.first > w->grain;
        for (int i = span.first; i < span.last; i++)
            atomic_fetch_add(&w->by[i], too_long ? 100 : 1);
        usleep(50);
    }
}

static void test_shares(void **state)
{
    (void)state;
    atomic_int seen = 0, *at = &seen;
    struct team *team = team_open(1, false, NULL);
    team_run(team, 1, take_alone, &at, sizeof at);
    assert_int_equal(seen, 103);
    team_run(team, 1, take_alone_near, &at, sizeof at);
    assert_int_equal(seen, 206);
    team_close(team);

    // Shares follow one another, in whole grains.
    assert_int_equal(team_share(&(struct member){.thread = 0, .n_members = 3}, 100, 8), 0);
    assert_int_equal(team_share(&(struct member){.thread = 1, .n_members = 3}, 100, 8), 32);
    assert_int_equal(team_share(&(struct member){.thread = 2, .n_members = 3}, 100, 8), 64);

    enum { N = 5000 };
    static atomic_int by[N];
    team = team_open(3, false, NULL);
    const struct shares w = {team_claim_share, by, N, 16, 2}; // the last member's share is done by the others
    team_run(team, 3, take_shares, &w, sizeof w);
    const struct shares near = {team_claim_near, by, N, 16, 2};
    team_run(team, 3, take_shares, &near, sizeof near);
    for (int i = 0; i < N; i++)
        assert_int_equal(by[i], 2);
    team_close(team);

    team = team_open(2, false, NULL);
    // More grains than a share counts.
    const struct shares many = {team_claim_share, calloc(1 << 20, sizeof(atomic_int)), 1 << 20, 1, -1};
    team_run(team, 2, take_shares, &many, sizeof many);
    for (int i = 0; i < 1 << 20; i++)
        assert_int_equal(many.by[i], 1);
    free((void *)many.by);
    team_close(team);
}

struct cores {
    claim_function *claim;
    atomic_int *done; // (2): items, by member
};

// As on a performance core, and on an efficiency core at a third of its speed.
static void take_at_own_speed(struct member *me, const void *arguments)
{
    const struct cores *w = arguments;
    for (struct grains span; w->claim(me, 120, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            usleep(me->thread == 0 ? 300 : 900);
            atomic_fetch_add(&w->done[me->thread], 1);
        }
}

static void test_a_slow_core_does_less(void **state)
{
    (void)state;
    claim_function *const claims[] = {team_claim, team_claim_share, team_claim_near};
    struct team *team = team_open(2, false, NULL);
    for (int i = 0; i < 3; i++) {
        atomic_int done[2] = {0, 0};
        const struct cores w = {claims[i], done};
        team_run(team, 2, take_at_own_speed, &w, sizeof w);
        assert_int_equal(done[0] + done[1], 120);
        assert_in_range(done[1], 1, 50); // 30 where both sleep for exactly so long; an equal share is 60
    }
    team_close(team);
}

static void test_pinning_ends_with_the_team(void **state)
{
    (void)state;
    cpu_set_t before, during, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct team *team = team_open(3, true, NULL); // more than there may be cores
    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_int_equal(CPU_COUNT(&during), 1);
    atomic_int sum = 0;
    team_for(team, 100, add, &sum);
    assert_int_equal(sum, 4950);
    team_close(team);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

struct caller {
    struct team *team;
    pthread_t thread;
    atomic_int counts[STEPS][ITEMS];
    int wrong;
};

static void *run_often(void *argument)
{
    struct caller *caller = argument;
    atomic_int early = 0, highest = 0;
    const struct work w = {caller->counts, ITEMS, 3, -1, &early, &highest, team_claim_share};
    for (int run = 0; run < 10; run++) {
        memset((void *)caller->counts, 0, sizeof caller->counts);
        team_run(caller->team, 3, do_steps, &w, sizeof w);
        for (int step = 0; step < STEPS; step++)
            for (int i = 0; i < ITEMS; i++)
                caller->wrong += caller->counts[step][i] != 1;
    }
    caller->wrong += early;
    return NULL;
}

static void test_callers_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    struct caller *callers = calloc(CALLERS, sizeof *callers);
    struct team *team = team_open(3, false, NULL);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].team = team;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, run_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    team_close(team);
    free(callers);
}

struct late {
    int *memory; // freed once the team has forgotten the run
    atomic_int *entered, *left;
};

static void come_late(struct member *me, const void *arguments)
{
    const struct late *late = arguments;
    atomic_fetch_add(late->entered, 1);
    if (me->thread > 0)
        usleep(3000);
    for (struct grains span; team_claim(me, *late->memory, 1, &span);)
        ;
    atomic_fetch_add(late->left, 1);
}

static void test_what_is_forgotten_may_be_freed(void **state)
{
    (void)state;
    struct team *team = team_open(3, false, NULL);
    for (int run = 0; run < 50; run++) {
        atomic_int entered = 0, left = 0;
        const struct late late = {malloc(sizeof(int)), &entered, &left};
        *late.memory = 5;
        team_run(team, 3, come_late, &late, sizeof late);
        team_forget(team);
        assert_int_equal(entered, left);
        free(late.memory);
    }
    team_close(team);
}

static void test_teams_are_shared_by_size(void **state)
{
    (void)state;
    void *teams = NULL;
    struct team *two = teams_get(&teams, 2, NULL), *three = teams_get(&teams, 3, NULL);
    assert_ptr_equal(teams_get(&teams, 2, NULL), two);
    assert_ptr_equal(teams_get(&teams, 3, NULL), three);
    assert_int_equal(team_size(three), 3);
    assert_null(teams_get(&teams, 0, NULL));
    teams_close(teams);
    teams_close(NULL);
}

static void test_sizes_are_checked(void **state)
{
    (void)state;
    yalm_error error;
    assert_null(team_open(0, false, &error));
    assert_int_equal(error.status, YALM_USAGE);
    assert_null(team_open(TEAM_MAX + 1, false, NULL));
    team_close(NULL);
    assert_in_range(team_default_threads(), 1, TEAM_MAX);
}

int main(void)
{
    alarm(300); // a team that never ends fails, and keeps nobody waiting
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once_and_in_order),
        cmocka_unit_test(test_late_members_hold_nobody_up),
        cmocka_unit_test(test_more_items_than_the_word_counts),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_a_slow_core_does_less),
        cmocka_unit_test(test_pinning_ends_with_the_team),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_what_is_forgotten_may_be_freed),
        cmocka_unit_test(test_teams_are_shared_by_size),
        cmocka_unit_test(test_sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
