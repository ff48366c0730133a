// What a team is made of: for team.c, which runs it, and claims.c, by which its members share a step.
#pragma once
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "cpu/machine/team.h"

// The word that says where the team stands: steps since it was opened, grains of the step that have been claimed.
enum { CLAIM_BITS = 20 };

#define ONE_STEP    (UINT64_C(1) << CLAIM_BITS)
#define CLAIMS_MASK (ONE_STEP - 1)

// What is left of a member's own share of a step's grains: the step's number, the first grain, the one after the last. The
// number's low bits suffice: to mistake one step for another a member would have to sleep for days in a claim.
enum { GRAIN_BITS = 14, GRAINS_MAX = (1 << GRAIN_BITS) - 1 };

struct share {
    _Alignas(64) _Atomic uint64_t word;
};

// Finished grains of the shares of a few neighbours. One counter of all would go from core to core as often as there are
// members, each time while the others wait for it.
enum { NEIGHBOURS = 8 };

struct neighbours {
    _Alignas(64) _Atomic int finished;
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
    _Alignas(64) _Atomic int finished; // grains of the current step; a group's are added once all of them are finished
    struct gate steps;                 // counts steps
    struct gate runs;                  // counts runs
    struct job job;
    struct share *shares; // (n_threads)
    struct neighbours groups[(TEAM_MAX + NEIGHBOURS - 1) / NEIGHBOURS];
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

void gate_open(struct gate *gate);

// Returns when gate->count is no longer `seen`.
void gate_wait(struct gate *gate, unsigned seen);
