// Measures what memory and arithmetic can give to all threads together.
//
// Read bandwidth is the best of a grid: one lazy loop would make every kernel look good. On one machine a single stream without
// prefetch reads half of what several interleaved streams do.
#include "cpu/machine/limits.h"

#include <stdatomic.h>

#include "cpu/machine/isa.h"
#include "cpu/machine/reading.h"
#include "util/clock.h"
#include "util/memory.h"

static const double long_seconds = 0.5;       // seconds: enough for a block that no cache holds much of
static const size_t largest_slice = 16 << 20; // bytes: some milliseconds

struct measurement {
    const struct cpu_kernels *kernels;
    double (*loop)(long rounds); // the arithmetic that is measured
    struct team *team;
    char *block;
    size_t share; // bytes; there are as many shares as threads
    struct read_pattern pattern;
    size_t at, bytes; // what of each share is read
    long rounds;
    atomic_ullong result; // of the reading, so that it is not in vain
    atomic_int members;   // that took part: a team may get fewer threads than it asked for
    double ops;           // of one member
};

static void touch(void *context, int share)
{
    struct measurement *run = context;
    for (size_t i = 0; i < run->share; i += 4096)
        run->block[(size_t)share * run->share + i] = (char)i;
}

static void read_share(void *context, int share)
{
    struct measurement *run = context;
    const uint64_t value = run->kernels->read_streams(run->block + (size_t)share * run->share + run->at, run->bytes,
                                                      run->pattern.n_streams, run->pattern.ahead);
    atomic_fetch_xor(&run->result, value);
    atomic_fetch_add(&run->members, 1);
}

static void multiply(void *context, int share)
{
    struct measurement *run = context;
    const double ops = run->loop(run->rounds);
    if (share == 0)
        run->ops = ops;
    atomic_fetch_add(&run->members, 1);
}

static double seconds_of(struct measurement *run, void (*work)(void *context, int share))
{
    run->members = 0;
    const double start = clock_seconds();
    team_for(run->team, team_size(run->team), work, run);
    return clock_seconds() - start;
}

// Bytes a second.
static double read_by(struct measurement *run, int pattern, size_t at, size_t bytes)
{
    run->pattern = read_pattern(pattern);
    run->at = at;
    run->bytes = bytes;
    const double took = seconds_of(run, read_share);
    return (double)bytes * run->members / took;
}

// A pass over the grid, of a slice for each pattern, tells which come near the best one; these read the whole block.
static double measure_read(struct measurement *run, double seconds)
{
    const size_t slice = run->share < largest_slice ? run->share : largest_slice;
    const double end = clock_seconds() + seconds;
    double by_slice[N_READ_PATTERNS], most = 0, fastest = 0;
    for (int i = 0; i < N_READ_PATTERNS; i++) { // slice after slice: what a cache may hold is not read
        by_slice[i] = read_by(run, i, (size_t)i * slice % (run->share - slice + READ_UNIT), slice);
        most = by_slice[i] > most ? by_slice[i] : most;
    }
    do
        for (int i = 0; i < N_READ_PATTERNS && (fastest == 0 || clock_seconds() < end); i++)
            if (by_slice[i] >= 0.9 * most) {
                const double speed = read_by(run, i, 0, run->share);
                fastest = speed > fastest ? speed : fastest;
            }
    while (clock_seconds() < end);
    return fastest;
}

// Runs are made long enough, about 20 ms, for the fork not to count; the fastest of several tells how long that is, for one
// alone may have been interrupted.
static double measure_loop(struct measurement *run, double (*loop)(long rounds), double seconds)
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

// Of a block for this once: several times what last-level caches hold; a short measurement has time for less. And less where
// memory is short.
static size_t block_bytes(double seconds)
{
    size_t bytes = (size_t)(seconds < long_seconds ? 128 : 512) << 20;
    if (seconds >= long_seconds && 4 * last_level_cache() > bytes)
        bytes = 4 * last_level_cache();
    while (bytes > memory_available() / 4 && bytes > (size_t)64 << 20)
        bytes /= 2;
    return bytes;
}

yalm_status limits_measure(struct team *team, const struct cpu_kernels *kernels, double seconds, struct reader *reader,
                           yalm_limits *limits, yalm_error *error)
{
    const size_t n = (size_t)team_size(team);
    const bool readers = reader && seconds >= long_seconds && reader_ready(reader, team, kernels);
    const size_t bytes = readers ? (size_t)reader->n_units * reader->unit : block_bytes(seconds);
    struct measurement run = {.kernels = kernels, .team = team};
    run.share = bytes / n / READ_UNIT * READ_UNIT;
    if (run.share == 0)
        run.share = READ_UNIT;
    run.block = readers ? reader->block : memory_pages(n * run.share);
    if (!run.block)
        return error_set(error, YALM_NO_MEMORY, "measuring the read bandwidth needs %zu MiB", n * run.share >> 20);
    if (!readers)
        team_for(team, (int)n, touch, &run);
    limits->read_gb_per_s = 1e-9 * measure_read(&run, 0.75 * seconds);
    if (!readers)
        memory_pages_free(run.block, n * run.share);
    limits->fma_gop_per_s = 1e-9 * measure_loop(&run, kernels->fma_loop, 0.125 * seconds);
    const struct matmul16 *tiles = matmul16_of(kernels, MATMUL16_TILES_BYTES);
    limits->dot_gop_per_s = 1e-9 * measure_loop(&run, tiles ? tiles->fma_loop : kernels->quant->dot_loop, 0.125 * seconds);
    return YALM_OK;
}
