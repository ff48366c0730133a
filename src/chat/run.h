// One rendering: its memory, its limits, and its first error. After an error every evaluation returns undefined at once; the
// caller asks failed().
#pragma once
#include "chat/arena.h"
#include "util/error.h"

struct run {
    struct arena arena;
    long steps_left; // evaluations of a node, and other work that grows with the input
    int depth;       // of nested evaluations
    int line;        // of the template, where the run is
    yalm_status status;
    yalm_error *error; // NULL is welcome
};

enum {
    RUN_MAX_DEPTH = 800,   // nested evaluations
    RUN_MAX_NESTING = 100, // of lists in lists, where a value is printed, compared or read
    RUN_MAX_STEPS = 20 * 1000 * 1000,
    RUN_MAX_MEMORY = 256 << 20,
};

static inline bool failed(const struct run *run)
{
    return run->status != YALM_OK;
}
// Ends the run with an error; only the first counts. The message begins with "chat template, line N: ", or "chat template: "
// before the first line. Returns false.
bool run_fail(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Takes bytes from the arena. NULL, with the run failed, where there are no more.
void *run_take(struct run *run, size_t bytes);
// Counts work. False, with the run failed, after too much of it.
bool run_step(struct run *run, size_t steps);
// Counts one pass over so many bytes of a string.
bool run_pass(struct run *run, size_t bytes);
