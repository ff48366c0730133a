// What carries bytes between the ranks of a group (group.h): MPI (src/mpi), in a shared object of its own; in tests, threads
// of one process.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "yalm.h"

struct parcel { // to a rank, or from it
    int rank;
    void *bytes;
    size_t length; // at most 1 GiB
};

struct exchanged {
    int lost;  // the rank whose parcel did not come or could not be brought; -1: all did
    bool late; // it did not come in time; else the rank's end is known
};

struct transport {
    int rank, n; // this one, and how many there are
    void *context;
    // "node3": where a rank runs.
    const char *(*name)(void *context, int rank);
    // Brings them all, at most one to each rank and one from each; those from one rank to another arrive in the order in
    // which they were given. Waits for at most `patience` seconds, INFINITY for ever. Called by one thread at a time.
    struct exchanged (*exchange)(void *context, const struct parcel *out, int n_out, const struct parcel *in, int n_in,
                                 double patience);
    // lost: another rank has ended; nothing more can be agreed upon with it.
    void (*leave)(void *context, bool lost);
};
