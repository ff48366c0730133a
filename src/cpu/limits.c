// Measures what memory and arithmetic can give to all threads together.
//
// Read bandwidth is the best of a grid: one lazy loop would make every kernel look good. On one machine a single stream without prefetch
// reads half of what several interleaved streams do.
#include "cpu/limits.h"

#include <stdatomic.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/memory.h"

static const int streams[] = {1, 2, 4, 8, 16};
static const int aheads[] = {0, 1024, 2048, 4096, 8192}; // bytes

enum {
    N_STREAMS = sizeof streams / sizeof *streams,
    N_AHEADS = sizeof aheads / sizeof *aheads,
    N_PATTERNS = N_STREAMS * N_AHEADS,
    STREAM_UNIT = 4096 * 16, // a share that divides evenly whatever the pattern
};

struct run {
    const struct cpu_kernels *kernels;
    double (*loop)(long rounds); // the arithmetic that is measured
    struct team *team;
    char *block;
    size_t share; // bytes; there are as many shares as threads
    int n_streams, ahead;
    long rounds;
    atomic_ullong result; // of the reading, so that it is not in vain
    atomic_int members;   // that took part: a team may get fewer threads than it asked for
    double ops;           // of one member
};

static void touch(void *context, int share)
{
    struct run *run = context;
    for (size_t i = 0; i < run->share; i += 4096)
        run->block[(size_t)share * run->share + i] = (char)i;
}

static void read_share(void *context, int share)
{
    struct run *run = context;
    const uint64_t value =
        run->kernels->read_streams(run->block + (size_t)share * run->share, run->share, run->n_streams, run->ahead);
    atomic_fetch_xor(&run->result, value);
    atomic_fetch_add(&run->members, 1);
}

static void multiply(void *context, int share)
{
    struct run *run = context;
    const double ops = run->loop(run->rounds);
    if (share == 0)
        run->ops = ops;
    atomic_fetch_add(&run->members, 1);
}

static double seconds_of(struct run *run, void (*work)(void *context, int share))
{
    run->members = 0;
    const double start = clock_seconds();
    team_for(run->team, team_size(run->team), work, run);
    return clock_seconds() - start;
}

// The best pattern is found in one pass over the grid, and then repeated with its nearest rivals: the others only cost time.
static double measure_read(struct run *run, double seconds)
{
    const double end = clock_seconds() + seconds;
    double best[N_PATTERNS];
    double fastest = 0;
    for (int i = 0; i < N_PATTERNS; i++)
        best[i] = 0;
    for (bool first = true; first || clock_seconds() < end; first = false)
        for (int i = 0; i < N_PATTERNS; i++) {
            if (!first && (best[i] < 0.9 * fastest || clock_seconds() >= end))
                continue;
            run->n_streams = streams[i / N_AHEADS];
            run->ahead = aheads[i % N_AHEADS];
            const double took = seconds_of(run, read_share), speed = (double)run->share * run->members / took;
            best[i] = speed > best[i] ? speed : best[i];
            fastest = speed > fastest ? speed : fastest;
        }
    return fastest;
}

// Runs are made long enough, about 20 ms, for the fork not to count; the fastest of several tells how long that is, for one alone may
// have been interrupted.
static double measure_loop(struct run *run, double (*loop)(long rounds), double seconds)
{
    run->loop = loop;
    double shortest = 1;
    run->rounds = 100000;
    for (int i = 0; i < 5; i++) {
        const double took = seconds_of(run, multiply);
        shortest = took < shortest ? took : shortest;
    }
    run->rounds = (long)((double)run->rounds * (shortest < 0.02 ? 0.02 / shortest : 1));
    double fastest = 0;
    const double end = clock_seconds() + seconds;
    do {
        const double took = seconds_of(run, multiply), speed = run->ops * run->members / took;
        fastest = speed > fastest ? speed : fastest;
    } while (clock_seconds() < end);
    return fastest;
}

yalm_status limits_measure(struct team *team, const struct cpu_kernels *kernels, double seconds, yalm_limits *limits,
                           yalm_error *error)
{
    const size_t n = (size_t)team_size(team);
    // Several times what last-level caches hold; a short measurement has time for less. And less where memory is short.
    size_t bytes = (size_t)(seconds < 0.5 ? 128 : 512) << 20;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE); // 0 or -1 where it is not known
    if (seconds >= 0.5 && cache > 0 && 4 * (size_t)cache > bytes)
        bytes = 4 * (size_t)cache;
    while (bytes > memory_available() / 4 && bytes > (size_t)64 << 20)
        bytes /= 2;
    struct run run = {.kernels = kernels, .team = team};
    run.share = bytes / n / STREAM_UNIT * STREAM_UNIT;
    if (run.share == 0)
        run.share = STREAM_UNIT;
    run.block = memory_pages(n * run.share);
    if (!run.block)
        return error_set(error, YALM_NO_MEMORY, "measuring the read bandwidth needs %zu MiB", n * run.share >> 20);
    team_for(team, (int)n, touch, &run);
    limits->read_gb_per_s = 1e-9 * measure_read(&run, 0.75 * seconds);
    memory_pages_free(run.block, n * run.share);
    limits->fma_gop_per_s = 1e-9 * measure_loop(&run, kernels->fma_loop, 0.125 * seconds);
    limits->dot_gop_per_s = 1e-9 * measure_loop(&run, kernels->quant->dot_loop, 0.125 * seconds);
    return YALM_OK;
}
