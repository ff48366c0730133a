// Measures what this machine can do: the denominators of every speed that yalm reports.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/machine/reading.h"
#include "cpu/machine/team.h"
#include "yalm_measure.h"

// Read bandwidth of all threads together, the best of a grid of access patterns over a block several times the last-level
// cache, and the peak of float32 multiply-adds. Takes about `seconds`. From 0.5 s on it reads `reader`'s block (reading.h),
// which stays the reader's. A virtual machine may take back freed memory a while later, and be slow meanwhile, just when
// something is timed. Where the reader has none, or is NULL, it is a block for this once.
yalm_status limits_measure(struct team *team, const struct cpu_kernels *kernels, double seconds, struct reader *reader,
                           yalm_limits *limits, yalm_error *error);
