// Tokens of several sessions on one model, evaluated together: the weights are read once, each session's keys and values by
// itself.
#pragma once
#include "cpu/state.h"

// See struct backend.
yalm_status cpu_evaluate_together(void *const *states, const struct batch *batches, int n, const struct backend_plan *plan,
                                  yalm_error *error);
