// Rotary position embedding (Su et al., 2021), with the context extensions of docs/format.md.
#pragma once
#include "model/config.h"
#include "model/json.h"

// The member `rope` of an object of the metadata, which errors call `where`. Refuses, by name, what is missing, extra, out of
// range or contradictory.
yalm_status rope_read(struct rope_config *rope, const struct json_object *parent, const char *where, int head_dim,
                      yalm_error *error);

// Whether both rotate alike.
bool rope_equal(const struct rope_config *a, const struct rope_config *b);

// inverse_frequency: (head_dim / 2), radians a position; 0 of components that do not rotate. Returns the factor on cos and sin
// of the others (1 but for yarn and longrope). context: positions that a query looks back on, by which longrope chooses its
// factors.
double rope_frequencies(double *inverse_frequency, const struct rope_config *rope, int head_dim, int context);

// cos, sin: (head_dim / 2) for one position. Angles are formed in double: positions may run into the millions.
void rope_angles(float *cos, float *sin, const double *inverse_frequency, double scale, int head_dim, int64_t position);
