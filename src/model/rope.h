// Rotary position embedding (Su et al., 2021), with the context extensions of docs/format.md.
#pragma once
#include "model/config.h"

// inverse_frequency: (head_dim / 2), radians a position. Returns the factor on cos and sin (1 but for yarn).
double rope_frequencies(double *inverse_frequency, const struct rope_config *rope, int head_dim);

// cos, sin: (head_dim / 2) for one position. Angles are formed in double: positions may run into the millions.
void rope_angles(float *cos, float *sin, const double *inverse_frequency, double scale, int head_dim, int64_t position);
