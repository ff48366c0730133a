#include "cpu/select.h"

#include <math.h>
#include <string.h>

enum {
    DIGIT = 11, // bits
    DIGITS = 1 << DIGIT,
    SAMPLES = 1024, // of a long row, at least
};

// Unsigned integers in the order of the floats: negative ones turned round, NaN first, -0 as +0.
static uint32_t order_of(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0;
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

// Digit `level` of three, the highest first: 11, 11 and 10 bits.
static unsigned digit_of(uint32_t order, int level)
{
    return level == 0 ? order >> 21 : level == 1 ? order >> 10 & (DIGITS - 1) : order & 1023;
}
static uint32_t digit_place(int level)
{
    return level == 0 ? 21 : level == 1 ? 10 : 0;
}

// Radix selection, most significant digit first. What is kept is worth: 1 each, or its value. Returns the order of the smallest that is kept
// when the largest are taken until they are worth `wanted`, and in *spare what is still wanted when all larger ones are taken.
static uint32_t threshold_of(const float *values, int n, int stride, bool by_value, double wanted, double *spare)
{
    uint32_t prefix = 0, mask = 0;
    for (int level = 0; level < 3; level++) {
        double worth[DIGITS]; // by_value
        int count[DIGITS];
        memset(count, 0, sizeof count);
        if (by_value)
            memset(worth, 0, sizeof worth);
        for (int i = 0; i < n; i += stride) {
            const uint32_t order = order_of(values[i]);
            if ((order & mask) != prefix)
                continue;
            count[digit_of(order, level)]++;
            if (by_value)
                worth[digit_of(order, level)] += values[i] > 0 ? (double)values[i] : 0;
        }
        int digit = DIGITS - 1, lowest = DIGITS - 1;
        for (; digit >= 0; digit--) {
            if (count[digit] == 0)
                continue;
            const double all = by_value ? worth[digit] : count[digit];
            lowest = digit;
            if (all >= wanted)
                break;
            wanted -= all;
        }
        if (digit < 0) { // rounding: all of them, though their worth falls short by a hair
            wanted += by_value ? worth[lowest] : count[lowest];
            digit = lowest;
        }
        prefix |= (uint32_t)digit << digit_place(level);
        mask |= (level == 2 ? 1023u : DIGITS - 1u) << digit_place(level);
    }
    *spare = wanted;
    return prefix;
}

// All above the threshold, and of those at it the first `ties`.
static void keep_from(struct candidates *c, uint32_t threshold, int ties)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const uint32_t order = order_of(c->values[i]);
        if (order < threshold || (order == threshold && ties-- <= 0))
            continue;
        c->indices[n] = c->indices[i];
        c->values[n++] = c->values[i];
    }
    c->n = n;
}

void select_largest(struct candidates *c, int k)
{
    double spare;
    if (k >= c->n)
        return;
    if (k <= 0) {
        c->n = 0;
        return;
    }
    const uint32_t threshold = threshold_of(c->values, c->n, 1, false, k, &spare);
    keep_from(c, threshold, (int)spare);
}

void select_mass(struct candidates *c, double mass, int least)
{
    double spare;
    if (least >= c->n)
        return;
    const uint32_t threshold = threshold_of(c->values, c->n, 1, true, mass, &spare);
    int above = 0;
    float tie = 0;
    for (int i = 0; i < c->n; i++) {
        above += order_of(c->values[i]) > threshold;
        if (order_of(c->values[i]) == threshold)
            tie = c->values[i];
    }
    const int ties = tie > 0 ? (int)ceil(spare / (double)tie) : 0;
    if (above + ties < least)
        select_largest(c, least);
    else
        keep_from(c, threshold, ties);
}

// A value that probably a few more than k of x[0 … n) reach: the one of that rank in a sample, and a margin of some standard deviations.
static float threshold_guess(const float *x, int n, int k)
{
    const int stride = n / SAMPLES | 1; // odd: no vector's lane, and no period of two, is sampled alone
    const double share = (double)k / stride, margin = 4 * sqrt(share) + 2;
    double spare;
    if (n < 2 * SAMPLES || (share + margin) * stride > 0.75 * n)
        return -INFINITY;
    const uint32_t order = threshold_of(x, n, stride, false, share + margin, &spare);
    const uint32_t bits = order & 0x80000000 ? order & 0x7fffffff : ~order;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int select_top(const struct sparse_kernels *kernels, int *indices, float *values, const float *x, int first, int last, int k)
{
    struct candidates c = {indices, values, 0};
    if (k <= 0)
        return 0;
    if (k >= last - first) {
        for (int j = first; j < last; j++) {
            indices[j - first] = j;
            values[j - first] = x[j];
        }
        return last - first;
    }
    const float guess = threshold_guess(x + first, last - first, k);
    if (guess > -INFINITY)
        c.n = kernels->collect(indices, values, x, first, last, guess);
    if (c.n < k) { // all of them, NaN too
        for (int j = first; j < last; j++) {
            indices[j - first] = j;
            values[j - first] = x[j];
        }
        c.n = last - first;
    }
    select_largest(&c, k);
    return c.n;
}
