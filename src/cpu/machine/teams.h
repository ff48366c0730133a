// Teams that all sessions on a model share, so that they take turns instead of fighting for cores.
#pragma once
#include "cpu/machine/team.h"

// The team of `n_threads` in the list *teams, opened and added where there is none yet; NULL as team_open() does. Not for
// several threads at once.
struct team *teams_get(void **teams, int n_threads, yalm_error *error);
void teams_close(void *teams);
