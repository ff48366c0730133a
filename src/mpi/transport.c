// The transport of a group of ranks (engine/transport.h) by MPI: libyalm-mpi.so, which the engine opens where a launcher has
// started several processes.
//
// Messages go from rank to rank, without collective calls: so it is known whose has not come. All waiting is done here, by
// asking again and again, since MPI's own waiting knows no end.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/transport.h"
#include "util/clock.h"
#include "util/error.h"

struct process {
    char name[MPI_MAX_PROCESSOR_NAME];
};

struct mpi {
    MPI_Comm ranks;
    int n;
    struct process *places; // (n)
    MPI_Request *requests;  // (2 n): what comes, then what goes
    MPI_Status *statuses;   // (2 n)
};

static const char *name(void *context, int rank)
{
    return ((const struct mpi *)context)->places[rank].name;
}

// Waits between two questions: not at all at first, since a sum's delay counts; after some time it sleeps. A thread that only
// yields a core that others want gets it back after milliseconds; one that slept is let in at once.
static void wait_a_little(double waited)
{
    if (waited > 0.0002)
        nanosleep(&(struct timespec){.tv_nsec = waited > 1 ? 1000000 : waited > 0.05 ? 100000 : 10000}, NULL);
}

static int rank_of(const struct parcel *in, int n_in, const struct parcel *out, int request)
{
    return request < n_in ? in[request].rank : out[request - n_in].rank;
}

// The first of n requests that failed or is not done.
static struct exchanged lost_one(struct mpi *m, const struct parcel *in, int n_in, const struct parcel *out, int n, bool late)
{
    for (int i = 0; i < n; i++) {
        int done = 1;
        const bool failed = MPI_Test(&m->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        if (failed || !done)
            return (struct exchanged){rank_of(in, n_in, out, i), late && !failed};
    }
    return (struct exchanged){-1, false};
}

static struct exchanged wait_for(struct mpi *m, const struct parcel *in, int n_in, const struct parcel *out, int n,
                                 double patience)
{
    const double begin = clock_seconds();
    for (;;) {
        int done = 0;
        if (MPI_Testall(n, m->requests, &done, m->statuses) != MPI_SUCCESS) {
            for (int i = 0; i < n; i++)
                if (m->statuses[i].MPI_ERROR != MPI_SUCCESS && m->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
                    return (struct exchanged){rank_of(in, n_in, out, i), false};
            return lost_one(m, in, n_in, out, n, false);
        }
        if (done)
            return (struct exchanged){-1, false};
        const double waited = clock_seconds() - begin;
        if (waited > patience) {
            const struct exchanged lost = lost_one(m, in, n_in, out, n, true);
            return lost;
        }
        wait_a_little(waited);
    }
}

static struct exchanged exchange(void *context, const struct parcel *out, int n_out, const struct parcel *in, int n_in,
                                 double patience)
{
    struct mpi *m = context;
    enum { TAG = 0 };
    for (int i = 0; i < n_in; i++)
        if (MPI_Irecv(in[i].bytes, (int)in[i].length, MPI_BYTE, in[i].rank, TAG, m->ranks, &m->requests[i]) != MPI_SUCCESS)
            return (struct exchanged){in[i].rank, false};
    for (int i = 0; i < n_out; i++)
        if (MPI_Isend(out[i].bytes, (int)out[i].length, MPI_BYTE, out[i].rank, TAG, m->ranks, &m->requests[n_in + i]) !=
            MPI_SUCCESS)
            return (struct exchanged){out[i].rank, false};
    return wait_for(m, in, n_in, out, n_in + n_out, patience);
}

static void leave(void *context, bool lost)
{
    struct mpi *m = context;
    if (!lost) { // which waits for the others
        MPI_Comm_free(&m->ranks);
        MPI_Finalize();
    }
    free(m->places);
    free(m->requests);
    free(m->statuses);
    free(m);
}

static bool learn_names(struct mpi *m)
{
    struct process mine = {{0}};
    int length;
    m->places = calloc((size_t)m->n, sizeof *m->places);
    m->requests = calloc((size_t)m->n * 2, sizeof(MPI_Request));
    m->statuses = calloc((size_t)m->n * 2, sizeof *m->statuses);
    return m->places && m->requests && m->statuses && MPI_Get_processor_name(mine.name, &length) == MPI_SUCCESS &&
           MPI_Allgather(&mine, sizeof mine, MPI_BYTE, m->places, sizeof mine, MPI_BYTE, m->ranks) == MPI_SUCCESS;
}

YALM_API yalm_status yalm_mpi_join(struct transport *transport, yalm_error *error);

yalm_status yalm_mpi_join(struct transport *transport, yalm_error *error)
{
    // The member of a team that comes to a sum first computes it.
    int threads = MPI_THREAD_SINGLE;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS || threads < MPI_THREAD_SERIALIZED)
        return error_set(error, YALM_FAILED,
                         "several ranks: this MPI cannot be called by several threads of a process, one at a time");
    struct mpi *m = calloc(1, sizeof *m);
    if (!m || MPI_Comm_dup(MPI_COMM_WORLD, &m->ranks) != MPI_SUCCESS) {
        free(m);
        return error_set(error, YALM_FAILED, "several ranks: MPI does not start");
    }
    MPI_Comm_set_errhandler(m->ranks, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->ranks, &transport->rank);
    MPI_Comm_size(m->ranks, &m->n);
    if (!learn_names(m)) {
        leave(m, true);
        return error_set(error, YALM_FAILED, "several ranks: MPI fails in its first exchange");
    }
    transport->n = m->n;
    transport->context = m;
    transport->name = name;
    transport->exchange = exchange;
    transport->leave = leave;
    return YALM_OK;
}
