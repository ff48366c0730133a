// Rotary position embedding (Su et al., 2021), with the context extensions of docs/format.md.
#pragma once
#include "model/config.h"
#include "model/json.h"

// The member `rope` of an object of the metadata, which errors call `where`. Refuses, by name, what is missing, extra, out of range or contradictory.
yalm_status rope_read(struct rope_config *rope, const struct json_object *parent, const char *where, yalm_error *error);

// inverse_frequency: (head_dim / 2), radians a position. Returns the factor on cos and sin (1 but for yarn).
double rope_frequencies(double *inverse_frequency, const struct rope_config *rope, int head_dim);

// cos, sin: (head_dim / 2) for one position. Angles are formed in double: positions may run into the millions.
void rope_angles(float *cos, float *sin, const double *inverse_frequency, double scale, int head_dim, int64_t position);
