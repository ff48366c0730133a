// The formulas of docs/format.md, "rope".

#include "model/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

// Llama 3.1: long wavelengths are stretched, short ones stay, between them a ramp.
static double llama3_frequency(double f, const struct rope_config *rope)
{
    const double rotations = rope->original_context * f / two_pi; // in the original context
    if (rotations > rope->high_freq_factor)
        return f;
    if (rotations < rope->low_freq_factor)
        return f / rope->factor;
    const double s = (rotations - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - s) * f / rope->factor + s * f;
}

// YaRN (Peng et al., arXiv 2309.00071, section 3.2): the component, as a real number, that rotates `beta` times in the original
// context.
static double yarn_component(double beta, const struct rope_config *rope, int head_dim)
{
    return head_dim * log(rope->original_context / (two_pi * beta)) / (2 * log(rope->theta));
}

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

static void yarn_frequencies(double *inverse_frequency, const struct rope_config *rope, int head_dim)
{
    double low = yarn_component(rope->beta_fast, rope, head_dim), high = yarn_component(rope->beta_slow, rope, head_dim);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, head_dim - 1);
    if (low == high)
        high += 0.001;
    for (int i = 0; i < head_dim / 2; i++) {
        const double keep = 1 - clamp((i - low) / (high - low), 0, 1);
        inverse_frequency[i] *= (1 - keep) / rope->factor + keep;
    }
}

double rope_frequencies(double *inverse_frequency, const struct rope_config *rope, int head_dim, int context)
{
    const int rotary_dim = rope->rotary_dim ? rope->rotary_dim : head_dim;
    const double *factors = context > rope->original_context ? rope->long_factors : rope->short_factors;
    for (int i = 0; i < head_dim / 2; i++) {
        const double f = i < rotary_dim / 2 ? pow(rope->theta, -2.0 * i / rotary_dim) : 0;
        inverse_frequency[i] = f == 0                      ? 0
                               : rope->type == ROPE_LINEAR ? f / rope->factor
                               : rope->type == ROPE_LLAMA3 ? llama3_frequency(f, rope)
                               : rope->type == ROPE_LONG   ? f / factors[i]
                                                           : f;
    }
    if (rope->type == ROPE_YARN)
        yarn_frequencies(inverse_frequency, rope, rotary_dim);
    return rope->type == ROPE_YARN || rope->type == ROPE_LONG ? rope->attention_factor : 1;
}

void rope_angles(float *cos_out, float *sin_out, const double *inverse_frequency, double scale, int head_dim, int64_t position)
{
    for (int i = 0; i < head_dim / 2; i++) {
        const double angle = (double)position * inverse_frequency[i];
        const double length = inverse_frequency[i] == 0 ? 1 : scale;
        cos_out[i] = (float)(cos(angle) * length);
        sin_out[i] = (float)(sin(angle) * length);
    }
}
