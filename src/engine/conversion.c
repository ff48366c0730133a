// What the converter calls to be fast. tools/yalm_convert/grids.py, and split_nibbles() in native.py, define it. Sums have
// their order of terms, so bits are the same.

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "yalm_measure.h"

#ifdef __FAST_MATH__
#error "conversion.c rounds otherwise with -ffast-math or -Ofast: build without these"
#endif

enum { GROUP = 32, LANES = 16 };
#define TO_WHOLE 0x1.8p23f  // added and subtracted again, it rounds a small number as rintf() does, without a call
typedef float lanes[LANES]; // a number for each of LANES groups

// `count` groups from `first` on, of n: rows (n, GROUP), or columns (GROUP, n). Zeros past the last.
static void load(lanes to[GROUP], const float *x, bool rows, size_t n, size_t first, size_t count)
{
    memset(to, 0, GROUP * sizeof *to);
    for (size_t l = 0; rows && l < count; l++)
        for (size_t i = 0; i < GROUP; i++)
            to[i][l] = x[(first + l) * GROUP + i];
    for (size_t i = 0; !rows && i < GROUP; i++)
        memcpy(to[i], x + i * n + first, count * sizeof(float));
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
        const float wanted = x[l] * inverse[l], least = wanted > grid->least ? wanted : grid->least;
        q[l] = ((least < grid->most ? least : grid->most) + TO_WHOLE) - TO_WHOLE;
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
    lanes extreme, least, scale, found, gain, most_gain, sum = {0};
    memcpy(extreme, x[0], sizeof extreme);
    memcpy(least, x[0], sizeof least);
    for (int i = 0; i < GROUP; i++)
        for (int l = 0; l < LANES; l++) {
            extreme[l] = x[i][l] > extreme[l] ? x[i][l] : extreme[l];
            least[l] = x[i][l] < least[l] ? x[i][l] : least[l];
            sum[l] += x[i][l];
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
    for (int l = 0; l < LANES; l++)
        best[l] = sum[l] * 0 == 0 ? best[l] : NAN;
}

bool yalm_search_scales(float *scales, const yalm_grid *grid, const float *x, const float *weights, bool rows, size_t n)
{
    if (grid->size != sizeof *grid)
        return false;
    for (size_t first = 0; first < n; first += LANES) {
        const size_t count = n - first < LANES ? n - first : LANES;
        lanes wanted[GROUP], by[GROUP], best;
        load(wanted, x, rows, n, first, count);
        if (weights)
            load(by, weights, rows, n, first, count);
        search(best, grid, (const lanes *)wanted, weights ? (const lanes *)by : NULL);
        memcpy(scales + first, best, count * sizeof(float));
    }
    return true;
}

bool yalm_round_groups(int8_t *quants, float *errors, const yalm_grid *grid, const float *wanted, const float *scales,
                       const float *x, const float *feedback, size_t n)
{
    if (grid->size != sizeof *grid)
        return false;
    for (size_t first = 0; first < n; first += LANES) {
        const size_t count = n - first < LANES ? n - first : LANES;
        lanes moved[GROUP], exact[GROUP], left[GROUP], inverse, q, scale = {0};
        load(moved, wanted, !feedback, n, first, count);
        if (feedback)
            load(exact, x, false, n, first, count);
        memcpy(scale, scales + first, count * sizeof(float));
        invert(inverse, scale);
        for (size_t i = 0; i < GROUP; i++) {
            int8_t *to = feedback ? quants + i * n + first : quants + first * GROUP + i;
            for (size_t earlier = 0; feedback && earlier < i; earlier++)
                for (int l = 0; l < LANES; l++)
                    moved[i][l] += feedback[earlier * GROUP + i] * left[earlier][l];
            nearest(q, grid, moved[i], inverse);
            for (size_t l = 0; l < count; l++)
                to[feedback ? l : l * GROUP] = (int8_t)q[l];
            for (int l = 0; feedback && l < LANES; l++)
                left[i][l] = exact[i][l] - q[l] * scale[l];
            if (feedback)
                memcpy(errors + i * n + first, left[i], count * sizeof(float));
        }
    }
    return true;
}

void yalm_split_nibbles(uint8_t *to, const uint8_t *from, int bytes, uint8_t flipped, size_t n)
{
    const int half = bytes / 2;
    for (; n > 0; n--, from += bytes, to += bytes)
        for (int i = 0; i < half; i++) {
            const uint8_t one = from[2 * i], next = from[2 * i + 1];
            to[i] = (uint8_t)((one & 0x0f) | next << 4) ^ flipped;
            to[half + i] = (one >> 4 | (next & 0xf0)) ^ flipped;
        }
}
