#pragma once
#include "cuda/state.h"

// The backend's each_row().
yalm_status cuda_each_row(void *state, const struct stretch *of_kind, enum row_use use, row_taker *take, void *context,
                          yalm_error *error);
