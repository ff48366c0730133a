// What a step of the team costs beyond its work: ns, the median of the rounds and the lowest tenth. A round is so short that
// on a busy machine there are some in which all threads had a processor.
//
//     build/release/bench/team [--threads N] [--steps N] [--rounds N]
//
// Steps without work are gone through by whoever is there. Where each member has 1 µs of work nearly all take part. What that
// work takes one thread is measured in the same round.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/machine/team.h"
#include "util/clock.h"

enum { MOST_ROUNDS = 100000 };

enum { SHARE_ITEMS = 16, LOOP = 200 }; // a member's items; rounds of the loop that is a microsecond for all of them

struct steps {
    int n, items; // steps, and items of each; items 0: SHARE_ITEMS a member
    bool shares, works;
};

static void work(int items)
{
    for (int i = 0; i < items * LOOP; i++)
        __asm__ volatile("");
}

static void do_steps(struct member *me, const void *arguments)
{
    const struct steps *s = arguments;
    const int items = s->items ? s->items : SHARE_ITEMS * me->n_members;
    for (int i = 0; i < s->n; i++)
        for (struct grains span; (s->shares ? team_claim_share : team_claim)(me, items, 1, &span);)
            if (s->works)
                work(span.last - span.first);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct team *team, const char *name, struct steps steps, int rounds)
{
    static double ns[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double begin = clock_seconds();
        for (int step = 0; step < steps.n && steps.works; step++)
            work(steps.items ? 1 : SHARE_ITEMS);
        const double alone = clock_seconds() - begin;
        begin = clock_seconds();
        const int runs = steps.n ? 1 : 50;
        for (int run = 0; run < runs; run++)
            team_run(team, team_size(team), do_steps, &steps, sizeof steps);
        ns[i] = 1e9 * (clock_seconds() - begin - alone) / (steps.n ? steps.n : runs);
    }
    qsort(ns, (size_t)rounds, sizeof *ns, compare);
    printf("%-28s %8.0f ns  (lowest tenth %.0f)\n", name, ns[rounds / 2], ns[rounds / 10]);
}

int main(int argc, char **argv)
{
    int threads = team_default_threads(), steps = 50, rounds = 4000;
    for (int i = 1; i + 1 < argc; i += 2) {
        int *to = !strcmp(argv[i], "--threads")  ? &threads
                  : !strcmp(argv[i], "--steps")  ? &steps
                  : !strcmp(argv[i], "--rounds") ? &rounds
                                                 : NULL;
        if (!to || (*to = atoi(argv[i + 1])) < 1 || rounds > MOST_ROUNDS) {
            fprintf(stderr, "usage: team [--threads N] [--steps N] [--rounds N], numbers above 0, at most %d rounds\n",
                    MOST_ROUNDS);
            return 2;
        }
    }
    yalm_error error;
    struct team *team = team_open(threads, false, &error);
    if (!team) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    measure(team, "one item", (struct steps){steps, 1, false, false}, rounds);
    measure(team, "one item, with work", (struct steps){steps, 1, false, true}, rounds);
    measure(team, "shares", (struct steps){steps, 0, true, false}, rounds);
    measure(team, "shares, with work", (struct steps){steps, 0, true, true}, rounds);
    measure(team, "a run of no step", (struct steps){0}, rounds);
    team_close(team);
    return 0;
}
