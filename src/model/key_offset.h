// What the keys of an int8 cache are kept less of.
//
// What all keys of a head have in common adds the same to all scores of a query, and softmax does not see it. Models with a bias on their keys (Qwen2) have it in
// the components that rotate slowest, where it is up to a hundred times what tells one key from another. A row has one scale: such a component would leave a few
// steps to all others. So rows hold the key less the mean, over the first positions, of the bias as it is rotated; components that rotate fast have a mean
// of about 0, and keep what they are.
#pragma once
#include "model/config.h"

enum {
    KEY_OFFSET_DIMS = 256, // components of a head at most
    KEY_OFFSET_POSITIONS =
        1024, // of the mean, or the model's context. Over all 32,768 of Qwen2.5's short texts lose much (docs/attention.md).
};

// Whether there is anything to keep keys less of, and nothing but softmax over one query's scores that would see it: not where scores are capped, where a
// logit without a key stands beside them, or where sinks are seen by a query of their own.
bool key_offset_has(const struct model_config *config, int n_sinks);

// offset, bias: (n_kv_heads, head_dim), of one layer. inverse_frequency, scale: its rotation (rope_frequencies()); NULL: it has none.
void key_offset(float *offset, const float *bias, const struct model_config *config, const double *inverse_frequency,
                double scale);
