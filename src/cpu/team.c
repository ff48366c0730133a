#include "cpu/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#else
#include <pthread.h>
#endif

#if defined __x86_64__
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

// Members that arrive early spin about as long as a futex's sleep and wake-up costs, then sleep.
enum { SPINS = 2000 };

struct team {
    int n_threads; // asked for
    int n_running; // of the current run: the OpenMP runtime may grant fewer (OMP_THREAD_LIMIT, a nested region)
    // Each on a cache line of its own: the spinning reads must not slow the arrivals.
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic unsigned generation;
    _Alignas(64) _Atomic int sleepers;
};

struct team *team_open(int n_threads, yalm_error *error)
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
    team->n_threads = team->n_running = n_threads;
    return team;
}

void team_close(struct team *team) { free(team); }

int team_size(const struct team *team) { return team->n_threads; }

#ifdef _OPENMP

void team_run(struct team *team, void (*work)(void *context, int thread), void *context)
{
#pragma omp parallel num_threads(team->n_threads)
    {
#pragma omp single
        team->n_running = omp_get_num_threads();
        work(context, omp_get_thread_num());
    }
}

#else // without OpenMP, as ThreadSanitizer wants it: it sees what pthreads do, and not what libgomp does

struct member {
    void (*work)(void *context, int thread);
    void *context;
    int thread;
};

static void *member_run(void *argument)
{
    const struct member *member = argument;
    member->work(member->context, member->thread);
    return NULL;
}

void team_run(struct team *team, void (*work)(void *context, int thread), void *context)
{
    pthread_t threads[TEAM_MAX];
    struct member members[TEAM_MAX];
    team->n_running = team->n_threads;
    for (int i = 1; i < team->n_threads; i++) {
        members[i] = (struct member){work, context, i};
        if (pthread_create(&threads[i], NULL, member_run, &members[i]) != 0)
            abort(); // only in this diagnostic build: the others already wait at a barrier
    }
    work(context, 0);
    for (int i = 1; i < team->n_threads; i++)
        pthread_join(threads[i], NULL);
}

#endif

static void futex(_Atomic unsigned *word, int operation, unsigned value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void team_barrier(struct team *team)
{
    const unsigned generation = atomic_load(&team->generation);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == team->n_running) {
        atomic_store(&team->arrived, 0);
        atomic_store(&team->generation, generation + 1);
        if (atomic_load(&team->sleepers) > 0)
            futex(&team->generation, FUTEX_WAKE, TEAM_MAX);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&team->generation, memory_order_acquire) != generation)
            return;
        PAUSE();
    }
    // The kernel compares the word again before it sleeps, so a release in between is not missed.
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->generation) == generation)
        futex(&team->generation, FUTEX_WAIT, generation);
    atomic_fetch_sub(&team->sleepers, 1);
}

struct span team_share(const struct team *team, int thread, int n, int grain)
{
    const int64_t grains = (n + grain - 1) / grain;
    const int64_t first = grains * thread / team->n_running * grain, last = grains * (thread + 1) / team->n_running * grain;
    return (struct span){first < n ? (int)first : n, last < n ? (int)last : n};
}

// The lowest-numbered hardware thread of `cpu`'s core; `cpu` itself where the system does not say.
static int first_sibling(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (!file)
        return cpu;
    int first = cpu;
    if (fscanf(file, "%d", &first) != 1)
        first = cpu;
    fclose(file);
    return first;
}

// CPUs that the cgroup's quota allows, rounded up; INT32_MAX where there is none.
static int cgroup_quota(void)
{
    double quota = -1, period = 1;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r"); // v2: "max 100000" or "200000 100000"
    if (file) {
        if (fscanf(file, "%lf %lf", &quota, &period) != 2)
            quota = -1;
        fclose(file);
    } else {
        FILE *q = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"), *p = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
        if (!q || !p || fscanf(q, "%lf", &quota) != 1 || fscanf(p, "%lf", &period) != 1)
            quota = -1;
        if (q)
            fclose(q);
        if (p)
            fclose(p);
    }
    if (quota <= 0 || period <= 0)
        return INT32_MAX;
    const int cpus = (int)((quota + period - 1) / period);
    return cpus > 0 ? cpus : 1;
}

int team_default_threads(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return 1;
    bool core_seen[CPU_SETSIZE] = {false};
    int cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask))
            continue;
        const int core = first_sibling(cpu);
        const int slot = core >= 0 && core < CPU_SETSIZE ? core : cpu;
        cores += !core_seen[slot];
        core_seen[slot] = true;
    }
    const int quota = cgroup_quota();
    const int n = cores < quota ? cores : quota;
    return n < 1 ? 1 : n > TEAM_MAX ? TEAM_MAX : n;
}
