// A team of threads. It goes through a sequence of steps together; each step is a number of items to share.
//
// Every member runs the same function. Where it says
//
//     while (team_claim(me, n_items, grain, &span))
//         for (int i = span.first; i < span.last; i++) …
//
// the members claim grains of that step's items until none is left, and go on when the last of them is finished. So steps
// follow each other as if there were barriers between them, but nobody waits for a member that holds no claim. If the system
// gives a member's core to another process, the others do its share; when it returns it skips what is over. Those who wait for
// a claimed grain spin briefly, then sleep.
//
// A member may be late by whole steps, even by whole runs. Hence two rules for such functions. Outside a claim they touch only
// their own variables, the arguments (each member has its own copy), and what never changes while the team exists. Every member
// goes through the same steps, whatever it reads. How many items a step has may depend on earlier steps, since it matters only
// while the step lasts; whether there is a step may not.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

struct team;

enum { TEAM_MAX = 1024 }; // threads

// NULL where memory or threads cannot be had. Where `pin`, each member stays on a core of its own, as far as the affinity mask
// has so many; the caller's thread too, until the team is closed. (On an OpenMP runtime that is OMP_PROC_BIND's business.) The
// members are threads of our own; built with `make VARIANT=openmp`, those of the OpenMP runtime, for programs that have one
// already.
struct team *team_open(int n_threads, bool pin, yalm_error *error);
void team_close(struct team *team); // NULL is welcome
int team_size(const struct team *team);
int team_core(const struct team *team, int thread); // the hardware thread that a member stays on; -1: it is not pinned

// One thread's place in a run.
struct member {
    struct team *team;
    int thread;    // 0 … n_members - 1: which scratch is its own
    int n_members; // that take part in the run
    uint64_t step; // as in the team's word
    int holds;     // grains that it has not yet reported as finished
    int holds_of;  // of this member's share
    int known;     // shares from its own on that are empty in this step
    int apart;     // the run's own affair: see cpu/matmul.h
    struct {       // memory that it will read in a later step, to be fetched into its L2 cache while it waits; bytes 0: none
        const char *at;
        ptrdiff_t bytes;
    } ahead;
};

enum { TEAM_ARGUMENT_BYTES = 320 };

// Calls work(member, arguments) on the first n_threads members. When it returns all the run's steps are over. `arguments` are
// `bytes` bytes, of which every member gets a copy. Callers on several threads take turns.
void team_run(struct team *team, int n_threads, void (*work)(struct member *me, const void *arguments), const void *arguments,
              size_t bytes);

// Returns when no member will read any more what earlier runs were given. Before that it must not be freed.
void team_forget(struct team *team);

// The next grains of the current step's n items: true, and [span->first, span->last); or false when the step is over. Spans
// begin at multiples of `grain`.
struct grains {
    int first, last;
};
bool team_claim(struct member *me, int n, int grain, struct grains *span);

// The same for steps that read much memory: each member has a share of its own, consecutive items, so that it reads on where it
// stopped. A claim takes half of what is left of it, at least a grain; when nothing is, a part of what another has left, from
// the back.
bool team_claim_share(struct member *me, int n, int grain, struct grains *span);

// The same, a grain at a time: for steps of much work, whose items a member mostly finds where it left them. Where steps are
// shared out alike, what one writes is what the same member reads in the next, and does not cross from one core's caches to
// another's.
bool team_claim_near(struct member *me, int n, int grain, struct grains *span);

// The first item of the member's own share.
int team_share(const struct member *me, int n, int grain);

// Whether n items can be had by all members alike, two or more by each: then nobody waits much for the slowest.
bool team_shares_evenly(const struct member *me, int n);

// A run of a single step, of all members: item(context, i) for 0 <= i < n, shared out one by one.
void team_for(struct team *team, int n, void (*item)(void *context, int i), void *context);

// Physical cores in the affinity mask, at most the control groups' CPU quota (rounded up), at least 1.
int team_default_threads(void);
