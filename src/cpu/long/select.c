#include "cpu/long/select.h"

#include <math.h>
#include <string.h>

enum {
    SAMPLES = 1024,      // of a long row, at least
    INTERPOLATIONS = 12, // before the search goes on by halves
};

// Unsigned integers in the order of the floats from -inf to inf.
static uint32_t order_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}
static float of_order(uint32_t order)
{
    const uint32_t bits = order & 0x80000000 ? order & 0x7fffffff : ~order;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Between low, which `from` values reach, and high, which only `to` do: where k do if they lie evenly between.
static uint32_t interpolated(uint32_t low, uint32_t high, double from, double to, int k)
{
    const double share = (from - k) / (from - to);
    const uint32_t step = (uint32_t)((double)(high - low) * share);
    return step < 1 ? low + 1 : step >= high - low ? high - 1 : low + step;
}

// Finds a value that exactly k of x reach. Where equal values leave none it is the largest that more than k reach; where NaN
// leaves fewer than k, the least, or -inf. Each trial counts a vector at a time, over few values in the L1 cache; all trials
// together cost less than one pass into a histogram. Where to look is interpolated, in trials 5 to 10 times where halving the
// interval took 13 to 22. An end that stays moves nearer each time, by half of what it is off k (the Illinois form of false
// position). What is not found so is found by halving.
static float kth_largest(const struct sparse_kernels *kernels, const float *x, int n, int k)
{
    float least, largest;
    kernels->range(x, n, &least, &largest);
    if (!(least <= largest))
        return -INFINITY;
    uint32_t low = order_of(least), high = order_of(largest) + 1;
    double from = n, to = 0;
    int moved = 0; // the end that the last look moved: 1 low, -1 high
    for (int looks = 0; high - low > 1; looks++) {
        const uint32_t middle = looks < INTERPOLATIONS ? interpolated(low, high, from, to, k) : low + (high - low) / 2;
        const int count = kernels->count_from(x, n, of_order(middle));
        if (count == k)
            return of_order(middle);
        if (count > k) {
            low = middle;
            from = count;
            to = moved == 1 ? k - (k - to) / 2 : to;
        } else {
            high = middle;
            to = count;
            from = moved == -1 ? k + (from - k) / 2 : from;
        }
        moved = count > k ? 1 : -1;
    }
    return of_order(low);
}

// The first k of those at least t, when no more than k are greater.
static void keep_from(const struct sparse_kernels *kernels, struct candidates *c, float t, int k)
{
    if (kernels->count_from(c->values, c->n, t) <= k) {
        c->n = kernels->keep(c->indices, c->values, c->n, t);
        return;
    }
    int n = 0, ties = k;
    for (int i = 0; i < c->n; i++)
        ties -= c->values[i] > t;
    for (int i = 0; i < c->n; i++) {
        const float x = c->values[i];
        const bool tie = x == t;
        c->indices[n] = c->indices[i];
        c->values[n] = x;
        n += (x > t) | (tie & (ties > 0));
        ties -= tie;
    }
    c->n = n;
}

// Where NaN leaves fewer than k values: these, and the first NaN.
static void keep_numbers(struct candidates *c, int k)
{
    int n = 0, others = k;
    for (int i = 0; i < c->n; i++)
        others -= !isnan(c->values[i]);
    for (int i = 0; i < c->n; i++)
        if (!isnan(c->values[i]) || others-- > 0) {
            c->indices[n] = c->indices[i];
            c->values[n++] = c->values[i];
        }
    c->n = n;
}

void select_largest(const struct sparse_kernels *kernels, struct candidates *c, int k)
{
    if (k >= c->n)
        return;
    if (k <= 0)
        c->n = 0;
    else if (kernels->count_from(c->values, c->n, -INFINITY) < k)
        keep_numbers(c, k);
    else
        keep_from(kernels, c, kth_largest(kernels, c->values, c->n, k), k);
}

// A value that probably a few more than k of x[0 … n) reach: the one of that rank in a sample, less a margin of some standard
// deviations.
static float threshold_guess(const struct sparse_kernels *kernels, const float *x, int n, int k)
{
    float sample[2 * SAMPLES];
    const int stride = n / SAMPLES | 1; // odd: no lane of a vector, and no period of two, is sampled alone
    const float share = (float)k / (float)stride, margin = 4 * sqrtf(share) + 2;
    if (n < 2 * SAMPLES || (share + margin) * (float)stride > 0.75f * (float)n)
        return -INFINITY;
    int m = 0;
    for (int i = 0; i < n; i += stride)
        sample[m++] = x[i];
    return kth_largest(kernels, sample, m, (int)(share + margin));
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
    const float guess = threshold_guess(kernels, x + first, last - first, k);
    if (guess > -INFINITY)
        c.n = kernels->collect(indices, values, x, first, last, guess);
    if (c.n < k) { // all of them, NaN too
        for (int j = first; j < last; j++) {
            indices[j - first] = j;
            values[j - first] = x[j];
        }
        c.n = last - first;
    }
    select_largest(kernels, &c, k);
    return c.n;
}
