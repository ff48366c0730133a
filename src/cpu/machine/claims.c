// How members share a step. One that waits spins about as long as a sleep and a wake-up cost, then sleeps on a futex. What a
// step costs many cores: docs/performance.md, "Many cores".

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/machine/team_inside.h"

#ifndef SPINS // a test has its own
#define SPINS 2000
#if defined __x86_64__
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif
#endif

// ------------------------------------------------------------------------------------------ waiting

static void futex(_Atomic unsigned *word, int operation, unsigned value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void gate_open(struct gate *gate)
{
    atomic_fetch_add(&gate->count, 1);
    // Read first: mostly nobody sleeps, and the line stays in all caches. One call wakes them all, though they may take long to
    // be there again.
    if (atomic_load(&gate->sleepers) && atomic_exchange(&gate->sleepers, false))
        futex(&gate->count, FUTEX_WAKE, TEAM_MAX);
}

static void gate_sleep(struct gate *gate, unsigned seen)
{
    // The kernel compares the count again before it sleeps, so an opening in between is not missed.
    while (atomic_load(&gate->count) == seen) {
        atomic_store(&gate->sleepers, true);
        futex(&gate->count, FUTEX_WAIT, seen);
    }
}

void gate_wait(struct gate *gate, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&gate->count) != seen)
            return;
        PAUSE();
    }
    gate_sleep(gate, seen);
}

// ------------------------------------------------------------------------------------------ steps

// From the end of this step to the next. Called by exactly one member: the one that finished the last grain.
static void next_step(struct team *team, uint64_t step)
{
    atomic_store(&team->finished, 0);
    atomic_store(&team->word, step + ONE_STEP);
    gate_open(&team->steps);
}

static bool step_lasts(const struct member *me)
{
    return (atomic_load(&me->team->word) & ~CLAIMS_MASK) == me->step;
}

static void step_is_over(struct member *me)
{
    me->step += ONE_STEP;
    me->known = 0;
}

// The first grain of a member's share.
static unsigned share_begin(unsigned grains, int member, int n_members)
{
    return grains * (unsigned)member / (unsigned)n_members;
}

// Whether these are the last of so many.
static bool finishes(_Atomic int *finished, int grains, int all)
{
    return atomic_fetch_add(finished, grains) + grains == all;
}

// of_shares: where the grains are of a share, me->holds_of.
static void finish_claim(struct member *me, unsigned grains, bool of_shares)
{
    struct team *team = me->team;
    if (!me->holds)
        return;
    int held = me->holds;
    me->holds = 0;
    if (of_shares && me->n_members > NEIGHBOURS) {
        const int first = me->holds_of - me->holds_of % NEIGHBOURS, n = me->n_members - first;
        struct neighbours *group = &team->groups[first / NEIGHBOURS];
        const int all = (int)(share_begin(grains, first + (n < NEIGHBOURS ? n : NEIGHBOURS), me->n_members) -
                              share_begin(grains, first, me->n_members));
        if (!finishes(&group->finished, held, all))
            return;
        atomic_store(&group->finished, 0);
        held = all;
    }
    if (finishes(&team->finished, held, (int)grains))
        next_step(team, me->step);
}

// Fetches a few lines of the member's next product while it waits, so that memory does not rest.
static void fetch_ahead(struct member *me)
{
    for (int i = 0; i < 4 && me->ahead.bytes > 0; i++) {
        __builtin_prefetch(me->ahead.at, 0, 2);
        me->ahead.at += 64;
        me->ahead.bytes -= 64;
    }
}

// Waits, where nothing is left to claim, until those who hold grains have finished them.
static void wait_for_step(struct member *me, unsigned grains)
{
    struct team *team = me->team;
    if (grains == 0) { // nothing to finish: whoever comes first opens the next step
        uint64_t empty = me->step;
        if (atomic_compare_exchange_strong(&team->word, &empty, me->step + ONE_STEP))
            gate_open(&team->steps);
        step_is_over(me);
        return;
    }
    while (me->ahead.bytes > 0 && step_lasts(me))
        fetch_ahead(me);
    for (int i = 0; i < SPINS && step_lasts(me); i++) // on the word, which is read next in any case
        PAUSE();
    while (step_lasts(me)) {
        const unsigned seen = atomic_load(&team->steps.count);
        if (step_lasts(me))
            gate_sleep(&team->steps, seen);
    }
    step_is_over(me);
}

bool team_claim(struct member *me, int n, int grain, struct grains *span)
{
    struct team *team = me->team;
    while (n / grain >= (int)CLAIMS_MASK) // more grains than the word can count
        grain *= 2;
    const unsigned grains = ((unsigned)n + (unsigned)grain - 1) / (unsigned)grain;
    finish_claim(me, grains, false);
    uint64_t word = atomic_load(&team->word);
    while ((word & ~CLAIMS_MASK) == me->step && (word & CLAIMS_MASK) < grains)
        if (atomic_compare_exchange_weak(&team->word, &word, word + 1)) {
            const int64_t first = (int64_t)(word & CLAIMS_MASK) * grain, last = first + grain;
            *span = (struct grains){(int)first, last < n ? (int)last : n};
            me->holds = 1;
            return true;
        }
    wait_for_step(me, grains);
    return false;
}

// Takes at most so many grains from member `of`'s share of this step. From its own share a member takes half of what is left,
// from the front; from another's a part for each member, from the back. False where nothing is left, or the step is over.
static bool take(struct member *me, unsigned grains, unsigned most, int of, struct grains *taken)
{
    const uint64_t mask = GRAINS_MAX, tag = me->step >> CLAIM_BITS << 2 * GRAIN_BITS;
    _Atomic uint64_t *share = &me->team->shares[of].word;
    const unsigned members = (unsigned)me->n_members;
    for (;;) {
        uint64_t word = atomic_load(share);
        // If the step lasts now, the share was not yet of a later one when it was read; and it is not written if it has changed
        // since.
        if (!step_lasts(me)) {
            me->known = me->n_members; // all shares are empty
            return false;
        }
        unsigned first = (unsigned)(word >> GRAIN_BITS & mask), last = (unsigned)(word & mask);
        if ((word ^ tag) >> 2 * GRAIN_BITS) { // nobody has taken any of it
            first = share_begin(grains, of, me->n_members);
            last = share_begin(grains, of + 1, me->n_members);
        }
        const unsigned left = last - first;
        if (left == 0)
            return false;
        const bool own = of == me->thread;
        const unsigned wanted = (left + (own ? 1 : members - 1)) / (own ? 2 : members), n = wanted < most ? wanted : most;
        const unsigned from = own ? first : last - n;
        const uint64_t rest = own ? (uint64_t)(first + n) << GRAIN_BITS | last : (uint64_t)first << GRAIN_BITS | from;
        if (atomic_compare_exchange_strong(share, &word, tag | rest)) {
            *taken = (struct grains){(int)from, (int)(from + n)};
            return true;
        }
    }
}

static int fewer_grains(int n, int grain)
{
    while (n / grain >= GRAINS_MAX)
        grain *= 2;
    return grain;
}

int team_share(const struct member *me, int n, int grain)
{
    grain = fewer_grains(n, grain);
    const int64_t grains = ((int64_t)n + grain - 1) / grain;
    return (int)(grains * me->thread / me->n_members) * grain;
}

bool team_shares_evenly(const struct member *me, int n)
{
    return n >= 2 * me->n_members && n % me->n_members == 0;
}

// At most so many grains: of its own share, then of the others'.
static bool claim_of_shares(struct member *me, int n, int grain, unsigned most, struct grains *span)
{
    grain = fewer_grains(n, grain);
    const unsigned grains = ((unsigned)n + (unsigned)grain - 1) / (unsigned)grain;
    // Of its own share it finishes all at once: until then it would hold some of it in any case.
    const bool goes_on = me->holds_of == me->thread && me->known == 0;
    if (!goes_on)
        finish_claim(me, grains, true);
    for (; me->known < me->n_members && grains > 0; me->known++) { // an empty share stays empty
        struct grains taken;
        const int of = (me->thread + me->known) % me->n_members;
        if (take(me, grains, most, of, &taken)) {
            *span = (struct grains){taken.first * grain, taken.last * grain < n ? taken.last * grain : n};
            me->holds += taken.last - taken.first;
            me->holds_of = of;
            return true;
        }
        finish_claim(me, grains, true);
    }
    wait_for_step(me, grains);
    return false;
}

bool team_claim_share(struct member *me, int n, int grain, struct grains *span)
{
    return claim_of_shares(me, n, grain, UINT_MAX, span);
}

bool team_claim_near(struct member *me, int n, int grain, struct grains *span)
{
    return claim_of_shares(me, n, grain, 1, span);
}
