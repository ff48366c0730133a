// A fixed team of threads that runs one function at a time, all members together, with a barrier inside: an evaluation is
// one fork, and its steps are separated by barriers that spin briefly and then sleep, so that waiting never burns a core that
// somebody else could use.
#pragma once
#include "util/error.h"

struct team;

enum { TEAM_MAX = 1024 }; // threads

// NULL where memory or threads cannot be had.
struct team *team_open(int n_threads, yalm_error *error);
void team_close(struct team *team); // NULL is welcome
int team_size(const struct team *team);

// Calls work(context, thread) for thread = 0 … n_threads - 1 at once; returns when all have returned.
void team_run(struct team *team, void (*work)(void *context, int thread), void *context);

// Returns when every member of the running team has called it.
void team_barrier(struct team *team);

// Member `thread`'s part of n items, in whole grains (but the last): [first, last).
struct span {
    int first, last;
};
struct span team_share(const struct team *team, int thread, int n, int grain);

// Physical cores in the affinity mask, at most the cgroup's CPU quota (rounded up), at least 1.
int team_default_threads(void);
