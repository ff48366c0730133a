#include "model/key_offset.h"

#include <math.h>
#include <string.h>

bool key_offset_has(const struct model_config *config, int n_sinks)
{
    return (config->attention_bias || config->qkv_bias) && !config->qk_norm && !config->whole_qk_norm &&
           !config_kinds_differ(config) && config->head_dim <= KEY_OFFSET_DIMS && config->attention_softcap == 0 &&
           !config->sink_logits && n_sinks == 0;
}

// The mean of (cos, sin) of position * frequency over positions [0, n).
static void mean_turn(double frequency, int n, double *cosine, double *sine)
{
    const double angle = frequency * n;
    *cosine = angle > 1e-9 ? sin(angle) / angle : 1;
    *sine = angle > 1e-9 ? (1 - cos(angle)) / angle : 0;
}

void key_offset(float *offset, const float *bias, const struct model_config *config, const double *inverse_frequency,
                double scale)
{
    const int d = config->head_dim, half = d / 2;
    const int n = config->context_length < KEY_OFFSET_POSITIONS ? config->context_length : KEY_OFFSET_POSITIONS;
    memcpy(offset, bias, sizeof *offset * (size_t)(config->n_kv_heads * d));
    for (int i = 0; inverse_frequency && i < half; i++) {
        double cosine, sine;
        if (inverse_frequency[i] == 0) // does not rotate
            continue;
        mean_turn(inverse_frequency[i], n, &cosine, &sine);
        for (int h = 0; h < config->n_kv_heads; h++) {
            const double x = (double)bias[h * d + i], y = (double)bias[h * d + half + i];
            offset[h * d + i] = (float)(scale * (x * cosine - y * sine));
            offset[h * d + half + i] = (float)(scale * (y * cosine + x * sine));
        }
    }
}
