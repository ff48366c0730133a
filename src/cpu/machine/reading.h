// Plain reading of memory: the patterns that measure it, and slices of it between other work.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/machine/team.h"
#include "util/atomic.h"

// As many interleaved streams, each fetched so many bytes ahead (0: not at all).
struct read_pattern {
    int n_streams, ahead;
};
enum {
    N_READ_PATTERNS = 25,
    READ_UNIT = 4096 * 16, // multiples of it can be read by every pattern
};
struct read_pattern read_pattern(int i); // 0 <= i < N_READ_PATTERNS

size_t last_level_cache(void); // bytes; 0: not known

// A block that the caches hold no relevant part of, and the pattern that reads it fastest. All zeros but `reserved` before the
// first slice.
struct reader {
    uint64_t reserved; // bytes that count as available and are not: the weights' pages
    bool refused;      // memory was short once
    char *block;       // (n_units, unit), owned; NULL: not taken yet
    size_t unit;       // bytes that a thread reads between two looks at the clock
    int n_units;
    struct read_pattern pattern;

    const struct cpu_kernels *kernels; // of the slice under way
    int next;                          // the unit to go on with: as much is read between two readings of a unit as there is
    double end;
    atomic_int n_read;
    atomic_ullong result; // of the reading, so that it is not in vain
};

// Plain reading of all threads together for about `seconds`: GB/s, all bytes by all the time. The first call takes memory and
// chooses the pattern, which is some 0.5 s more. 0 where memory is short; then and ever after, and the block is given back.
double reader_measure(struct reader *reader, struct team *team, const struct cpu_kernels *kernels, double seconds);
// Takes the block, where that has not been done: false where memory is short, as above.
bool reader_ready(struct reader *reader, struct team *team, const struct cpu_kernels *kernels);
void reader_close(struct reader *reader);

// The parts of that: takes about `bytes` and finds the pattern; false where the system refuses. Reads.
bool reader_open(struct reader *reader, struct team *team, const struct cpu_kernels *kernels, size_t bytes);
double reader_slice(struct reader *reader, struct team *team, double seconds);
