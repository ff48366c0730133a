// The cores that this process may run on.
#pragma once
#include <sched.h>

// One hardware thread of each physical core in this thread's affinity mask, at most `most`; returns how many. *mask is the
// affinity mask.
int cores_of(cpu_set_t *mask, int *cores, int most);
