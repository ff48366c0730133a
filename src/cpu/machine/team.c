// A team's threads, and the runs that they take part in. How they share a run's steps: claims.c.

#include "cpu/machine/team.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/machine/cores.h"
#include "cpu/machine/team_inside.h"

#ifdef YALM_OPENMP
#include <omp.h>
#else
#include <signal.h>
#endif

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

// ------------------------------------------------------------------------------------------ runs

static void publish_job(struct team *team, int n_threads, work_function *work, const void *arguments, size_t bytes)
{
    struct job *job = &team->job;
    uint64_t words[TEAM_ARGUMENT_BYTES / 8] = {0};
    if (bytes > 0)
        memcpy(words, arguments, bytes);
    atomic_fetch_add(&job->version, 1);
    atomic_store(&job->first_step, atomic_load(&team->word) & ~CLAIMS_MASK); // the one after the last run's last
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

int team_core(const struct team *team, int thread)
{
    return team->n_cores ? team->cores[thread % team->n_cores] : -1;
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
