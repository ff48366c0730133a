#include "cpu/long/priority.h"

#include <math.h>
#include <string.h>

void priority_lifts(float *lifts, int n, bool logarithmic)
{
    for (int i = 0; i < n + PRIORITY_PHASES; i++) {
        const uint32_t turn = (uint32_t)(i + 1) * PRIORITY_TURN;
        const double u = ((double)turn + 0.5) * 0x1p-32;
        lifts[i] = (float)(logarithmic ? -log(u) : 1 / u);
    }
}

float priority_take(struct candidates *c)
{
    int least = 0;
    for (int i = 1; i < c->n; i++)
        if (c->values[i] <= c->values[least]) // of equal ones the older stay
            least = i;
    const float threshold = c->values[least];
    c->n--;
    memmove(c->indices + least, c->indices + least + 1, sizeof *c->indices * (size_t)(c->n - least));
    memmove(c->values + least, c->values + least + 1, sizeof *c->values * (size_t)(c->n - least));
    return threshold;
}

void priority_biases(float *bias, const struct candidates *c, float threshold, const float *lifts, bool logarithmic)
{
    for (int i = 0; i < c->n; i++) {
        const float lift = lifts[c->indices[i]],
                    short_of = logarithmic ? threshold - (c->values[i] - lift) : threshold * lift / c->values[i]; // θ / w
        bias[i] = logarithmic ? (short_of > 0 ? short_of : 0) : short_of > 1 && short_of < INFINITY ? logf(short_of) : 0;
    }
}
