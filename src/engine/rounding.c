// Rounding of weights for the converter: tools/yalm_convert/grids.py and feedback.py say what is computed, and are the
// reference. Each sum here has its terms in their order there, so both give the same bits.

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "yalm_measure.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF // a product is rounded before it is added, as numpy's are
#endif

enum { GROUP = 32, LANES = 16 };
typedef float lanes[LANES]; // a number of each of so many groups

// Rows of a matrix (GROUP, n), from column `first` on; zeros past its end.
static void load(lanes to[GROUP], const float *x, size_t n, size_t first)
{
    const size_t count = n - first < LANES ? n - first : LANES;
    memset(to, 0, GROUP * sizeof *to);
    for (int i = 0; i < GROUP; i++)
        memcpy(to[i], x + (size_t)i * n + first, count * sizeof(float));
}

static void invert(lanes inverse, const lanes scale)
{
    for (int l = 0; l < LANES; l++)
        inverse[l] = fabsf(scale[l]) >= 0x1p-126f ? 1 / scale[l] : 0;
}

// The integers nearest to x by the scales' inverses. A loop of its own looks up, which is no vector operation.
static inline void nearest(lanes q, const yalm_grid *grid, const lanes x, const lanes inverse)
{
    if (grid->nearest) {
        int at[LANES];
        for (int l = 0; l < LANES; l++) {
            float place = x[l] * (2 * inverse[l]) + 64;
            place = place > 0 ? place : 0;
            at[l] = (int)(place < 127 ? place : 127);
        }
        for (int l = 0; l < LANES; l++)
            q[l] = grid->nearest[at[l]];
        return;
    }
    for (int l = 0; l < LANES; l++) {
        const float whole = rintf(x[l] * inverse[l]), least = whole > grid->least ? whole : grid->least;
        q[l] = least < grid->most ? least : grid->most;
    }
}

// The best scales for the integers that `scale` gives, and the squared errors that they save against scales of 0.
static void improve(lanes best, lanes gain, const yalm_grid *grid, const lanes *x, const lanes *weights, const lanes scale)
{
    lanes inverse, q, xq = {0}, qq = {0};
    invert(inverse, scale);
    for (int i = 0; i < GROUP; i++) {
        nearest(q, grid, x[i], inverse);
        for (int l = 0; weights && l < LANES; l++) {
            xq[l] += x[i][l] * weights[i][l] * q[l];
            qq[l] += q[l] * (q[l] * weights[i][l]);
        }
        for (int l = 0; !weights && l < LANES; l++) {
            xq[l] += x[i][l] * q[l];
            qq[l] += q[l] * q[l];
        }
    }
    for (int l = 0; l < LANES; l++) {
        best[l] = qq[l] > 0 ? xq[l] / qq[l] : 0;
        gain[l] = best[l] * xq[l];
    }
}

static void search(lanes best, const yalm_grid *grid, const lanes *x, const lanes *weights)
{
    lanes extreme, least, scale, found, gain, most_gain;
    memcpy(extreme, x[0], sizeof extreme);
    memcpy(least, x[0], sizeof least);
    for (int i = 1; i < GROUP; i++)
        for (int l = 0; l < LANES; l++) {
            extreme[l] = x[i][l] > extreme[l] ? x[i][l] : extreme[l];
            least[l] = x[i][l] < least[l] ? x[i][l] : least[l];
        }
    for (int l = 0; l < LANES; l++) {
        extreme[l] = extreme[l] >= -least[l] ? extreme[l] : least[l];
        best[l] = 0;
        most_gain[l] = -1;
    }
    for (int t = 0; t < grid->n_targets + grid->rounds; t++) {
        for (int l = 0; l < LANES; l++)
            scale[l] = t < grid->n_targets ? extreme[l] / grid->targets[t] : best[l];
        improve(found, gain, grid, x, weights, scale);
        for (int l = 0; l < LANES; l++) {
            const bool better = gain[l] > most_gain[l];
            best[l] = better ? found[l] : best[l];
            most_gain[l] = better ? gain[l] : most_gain[l];
        }
    }
}

void yalm_search_scales(float *scales, const yalm_grid *grid, const float *x, const float *weights, size_t n)
{
    for (size_t first = 0; first < n; first += LANES) {
        lanes wanted[GROUP], by[GROUP], best;
        load(wanted, x, n, first);
        if (weights)
            load(by, weights, n, first);
        search(best, grid, (const lanes *)wanted, weights ? (const lanes *)by : NULL);
        memcpy(scales + first, best, (n - first < LANES ? n - first : LANES) * sizeof(float));
    }
}

void yalm_round_by_scales(int8_t *quants, float *errors, const yalm_grid *grid, const float *x, const float *wanted,
                          const float *scales, const float *feedback, size_t n)
{
    for (size_t first = 0; first < n; first += LANES) {
        const int count = n - first < LANES ? (int)(n - first) : LANES;
        lanes rounded[GROUP], left[GROUP], exact[GROUP], scale = {0}, inverse, q;
        load(rounded, wanted, n, first);
        if (feedback)
            load(exact, x, n, first);
        memcpy(scale, scales + first, (size_t)count * sizeof(float));
        invert(inverse, scale);
        for (int i = 0; i < GROUP; i++) {
            const size_t at = (size_t)i * n + first;
            for (int earlier = 0; feedback && earlier < i; earlier++)
                for (int l = 0; l < LANES; l++)
                    rounded[i][l] += feedback[earlier * GROUP + i] * left[earlier][l];
            nearest(q, grid, rounded[i], inverse);
            for (int l = 0; l < count; l++)
                quants[at + l] = (int8_t)q[l];
            if (!feedback)
                continue;
            for (int l = 0; l < LANES; l++)
                left[i][l] = exact[i][l] - q[l] * scale[l];
            memcpy(errors + at, left[i], (size_t)count * sizeof(float));
        }
    }
}
