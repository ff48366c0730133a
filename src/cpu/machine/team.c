// A member that waits spins about as long as a sleep and a wake-up cost, then sleeps on a futex.

#include "cpu/machine/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/machine/cores.h"

#ifdef YALM_OPENMP
#include <omp.h>
#else
#include <signal.h>
#endif

#if defined __x86_64__
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

enum { SPINS = 2000 };

// The word that says where the team stands: steps since it was opened, grains of the step that have been claimed.
enum { CLAIM_BITS = 20 };

static const uint64_t one_step = UINT64_C(1) << CLAIM_BITS, claims_mask = (UINT64_C(1) << CLAIM_BITS) - 1;

// What is left of a member's own share of a step's grains: the step's number, the first grain, the one after the last. The
// number's low bits suffice: to mistake one step for another a member would have to sleep for days in a claim.
enum { GRAIN_BITS = 14, GRAINS_MAX = (1 << GRAIN_BITS) - 1 };

struct share {
    _Alignas(64) _Atomic uint64_t word;
};

// A place to wait for a number to change. Each has cache lines of its own: spinning reads must not slow what others write.
struct gate {
    _Alignas(64) _Atomic unsigned count;
    _Alignas(64) _Atomic bool sleepers; // somebody may sleep here
};

typedef void work_function(struct member *me, const void *arguments);

// What members do in the current run. A late member may read it while the next run's is being written. So the copy counts only
// if `version` was even and the same before and after (a sequence lock).
struct job {
    _Atomic uint64_t version;
    _Atomic uint64_t first_step; // as in the team's word
    _Atomic int n_threads;       // members that take part
    work_function *_Atomic work;
    _Atomic uint64_t arguments[TEAM_ARGUMENT_BYTES / 8];
};

struct team {
    int n_threads;
    _Atomic bool closing;
    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) _Atomic int finished; // grains of the current step
    struct gate steps;                 // counts steps
    struct gate runs;                  // counts runs
    struct job job;
    struct share *shares;    // (n_threads)
    pthread_mutex_t running; // held by whoever runs the team
    cpu_set_t before;        // the caller's affinity mask
    int cores[TEAM_MAX];     // (n_cores): one hardware thread of each that members are pinned to
    int n_cores;             // 0: not pinned
#ifndef YALM_OPENMP
    struct thread {
        struct team *team;
        int index;
        pthread_t handle;
        _Atomic bool inside; // a run, or about to read which
    } threads[TEAM_MAX];
    int n_started;
#endif
};

// Best effort: a member that cannot be pinned runs anywhere.
static void pin_member(const struct team *team, int thread)
{
    if (team->n_cores == 0)
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(team->cores[thread % team->n_cores], &one);
    sched_setaffinity(0, sizeof one, &one);
}

// ------------------------------------------------------------------------------------------ waiting

static void futex(_Atomic unsigned *word, int operation, unsigned value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void gate_open(struct gate *gate)
{
    atomic_fetch_add(&gate->count, 1);
    if (atomic_exchange(&gate->sleepers, false)) // one call wakes them all, though they may take long to be there again
        futex(&gate->count, FUTEX_WAKE, TEAM_MAX);
}

// Returns when gate->count is no longer `seen`.
static void gate_wait(struct gate *gate, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&gate->count, memory_order_acquire) != seen)
            return;
        PAUSE();
    }
    // The kernel compares the count again before it sleeps, so an opening in between is not missed.
    while (atomic_load(&gate->count) == seen) {
        atomic_store(&gate->sleepers, true);
        futex(&gate->count, FUTEX_WAIT, seen);
    }
}

// ------------------------------------------------------------------------------------------ steps

// From the end of this step to the next. Called by exactly one member: the one that finished the last grain.
static void next_step(struct team *team, uint64_t step)
{
    atomic_store(&team->finished, 0);
    atomic_store(&team->word, step + one_step);
    gate_open(&team->steps);
}

static bool step_lasts(const struct member *me)
{
    return (atomic_load(&me->team->word) & ~claims_mask) == me->step;
}

static void step_is_over(struct member *me)
{
    me->step += one_step;
}

static void finish_claim(struct member *me, unsigned grains)
{
    if (!me->holds)
        return;
    const int held = me->holds;
    me->holds = 0;
    if (atomic_fetch_add(&me->team->finished, held) + held == (int)grains)
        next_step(me->team, me->step);
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
        if (atomic_compare_exchange_strong(&team->word, &empty, me->step + one_step))
            gate_open(&team->steps);
        step_is_over(me);
        return;
    }
    while (me->ahead.bytes > 0 && step_lasts(me))
        fetch_ahead(me);
    while (step_lasts(me)) {
        const unsigned seen = atomic_load(&team->steps.count);
        if (step_lasts(me))
            gate_wait(&team->steps, seen);
    }
    step_is_over(me);
}

bool team_claim(struct member *me, int n, int grain, struct grains *span)
{
    struct team *team = me->team;
    while (n / grain >= (int)claims_mask) // more grains than the word can count
        grain *= 2;
    const unsigned grains = ((unsigned)n + (unsigned)grain - 1) / (unsigned)grain;
    finish_claim(me, grains);
    uint64_t word = atomic_load(&team->word);
    while ((word & ~claims_mask) == me->step && (word & claims_mask) < grains)
        if (atomic_compare_exchange_weak(&team->word, &word, word + 1)) {
            const int64_t first = (int64_t)(word & claims_mask) * grain, last = first + grain;
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
        if (!step_lasts(me))
            return false;
        unsigned first = (unsigned)(word >> GRAIN_BITS & mask), last = (unsigned)(word & mask);
        if ((word ^ tag) >> 2 * GRAIN_BITS) { // nobody has taken any of it
            first = grains * (unsigned)of / members;
            last = grains * ((unsigned)of + 1) / members;
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
    finish_claim(me, grains);
    struct grains taken;
    for (int i = 0; i < me->n_members && grains > 0; i++)
        if (take(me, grains, most, (me->thread + i) % me->n_members, &taken)) {
            *span = (struct grains){taken.first * grain, taken.last * grain < n ? taken.last * grain : n};
            me->holds = taken.last - taken.first;
            return true;
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

// ------------------------------------------------------------------------------------------ runs

static void publish_job(struct team *team, int n_threads, work_function *work, const void *arguments, size_t bytes)
{
    struct job *job = &team->job;
    uint64_t words[TEAM_ARGUMENT_BYTES / 8] = {0};
    if (bytes > 0)
        memcpy(words, arguments, bytes);
    atomic_fetch_add(&job->version, 1);
    atomic_store(&job->first_step, atomic_load(&team->word) & ~claims_mask); // the one after the last run's last
    atomic_store(&job->n_threads, n_threads);
    atomic_store(&job->work, work);
    for (size_t i = 0; i < (bytes + 7) / 8; i++)
        atomic_store(&job->arguments[i], words[i]);
    atomic_fetch_add(&job->version, 1);
}

// Joins the run that is current now; steps that are over by then are skipped.
static void join_run(struct team *team, int thread)
{
    struct job *job = &team->job;
    uint64_t words[TEAM_ARGUMENT_BYTES / 8], version, first_step;
    work_function *work;
    int n_threads;
    do {
        version = atomic_load(&job->version) & ~UINT64_C(1); // an odd one cannot match below
        first_step = atomic_load(&job->first_step);
        n_threads = atomic_load(&job->n_threads);
        work = atomic_load(&job->work);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            words[i] = atomic_load(&job->arguments[i]);
    } while (atomic_load(&job->version) != version);
    if (thread >= n_threads)
        return;
    struct member me = {.team = team, .thread = thread, .n_members = n_threads, .step = first_step};
    work(&me, words);
}

int team_size(const struct team *team)
{
    return team->n_threads;
}

#ifdef YALM_OPENMP

static yalm_status start_threads(struct team *team, yalm_error *error)
{
    return (void)team, (void)error, YALM_OK;
}
static void stop_threads(struct team *team)
{
    (void)team;
}

static void run_members(struct team *team, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    join_run(team, omp_get_thread_num());
}
static void wait_for_late_members(struct team *team)
{
    (void)team; // a parallel region ends when all of them have
}

#else

// Threads of our own: libgomp's wait for milliseconds at full speed at a region's end, for members that may have lost their
// core. With another process on one of two cores, decode of a small model ran six times slower on them.
static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    struct team *team = thread->team;
    pin_member(team, thread->index);
    unsigned seen = 0;
    for (;;) {
        gate_wait(&team->runs, seen);
        seen = atomic_load(&team->runs.count);
        if (atomic_load(&team->closing))
            return NULL;
        atomic_store(&thread->inside, true);
        join_run(team, thread->index);
        atomic_store(&thread->inside, false);
    }
}

static void stop_threads(struct team *team)
{
    atomic_store(&team->closing, true);
    gate_open(&team->runs);
    for (int i = 0; i < team->n_started; i++)
        pthread_join(team->threads[i].handle, NULL);
}

static yalm_status start_threads(struct team *team, yalm_error *error)
{
    // The program's signals are the business of the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); // a page that a thread itself touches: blocked, it would kill without a word
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    while (team->n_started < team->n_threads - 1 && !failed) {
        struct thread *thread = &team->threads[team->n_started];
        *thread = (struct thread){.team = team, .index = team->n_started + 1};
        failed = pthread_create(&thread->handle, NULL, thread_main, thread);
        team->n_started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        return YALM_OK;
    return error_set(error, YALM_FAILED, "cannot start thread %d of %d: %s", team->n_started + 2, team->n_threads,
                     strerror(failed));
}

static void run_members(struct team *team, int n_threads)
{
    (void)n_threads; // each looks for itself whether it takes part
    gate_open(&team->runs);
    join_run(team, 0);
}

// A member that comes after this finds the job that is current now.
static void wait_for_late_members(struct team *team)
{
    for (int i = 0; i < team->n_started; i++)
        while (atomic_load(&team->threads[i].inside))
            sched_yield();
}

#endif

void team_run(struct team *team, int n_threads, work_function *work, const void *arguments, size_t bytes)
{
    pthread_mutex_lock(&team->running);
    publish_job(team, n_threads, work, arguments, bytes);
    run_members(team, n_threads);
    pthread_mutex_unlock(&team->running);
}

void team_forget(struct team *team)
{
    pthread_mutex_lock(&team->running);
    publish_job(team, 0, NULL, NULL, 0); // whoever wakes late finds nothing to do
    wait_for_late_members(team);
    pthread_mutex_unlock(&team->running);
}

struct items {
    int n;
    void (*item)(void *context, int i);
    void *context;
};

static void run_items(struct member *me, const void *arguments)
{
    const struct items items = *(const struct items *)arguments;
    for (struct grains span; team_claim(me, items.n, 1, &span);)
        for (int i = span.first; i < span.last; i++)
            items.item(items.context, i);
}

void team_for(struct team *team, int n, void (*item)(void *context, int i), void *context)
{
    team_run(team, team->n_threads, run_items, &(struct items){n, item, context}, sizeof(struct items));
}

struct team *team_open(int n_threads, bool pin, yalm_error *error)
{
    if (n_threads < 1 || n_threads > TEAM_MAX) {
        error_set(error, YALM_USAGE, "threads: found %d, expected 1 to %d", n_threads, TEAM_MAX);
        return NULL;
    }
    struct team *team = aligned_alloc(64, sizeof *team);
    if (!team) {
        error_set(error, YALM_NO_MEMORY, "out of memory for %d threads", n_threads);
        return NULL;
    }
    memset(team, 0, sizeof *team);
    team->n_threads = n_threads;
    pthread_mutex_init(&team->running, NULL);
    team->shares = aligned_alloc(64, sizeof *team->shares * (size_t)n_threads);
    if (!team->shares) {
        error_set(error, YALM_NO_MEMORY, "out of memory for %d threads", n_threads);
        pthread_mutex_destroy(&team->running);
        free(team);
        return NULL;
    }
    for (int i = 0; i < n_threads; i++)
        atomic_init(&team->shares[i].word, UINT64_MAX); // of no step
    if (pin) {
        team->n_cores = cores_of(&team->before, team->cores, n_threads);
        pin_member(team, 0);
    }
    if (start_threads(team, error) != YALM_OK) {
        team_close(team);
        return NULL;
    }
    return team;
}

void team_close(struct team *team)
{
    if (!team)
        return;
    stop_threads(team);
    if (team->n_cores > 0)
        sched_setaffinity(0, sizeof team->before, &team->before);
    pthread_mutex_destroy(&team->running);
    free(team->shares);
    free(team);
}
