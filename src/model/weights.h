// Where each weight lies in the mapping. Nothing is copied; all pointers are owned by the container.
#pragma once
#include <string.h>

#include "model/config.h"

struct matrix {       // y = W x
    const void *data; // (rows, cols); of a type with scales, all rows' elements, then all groups' or rows' scales
    enum dtype dtype;
    int rows, cols;
};

// The scale of a row, of types that have one for each.
static inline float matrix_row_scale(const struct matrix *m, int row)
{
    float scale;
    const size_t before = (size_t)m->rows * (dtype_row_bytes(m->dtype, m->cols) - sizeof scale);
    memcpy(&scale, (const uint8_t *)m->data + before + (size_t)row * sizeof scale, sizeof scale);
    return scale;
}

// Types of several matrices, as bits (1 << enum dtype).
typedef uint64_t type_set;

static inline type_set type_bit(enum dtype type)
{
    return (type_set)1 << type;
}

struct expert_weights {
    struct matrix gate, up;                       // (ffn_dim, hidden_dim); gate.data NULL: none
    struct matrix down;                           // (hidden_dim, ffn_dim)
    const float *gate_bias, *up_bias, *down_bias; // NULL: none
};

// What a recurrent layer has besides q, k, v, output_gate and o. With a convolution alone that is `conv`, there is no
// output_gate, and q, k and v are (hidden_dim, hidden_dim).
struct delta_weights {
    const float *conv;         // (conv_width, delta_channels()): of q, then k, then v; the last row is the token's own
    const float *conv_bias;    // (conv_dim), of a convolution alone; NULL: none
    struct matrix decay, beta; // (n_value_heads, hidden_dim), fp32; with kda_rank there is no `decay`
    const float *decay_bias;   // (delta_decays())
    const float *decay_rate;   // (n_value_heads)
    // With kda_rank: decay_a and gate_a (kda_rank, hidden_dim) make latents. Of these decay_b (delta_decays(), kda_rank) makes
    // decays, gate_b (delta_values(), kda_rank) the output gate.
    struct matrix decay_a, decay_b, gate_a, gate_b;
    const float *value_norm; // (value_dim), of each head of what comes out
};

// What a scan has in q's, k's and v's place, and in gates' and o's, besides conv, decay (dt), its bias and rate, and value_norm
// (delta_values(), or NULL).
struct scan_weights {
    struct matrix c, b;     // (delta_keys(), hidden_dim)
    struct matrix x, z;     // (delta_values(), hidden_dim)
    struct matrix o;        // (hidden_dim, delta_values())
    const float *conv_bias; // (delta_channels()); NULL: none
    const float *skip;      // (n_value_heads): y += skip x
};

// What layers with latents have besides q, k and o. There q reads q_a's latent where there is one. k makes the latent of keys,
// and what of them rotates: (kv_rank + rope_dim, hidden_dim). o reads v_dim of each head. There is no v.
struct latent_weights {
    struct matrix q_a; // (q_rank, hidden_dim); data NULL: none
    struct matrix k_b; // (n_heads * kv_rank, nope_dim): of each head what its keys would be multiplied by, turned; floats
    struct matrix v_b; // (n_heads * v_dim, kv_rank), floats
};

struct layer_weights {
    // RMSNorm of what a block reads, and of what it adds: (hidden_dim); NULL: none.
    const float *attention_norm, *attention_post_norm, *ffn_norm, *ffn_post_norm;
    const float *attention_norm_bias, *ffn_norm_bias; // with norm_bias
    struct matrix q;                                  // (n_heads * head_dim, hidden_dim)
    struct matrix k, v;                             // (n_kv_heads * head_dim, hidden_dim); data NULL: another layer's are seen
    struct matrix o;                                // (hidden_dim, n_heads * head_dim)
    const float *q_bias, *k_bias, *v_bias, *o_bias; // NULL: none
    struct matrix output_gate;                      // (o's columns, hidden_dim); data NULL: none
    const float *output_gate_bias;                  // NULL: none
    struct delta_weights
        delta; // of recurrent layers, whose q and k are (delta_keys(), hidden_dim), and v (delta_values(), hidden_dim)
    struct scan_weights scan;
    struct latent_weights latent;
    // (head_dim), of each head, or with whole_qk_norm (rows of the matrix); of latents (q_rank), (kv_rank); NULL: none. With
    // rotated_qk_norm there is q_norm alone, of q behind its rotation.
    const float *q_norm, *k_norm;
    const float *sink_logits;        // (n_heads); NULL: none
    const float *xielu;              // (3), ACTIVATION_XIELU's p, n and b; NULL: another activation
    struct matrix router;            // (n_experts, hidden_dim), fp32; data NULL: none
    const float *router_bias;        // (n_experts); NULL: none
    const float *router_choice_bias; // (n_experts), with sigmoid_router or softmax_choice_bias; NULL: none
    struct expert_weights *experts;  // (n_experts, or 1 where the layer is dense)
    const float *router_scale;       // (n_experts), of their weights; NULL: none
    struct expert_weights shared;    // of all tokens, beside those; up.data NULL: none
    // RMSNorm of what experts read and of what they add, and of what the shared one adds: (hidden_dim); NULL: none.
    const float *expert_norm, *expert_post_norm, *shared_post_norm;
    struct matrix shared_router;                // (1, hidden_dim), fp32: that one's weight's logit; data NULL: it is 1
    struct matrix input_gate, input_projection; // (layer_input_dim, hidden_dim), (hidden_dim, layer_input_dim); data NULL: none
    const float *input_norm;                    // (hidden_dim)
    const float *scale;                         // (1), of what leaves the layer; NULL: 1
};

struct model_weights {
    struct matrix embedding;              // (vocab_size, hidden_dim)
    struct matrix positions, token_types; // (context_length, hidden_dim), (n_token_types, hidden_dim); data NULL: none
    const float *embedding_norm, *embedding_norm_bias; // (hidden_dim); NULL: none
    const float *alibi_slopes;                         // (n_heads): of all layers; NULL: none
    struct matrix layer_embedding,
        layer_projection;                  // (vocab_size, n_layers * layer_input_dim), (that, hidden_dim); data NULL: none
    const float *layer_projection_norm;    // (layer_input_dim)
    struct layer_weights *layers;          // (n_layers), and the head's
    const float *norm, *norm_bias;         // (hidden_dim); NULL: none
    struct matrix classifier;              // (vocab_size, hidden_dim); the embedding where tied
    const float *classifier_bias;          // (vocab_size); NULL: none
    struct matrix dense[CONFIG_MAX_DENSE]; // (dense_dims[i], what the one before makes), fp32: of a pooled vector
    struct matrix score_dense, score_out;  // (hidden_dim, hidden_dim), (1, hidden_dim), fp32
    const float *score_dense_bias, *score_out_bias; // (hidden_dim), (1); the first with score_normed: NULL; by LAST no dense
    const float *score_norm, *score_norm_bias;      // (hidden_dim), with score_normed; NULL: none
    // Of the head that guesses, whose layer is layers[n_layers]: x = mtp_projection · [rmsnorm(the token's row of the
    // embedding); rmsnorm(hidden state)]. data NULL: there is none.
    struct matrix mtp_projection;                                 // (hidden_dim, 2 * hidden_dim)
    const float *mtp_embedding_norm, *mtp_hidden_norm, *mtp_norm; // (hidden_dim); the last one before the classifier
    uint64_t bytes;                                               // all weights in the file
    int64_t n_params;
};

// Refuses missing, extra or wrongly shaped or typed tensors by name.
yalm_status weights_bind(struct model_weights *weights, const struct model_config *config, const struct container *container,
                         yalm_error *error);
void weights_free(struct model_weights *weights);
