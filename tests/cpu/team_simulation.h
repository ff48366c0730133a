// A scheduler of our own for the team's sources, which are included here: of all threads one runs at a time, and before each
// atomic operation another may go on. So a seed is an order of operations, on as many threads as wanted.
//
// SIM_ANY draws who goes on; some threads are late: they are rarely drawn. SIM_TIMED keeps a clock for each thread and a state
// for each cache line, and lets the thread go on that is furthest behind. It counts what it costs: a line comes from another
// core where that has written it, or where this one writes what others have read.
#pragma once
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIM_ANY   0
#define SIM_TIMED 1

enum {
    SIM_THREADS = 64,
    SIM_LINES = 4096,
    SIM_TRANSFER = 60, // ns, of a line from core to core; of a written one the next has to wait for that
    SIM_SHARED = 6,    // ns from one core's reading of a line to the next one's
    SIM_PAUSE = 40,    // ns of a spin
    SIM_WAKE = 5000,   // ns from a wake-up to running
};

struct sim_thread {
    pthread_t handle;
    pthread_cond_t turn;
    void *(*main)(void *);
    void *argument;
    const void *sleeps_on; // NULL: ready
    bool ended, late;
    uint64_t clock;
};

struct sim_line {
    uintptr_t line;
    uint64_t readers; // a bit for each thread that has it
    uint64_t free;    // when the next may have it
    int writer;       // -1: none
};

static struct sim {
    int mode, n, now, spins;
    uint64_t seed, transfers;
    pthread_mutex_t lock; // held by whoever runs
    struct sim_thread threads[SIM_THREADS];
    struct sim_line lines[SIM_LINES];
} sim;

static _Thread_local int sim_self;

static unsigned sim_draw(unsigned n)
{
    sim.seed = sim.seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(sim.seed >> 33) % n;
}

static bool sim_ready(int i)
{
    return !sim.threads[i].sleeps_on && !sim.threads[i].ended;
}

// Who goes on; nobody can where a wake-up was lost.
static int sim_next(void)
{
    int best = -1;
    for (int i = 0; i < sim.n && sim.mode == SIM_TIMED; i++)
        if (sim_ready(i) && (best < 0 || sim.threads[i].clock < sim.threads[best].clock))
            best = i;
    const int from = sim.mode == SIM_TIMED ? 0 : (int)sim_draw((unsigned)sim.n);
    const bool late_too = sim_draw(256) == 0;
    for (int pass = late_too ? 1 : 0; pass < 2 && best < 0; pass++)
        for (int i = 0; i < sim.n && best < 0; i++) {
            const int at = (from + i) % sim.n;
            if (sim_ready(at) && (pass || !sim.threads[at].late))
                best = at;
        }
    if (best < 0) {
        fprintf(stderr, "all %d threads sleep: a wake-up was lost\n", sim.n);
        abort();
    }
    return best;
}

static void sim_go_on(int next)
{
    const int self = sim_self;
    sim.now = next;
    if (next == self)
        return;
    pthread_cond_signal(&sim.threads[next].turn);
    while (sim.now != self && !sim.threads[self].ended)
        pthread_cond_wait(&sim.threads[self].turn, &sim.lock);
}

// What reading or writing the line takes.
static void sim_touch(const volatile void *p, bool writes)
{
    const uintptr_t line = (uintptr_t)p / 64;
    struct sim_line *l = &sim.lines[line % SIM_LINES];
    for (; l->line && l->line != line; l = l + 1 == sim.lines + SIM_LINES ? sim.lines : l + 1)
        ;
    if (!l->line)
        *l = (struct sim_line){.line = line, .writer = -1};
    const uint64_t me = UINT64_C(1) << sim_self;
    uint64_t *clock = &sim.threads[sim_self].clock;
    const bool here = writes ? l->writer == sim_self && l->readers == me : (l->readers & me) != 0;
    *clock += 1;
    if (!here && (l->writer >= 0 || l->readers)) {
        const uint64_t begin = *clock > l->free ? *clock : l->free;
        *clock = begin + SIM_TRANSFER;
        l->free = begin + (writes || l->writer >= 0 ? SIM_TRANSFER : SIM_SHARED);
        sim.transfers++;
    }
    l->readers = writes ? me : l->readers | me;
    l->writer = writes ? sim_self : l->writer == sim_self ? sim_self : -1;
}

static void sim_point(const volatile void *p, bool writes)
{
    if (sim.mode == SIM_TIMED)
        sim_touch(p, writes);
    if (sim.mode == SIM_TIMED || sim_draw(4) == 0)
        sim_go_on(sim_next());
}

static void sim_pause(void)
{
    sim.threads[sim_self].clock += SIM_PAUSE;
    sim_go_on(sim_next());
}

// A thread works for so long.
static void sim_work(unsigned ns)
{
    sim.threads[sim_self].clock += ns;
    sim_point(&sim.threads[sim_self], true);
}

static void sim_sleep(const void *on)
{
    sim.threads[sim_self].sleeps_on = on;
    sim_go_on(sim_next());
}

static void sim_wake(const void *on)
{
    for (int i = 0; i < sim.n; i++)
        if (sim.threads[i].sleeps_on == on) {
            sim.threads[i].sleeps_on = NULL;
            sim.threads[i].clock = sim.threads[sim_self].clock + SIM_WAKE;
        }
}

static long sim_futex(_Atomic unsigned *word, int operation, unsigned value)
{
    sim_point(word, false);
    if ((operation & FUTEX_WAKE) != 0)
        sim_wake(word);
    else if (*word == value)
        sim_sleep(word);
    return 0;
}

static void *sim_main(void *argument)
{
    struct sim_thread *t = argument;
    sim_self = (int)(t - sim.threads);
    pthread_mutex_lock(&sim.lock);
    while (sim.now != sim_self)
        pthread_cond_wait(&t->turn, &sim.lock);
    t->main(t->argument);
    t->ended = true;
    sim_wake(t);
    sim_go_on(sim_next());
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static int sim_create(pthread_t *handle, void *(*main)(void *), void *argument)
{
    struct sim_thread *t = &sim.threads[sim.n++];
    t->main = main;
    t->argument = argument;
    t->clock = sim.threads[sim_self].clock;
    const int failed = pthread_create(&t->handle, NULL, sim_main, t);
    *handle = t->handle;
    return failed;
}

static void sim_join(pthread_t handle)
{
    int i = 1;
    while (!pthread_equal(sim.threads[i].handle, handle))
        i++;
    if (!sim.threads[i].ended)
        sim_sleep(&sim.threads[i]);
    pthread_mutex_unlock(&sim.lock);
    pthread_join(handle, NULL);
    pthread_mutex_lock(&sim.lock);
}

// The thread that calls this is the first. n: threads that there will be; late: a bit for each that is.
static void sim_begin(int mode, uint64_t seed, int spins, uint64_t late)
{
    sim = (struct sim){.mode = mode, .n = 1, .spins = spins, .seed = seed * 2654435761U + 1};
    pthread_mutex_init(&sim.lock, NULL);
    for (int i = 0; i < SIM_THREADS; i++) {
        pthread_cond_init(&sim.threads[i].turn, NULL);
        sim.threads[i].late = late >> i & 1;
    }
    sim_self = 0;
    pthread_mutex_lock(&sim.lock);
}

static void sim_end(void)
{
    pthread_mutex_unlock(&sim.lock);
    for (int i = 0; i < SIM_THREADS; i++)
        pthread_cond_destroy(&sim.threads[i].turn);
    pthread_mutex_destroy(&sim.lock);
}

#undef atomic_load
#undef atomic_store
#undef atomic_fetch_add
#undef atomic_exchange
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#define SIM_ORDER                                          memory_order_seq_cst
#define SIM_READS(p, x)                                    (sim_point(p, false), x)
#define SIM_WRITES(p, x)                                   (sim_point(p, true), x)
#define SIM_SWAP                                           atomic_compare_exchange_strong_explicit
#define SIM_SWAPS(p, old, x)                               SIM_WRITES(p, SIM_SWAP(p, old, x, SIM_ORDER, SIM_ORDER))
#define atomic_load(p)                                     SIM_READS(p, atomic_load_explicit(p, SIM_ORDER))
#define atomic_store(p, x)                                 SIM_WRITES(p, atomic_store_explicit(p, x, SIM_ORDER))
#define atomic_fetch_add(p, x)                             SIM_WRITES(p, atomic_fetch_add_explicit(p, x, SIM_ORDER))
#define atomic_exchange(p, x)                              SIM_WRITES(p, atomic_exchange_explicit(p, x, SIM_ORDER))
#define atomic_compare_exchange_strong(p, old, x)          SIM_SWAPS(p, old, x)
#define atomic_compare_exchange_weak(p, old, x)            SIM_SWAPS(p, old, x)
#define pthread_create(handle, attributes, main, argument) sim_create(handle, main, argument)
#define pthread_join(handle, result)                       sim_join(handle)
#define pthread_mutex_lock(mutex)                          ((void)(mutex)) // one caller
#define pthread_mutex_unlock(mutex)                        ((void)(mutex))
#define sched_yield()                                      sim_pause()
#define syscall(number, word, operation, value, ...)       sim_futex(word, operation, value)
#define SPINS                                              sim.spins
#define PAUSE()                                            sim_pause()

#include "cpu/machine/claims.c" // NOLINT: compiled with these in place of what they are named after
#include "cpu/machine/team.c"   // NOLINT
