// Keys drawn with chances instead of a share cut off (priority sampling: Duffield, Lund and Thorup, 2007). Each key has a number u of its own, even in
// (0, 1), and a priority w / u, w its weight by approximate scores; the k keys with the largest are taken. With θ the largest priority that was not, key j was
// taken with the chance min(1, w_j / θ): so a key that matters is always taken, and of many small ones some are, each of which stands for θ / w_j:
//
//     y = Σ_taken f_j e^s_j v_j / Σ_taken f_j e^s_j,  f_j = max(1, θ / w_j),  s exact
//
// Both sums are right in the mean, whatever the approximate scores are worth: a wrong w costs variance, and nothing else. Cutting the rest off errs in one
// direction in all heads and layers at once (docs/attention.md, "the hybrid").
//
// The numbers u are in engine/hybrid.h.
#pragma once
#include "cpu/long/select.h"
#include "engine/hybrid.h"

// lifts (n + CHANCE_PHASES): by which weights are multiplied, 1 / u, or, logarithmic, what is added to scores, -ln u.
void chance_lifts(float *lifts, int n, bool logarithmic);
// Where those of a head begin, of all heads of all layers counted.
static inline size_t chance_phase(size_t head)
{
    return head * CHANCE_APART % CHANCE_PHASES;
}

// Of candidates by priority (k + 1 of them, the largest), the k that are taken stay, ascending; returns θ.
float chance_take(struct candidates *c);

// bias[i] = ln f of taken candidate i. lifts: of its head, by key number; logarithmic: as above, and θ too.
void chance_biases(float *bias, const struct candidates *c, float threshold, const float *lifts, bool logarithmic);
