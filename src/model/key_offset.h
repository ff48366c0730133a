// The offset that is subtracted from the keys of an int8 cache.
//
// A part that all keys of a head share adds the same to all scores of a query; softmax does not see it. Models with a bias on
// their keys (Qwen2) have such a part in the components that rotate slowest, up to a hundred times what tells one key from
// another. A row has one scale: such a component would leave a few steps to all others. So rows hold the key less the mean of
// the rotated bias over the first positions. Components that rotate fast have a mean of about 0 and stay as they are.
#pragma once
#include "model/config.h"

enum {
    KEY_OFFSET_DIMS = 256, // components of a head at most
    KEY_OFFSET_POSITIONS =
        1024, // of the mean, or the model's context. Over all 32,768 of Qwen2.5's short texts lose much (docs/attention.md).
};

// Whether the model has such a bias, and only a softmax over one query's scores sees it. That is not so where scores are
// capped, where a logit without a key stands beside them, or where a query of their own sees the sinks.
bool key_offset_has(const struct model_config *config, int n_sinks);

// offset, bias: (n_kv_heads, head_dim), of one layer. inverse_frequency, scale: its rotation (rope_frequencies()); NULL: it has
// none.
void key_offset(float *offset, const float *bias, const struct model_config *config, const double *inverse_frequency,
                double scale);
