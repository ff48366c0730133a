// Reads memory that no cache holds, for a short while again and again: the speed that a shared machine gives from moment to
// moment. Its limit (limits.c) is the best of such moments; a mean over repetitions is comparable with a mean of these.
//
// Units are claimed one by one, as decode claims rows: a thread whose core others took for a while does not keep the rest
// waiting.
#include "cpu/machine/reading.h"

#include <unistd.h>

#include "util/clock.h"
#include "util/memory.h"

static const int streams[] = {1, 2, 4, 8, 16};
static const int aheads[] = {0, 1024, 2048, 4096, 8192}; // bytes

enum { N_AHEADS = sizeof aheads / sizeof *aheads, SEARCH_ROUNDS = 3 };
_Static_assert(N_READ_PATTERNS == sizeof streams / sizeof *streams * N_AHEADS, "the grid is whole");

static const double search_seconds = 0.006; // of one pattern in one round

struct read_pattern read_pattern(int i)
{
    return (struct read_pattern){streams[i / N_AHEADS], aheads[i % N_AHEADS]};
}

size_t last_level_cache(void)
{
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); // 0 or -1 where it is not known
    return bytes > 0 ? (size_t)bytes : 0;
}

static void touch_unit(void *context, int i)
{
    struct reader *r = context;
    for (size_t at = 0; at < r->unit; at += 4096)
        r->block[(size_t)i * r->unit + at] = (char)i;
}

static void read_unit(void *context, int i)
{
    struct reader *r = context;
    if (clock_seconds() >= r->end)
        return;
    const size_t at = (size_t)((r->next + i) % r->n_units);
    atomic_fetch_xor(&r->result,
                     r->kernels->read_streams(r->block + at * r->unit, r->unit, r->pattern.n_streams, r->pattern.ahead));
    atomic_fetch_add(&r->n_read, 1);
}

double reader_slice(struct reader *r, struct team *team, double seconds)
{
    const double start = clock_seconds();
    double bytes = 0;
    r->end = start + seconds;
    do {
        r->n_read = 0;
        team_for(team, r->n_units, read_unit, r);
        r->next = (r->next + r->n_read) % r->n_units;
        bytes += (double)r->n_read * (double)r->unit;
    } while (clock_seconds() < r->end);
    return 1e-9 * bytes / (clock_seconds() - start);
}

// One round over the grid, then more of those that came near the fastest; by their means, since means are what slices tell.
static struct read_pattern fastest_pattern(struct reader *r, struct team *team)
{
    double sum[N_READ_PATTERNS] = {0};
    int best = 0;
    for (int round = 0; round < SEARCH_ROUNDS; round++) {
        const double near = 0.9 * sum[best];
        for (int i = 0; i < N_READ_PATTERNS; i++) {
            if (sum[i] < near)
                continue;
            r->pattern = read_pattern(i);
            sum[i] += reader_slice(r, team, search_seconds);
        }
        for (int i = 0; i < N_READ_PATTERNS; i++)
            best = sum[i] > sum[best] ? i : best;
    }
    return read_pattern(best);
}

bool reader_open(struct reader *r, struct team *team, const struct cpu_kernels *kernels, size_t bytes)
{
    enum { UNITS_OF_A_THREAD = 64, LARGEST = 8 << 20 };
    size_t unit = bytes / UNITS_OF_A_THREAD / (size_t)team_size(team) / READ_UNIT * READ_UNIT;
    unit = unit > LARGEST ? LARGEST : unit < READ_UNIT ? READ_UNIT : unit;
    r->unit = unit;
    r->n_units = (int)(bytes / unit);
    r->kernels = kernels;
    r->block = memory_pages((size_t)r->n_units * unit);
    if (!r->block)
        return false;
    team_for(team, r->n_units, touch_unit, r);
    r->pattern = fastest_pattern(r, team);
    return true;
}

void reader_close(struct reader *r)
{
    memory_pages_free(r->block, (size_t)r->n_units * r->unit);
    r->block = NULL;
}

bool reader_ready(struct reader *r, struct team *team, const struct cpu_kernels *kernels)
{
    if (r->refused)
        return false;
    size_t bytes = (size_t)512 << 20; // as much as the limit is measured with; less would say something else
    if (4 * last_level_cache() > bytes)
        bytes = 4 * last_level_cache();
    const uint64_t available = memory_available(), spare = available > r->reserved ? available - r->reserved : 0;
    const bool room = r->block ? bytes <= spare : bytes <= spare / 4 && reader_open(r, team, kernels, bytes);
    if (!room) {
        reader_close(r);
        r->refused = true;
    }
    return room;
}

double reader_measure(struct reader *r, struct team *team, const struct cpu_kernels *kernels, double seconds)
{
    return reader_ready(r, team, kernels) ? reader_slice(r, team, seconds) : 0;
}
