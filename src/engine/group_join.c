// The group that a launcher, mpirun or srun, started this process in.

#include <stdlib.h>
#include <time.h>

#include "engine/group.h"
#include "engine/library.h"
#include "util/error.h"

// Whether the launcher started more than one: the environment says so, in the words of Open MPI, of MPICH and its kin, and of
// PMIx. MPI itself could say, but is not to be looked for by a program that runs alone.
static bool was_launched(void)
{
    static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (int i = 0; i < 2; i++) {
        const char *n = getenv(counts[i]);
        if (n)
            return strtol(n, NULL, 10) > 1;
    }
    return getenv("PMIX_RANK") != NULL;
}

static yalm_status join(struct transport *transport, yalm_error *error)
{
    static const struct library mpi = {
        .name = "libyalm-mpi.so",
        .what = "several ranks",
        .part = "the MPI part",
        .env = "YALM_MPI_LIBRARY",
        .made_by = "`make mpi` builds it where libopenmpi-dev or libmpich-dev is installed",
        .symbol = "yalm_mpi_join",
    };
    yalm_status (*open)(struct transport *, yalm_error *) = NULL;
    *(void **)&open = library_find(&mpi, NULL, error);
    return open ? open(transport, error) : YALM_FAILED;
}

yalm_group *group_make(const struct transport *transport)
{
    yalm_group *group = calloc(1, sizeof *group);
    if (group) {
        group->transport = *transport;
        group->patience = GROUP_PATIENCE;
        pthread_mutex_init(&group->lock, NULL);
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); // a step of the wall clock must not hold the pulse up
        pthread_cond_init(&group->end_pulse, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    return group;
}

yalm_status yalm_group_join(yalm_group **group, yalm_error *error)
{
    *group = NULL;
    if (!was_launched())
        return YALM_OK;
    struct transport transport = {0};
    const yalm_status status = join(&transport, error);
    if (status != YALM_OK)
        return status;
    if (transport.n == 1 || transport.n > GROUP_MOST) {
        transport.leave(transport.context, false);
        return transport.n == 1 ? YALM_OK
                                : error_set(error, YALM_USAGE, "ranks: found %d, expected at most %d", transport.n, GROUP_MOST);
    }
    *group = group_make(&transport);
    return *group ? YALM_OK : error_set(error, YALM_NO_MEMORY, "out of memory for a group of ranks");
}

int yalm_group_rank(const yalm_group *group)
{
    return group->transport.rank;
}

int yalm_group_size(const yalm_group *group)
{
    return group->transport.n;
}

bool yalm_group_speaks(const yalm_group *group)
{
    return group->transport.rank == (group->lost && group->lost_rank == 0);
}

void yalm_group_use_fp16(yalm_group *group, bool on)
{
    group->fp16 = on;
}

yalm_traffic yalm_group_traffic(const yalm_group *group)
{
    return group->traffic;
}

void yalm_group_leave(yalm_group *group)
{
    if (!group)
        return;
    group_end_pulse(group);
    if (group->transport.rank == 0 && !group->lost)
        group_tell(group, &(struct command){.kind = COMMAND_END}, NULL, 0, NULL);
    group->transport.leave(group->transport.context, group->lost);
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->end_pulse);
    if (group->has_heard)
        free(group->heard.body);
    free(group->parcels);
    free(group);
}
