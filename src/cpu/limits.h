// What this machine can do: the denominators of every speed that yalm reports.
#pragma once
#include "cpu/kernels.h"
#include "cpu/team.h"

// Read bandwidth of all threads together, the best of a grid of access patterns over a block several times the last-level cache,
// and the peak of float32 multiply-adds. Takes about `seconds`.
yalm_status limits_measure(struct team *team, const struct cpu_kernels *kernels, double seconds, yalm_limits *limits,
                           yalm_error *error);
