// The architecture's numbers, as the metadata's `config` gives them, checked against each other.
#pragma once
#include "model/container.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    enum rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor;      // llama3
    double beta_fast, beta_slow, attention_factor; // yarn
    bool truncate;                                 // yarn
    double original_context;                       // llama3, yarn
};

struct model_config {
    char architecture[32];
    int n_layers, hidden_dim, ffn_dim, n_heads, n_kv_heads, head_dim, vocab_size, context_length;
    float norm_eps;
    struct rope_config rope;
    int sliding_window;              // 0: none
    int n_experts, n_active_experts; // 0: none
    bool tied_embeddings, attention_bias, mlp_bias;
    int32_t bos; // -1: none
    int n_eos;
    int32_t eos[YALM_MAX_EOS];
};

// Refuses, by name, what is missing, extra, out of range, unknown or contradictory.
yalm_status config_read(struct model_config *config, const struct container *container, yalm_error *error);
