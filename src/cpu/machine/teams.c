#include "cpu/machine/teams.h"

#include <stdlib.h>

struct teams {
    struct team *team;
    struct teams *next;
};

struct team *teams_get(void **teams, int n_threads, yalm_error *error)
{
    for (struct teams *at = *teams; at; at = at->next)
        if (team_size(at->team) == n_threads)
            return at->team;
    struct teams *added = malloc(sizeof *added);
    if (!added) {
        error_set(error, YALM_NO_MEMORY, "out of memory for %d threads", n_threads);
        return NULL;
    }
    *added = (struct teams){team_open(n_threads, false, error), *teams};
    if (!added->team) {
        free(added);
        return NULL;
    }
    *teams = added;
    return added->team;
}

void teams_close(void *teams)
{
    for (struct teams *at = teams, *next; at; at = next) {
        next = at->next;
        team_close(at->team);
        free(at);
    }
}
