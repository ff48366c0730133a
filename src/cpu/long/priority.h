// Priority sampling of keys (Duffield, Lund and Thorup, 2007): keys are drawn instead of cut off. Each key has a
// number u of its own, uniform in (0, 1), and a priority w / u, w its weight by approximate scores. The k keys with the largest
// priority are taken. With θ the largest priority that was not taken, key j was taken with probability min(1, w_j / θ). So a
// key that matters is always taken; of many small ones some are, each of which stands for θ / w_j:
//
//     y = Σ_taken f_j e^s_j v_j / Σ_taken f_j e^s_j,  f_j = max(1, θ / w_j),  s exact
//
// Both sums are right in the mean, whatever the approximate scores are worth: a wrong w costs variance, and nothing else.
// Cutting the rest off errs in one direction in all heads and layers at once (docs/attention.md, "the hybrid").
//
// The numbers u are in engine/hybrid.h.
#pragma once
#include "cpu/long/select.h"
#include "engine/hybrid.h"

// lifts (n + PRIORITY_PHASES): by which weights are multiplied, 1 / u, or, logarithmic, what is added to scores, -ln u.
void priority_lifts(float *lifts, int n, bool logarithmic);
// Where a head's lifts begin; `head` counts all heads of all layers.
static inline size_t priority_phase(size_t head)
{
    return head * PRIORITY_APART % PRIORITY_PHASES;
}

// Keeps the k taken of k + 1 candidates, those with the largest priorities, ascending; returns θ.
float priority_take(struct candidates *c);

// bias[i] = ln f of taken candidate i. lifts: of its head, by key number; logarithmic: as above, and θ too.
void priority_biases(float *bias, const struct candidates *c, float threshold, const float *lifts, bool logarithmic);
