// The architecture's numbers, as the metadata's `config` gives them, checked against each other.
#pragma once
#include <limits.h>
#include <math.h>

#include "model/activation.h"
#include "model/container.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG };

enum { ROPE_MAX_FACTORS = 128 };

struct rope_config {
    enum rope_type type;
    int rotary_dim; // components of a head that rotate, in pairs half a head apart; 0: all
    double theta, factor;
    double low_freq_factor, high_freq_factor;                               // llama3
    double beta_fast, beta_slow;                                            // yarn
    double attention_factor;                                                // yarn, longrope
    bool truncate;                                                          // yarn
    double original_context;                                                // llama3, yarn, longrope
    double short_factors[ROPE_MAX_FACTORS], long_factors[ROPE_MAX_FACTORS]; // longrope: (rotary_dim / 2)
};

enum {
    CONFIG_MAX_LAYERS = 1 << 10,
    CONFIG_MAX_KINDS = 4,
    CONFIG_MAX_CONV = 64,
    CONFIG_MAX_DIM = 1 << 20 // hidden_dim, ffn_dim, and n_heads * head_dim: rows and columns of a layer's matrices
};

// What makes a recurrent layer a selective state space (Mamba-2: Dao and Gu, arXiv 2405.21060): C, B and x are q, k and v, as
// they come from the convolution. A head's state decays by e^(-rate dt), and takes in dt x ⊗ B.
struct scan_config {
    bool there;
    bool conv_bias;
    int norm_groups; // of heads' values: RMSNorm of each, of what comes out and is gated; 0: no norm
    bool norm_first; // the gate comes behind it
    float norm_eps;
    float dt_min, dt_max; // of softplus(dt + bias); 0: no bound
};

// A recurrent layer: in attention's place each value head has a matrix that is carried from token to token (Gated DeltaNet:
// Yang, Kautz and Hatamizadeh, arXiv 2412.06464). Or there is a short convolution alone, between two gates (LFM2: arXiv
// 2511.23404).
struct delta_config {
    int n_key_heads, n_value_heads; // the latter a multiple; 0: a convolution alone
    int key_dim, value_dim;         // of a head
    int conv_width;                 // tokens that the convolution sees; 0: none of this
    bool tiled;                     // value head i goes with key head i mod n_key_heads; else neighbours share one
    int conv_dim;                   // channels of a convolution alone
    bool conv_bias;                 // of such a layer: its products, the convolution and o have biases
    // Kimi Delta Attention (Kimi Team, arXiv 2510.26692): each channel of a key has a decay of its own, and the output gate is
    // a sigmoid; both are products of latents so wide. 0: none of this
    int kda_rank;
    struct scan_config scan;
};

// Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434): heads' keys and values are products of one latent a token, which
// is what the cache keeps. All heads see it as one KV head, whose rows are keys, and values as well (docs/engine.md).
struct latent_config {
    int q_rank;                    // of the latent that queries are made of; 0: they are made of the stream
    int kv_rank;                   // 0: none of this
    int nope_dim, rope_dim, v_dim; // of a head: of q and k without and with rotation; of v
    float norm_eps;                // of the latents' norms
};

// What layers of one kind have in common: attention, and how far back it sees and how it rotates; or a recurrence. Kind 0 may
// have both, side by side: a scan.
struct layer_kind {
    int sliding_window; // 0: none
    struct rope_config rope;
    struct delta_config delta;
    int head_dim, n_kv_heads, ffn_dim; // 0: the model's
    bool shares_keys;                  // its layers see the keys and values of the last layer of kind kv_of, and have none
    int kv_of;
};

// A head that guesses one token further (multi-token prediction: DeepSeek-AI, arXiv 2412.19437): a layer that reads a hidden
// state and the token behind it. It is layer n_layers, as far as layers are listed.
struct mtp_config {
    bool there;
    bool normed;     // what it reads of the model is rmsnorm(x), by the model's last norm; else the residual stream itself
    bool own_normed; // what it reads of itself, for a guess behind a guess, likewise, by its own last norm
};

// How what a text's tokens have become makes one vector of it.
enum pooling { POOLING_NONE, POOLING_LAST, POOLING_MEAN, POOLING_FIRST, POOLINGS };

enum { CONFIG_MAX_DENSE = 4, CONFIG_MAX_BETWEEN = 4 };

struct model_config {
    char architecture[64]; // the source's name for it: for people, nothing is decided by it
    int n_layers, hidden_dim, ffn_dim, n_heads, n_kv_heads, head_dim, vocab_size, context_length;
    float norm_eps;
    // Kind 0 is every layer's that is not named under another.
    struct layer_kind kinds[CONFIG_MAX_KINDS];
    int n_more_kinds;                             // besides kind 0
    uint8_t kind_of_layer[CONFIG_MAX_LAYERS + 1]; // the head's, too
    int n_experts, n_active_experts;              // 0: none
    int expert_ffn_dim;                           // 0: as ffn_dim
    // Experts are in so many groups of neighbours, of which so many are asked: those whose best expert rates highest, or, with
    // sigmoid_router, whose best two together do. 0: all.
    int n_expert_groups, n_active_groups;
    bool raw_expert_weights; // the softmax's over all experts, not renormalised over the active ones
    int n_dense_layers;      // of a model with experts: layers that have none
    bool dense_layer[CONFIG_MAX_LAYERS + 1];
    int n_no_ffn_layers; // that end behind attention, or the recurrence
    bool no_ffn_layer[CONFIG_MAX_LAYERS + 1];
    bool tied_embeddings, attention_bias, qkv_bias, mlp_bias; // attention_bias: of q, k, v and o; qkv_bias: of the first three
    float attention_scale, embedding_scale;                   // of scores, of the embedding; 0: 1 / sqrt(head_dim), 1
    int n_unrotated_layers;                                   // whose queries and keys are as they are at every position
    bool unrotated_layer[CONFIG_MAX_LAYERS + 1];
    float query_growth; // queries are longer by 1 + growth ln(1 + position / context), rounded down; 0: not
    int query_growth_context;
    enum activation activation;              // of gate, before it is multiplied with up
    float attention_softcap, logits_softcap; // each score, or logit, x becomes cap tanh(x / cap); 0: stays
    bool norms_after;                        // RMSNorm of what a block adds, not of what it reads
    bool norms_around;                       // RMSNorm of both
    bool whole_qk_norm;                      // RMSNorm of all heads of q together, and of k, before rotation
    bool qk_norm;                            // RMSNorm of each head of q and k, before rotation
    bool rotated_qk_norm; // with qk_norm: without weights; both norms' together multiply q behind its rotation
    bool router_bias;     // in layers with experts
    // Experts have scores of their own, 1 / (1 + e^-logit); the best by score and a bias are active, with the score for a
    // weight.
    bool sigmoid_router;
    bool softmax_choice_bias; // the same, but the score is the softmax over all experts
    float expert_scale;       // of the active experts' weights; 0: 1
    float expert_eps;         // sigmoid_router: added to the sum that weights are divided by; else that sum's least value
    int shared_ffn_dim;       // of an expert that all tokens of a layer with experts go through besides; 0: none
    bool shared_gate;         // that expert has a weight for each token, 1 / (1 + e^-logit); else it is 1
    bool output_gate;         // what attention gives is multiplied by 1 / (1 + e^-gate)
    bool sink_logits;         // each head has a logit without a key, which its softmax counts
    // With norms_around: the shared expert and the others each have norms of their own, and an expert's weight has a factor
    // (docs/format.md).
    bool expert_norms;
    struct latent_config latent;
    bool v_norm;         // RMSNorm without weights of each head of v
    bool layer_scale;    // what leaves a layer has a factor
    int layer_input_dim; // of an input that each layer has for itself (Gemma's per-layer embeddings); 0: none
    // Of models that read a whole text at once, or have what GPT-2 had before Llama.
    bool bidirectional;  // tokens see those behind them, too; there are no logits
    bool layer_norm;     // every norm is LayerNorm, not RMSNorm
    bool norm_bias;      // with a bias
    bool embedding_norm; // what enters the first layer is normalised
    bool post_norm;      // a block does x = norm(x + block(x)), and so there is no last norm
    bool bare_first;     // the first layer's attention reads x as it is
    bool ungated;        // an MLP is down · activation(up · x)
    bool parallel;       // a layer does x + attention(norm(x)) + mlp(norm(x))
    bool one_norm;       // both by the same norm
    bool classifier_bias;
    bool alibi;                       // each head's scores fall with the distance (Press et al., arXiv 2108.12409)
    bool learned_positions;           // each position has a row that is added to the embedding
    int n_token_types;                // so has each of these; 0: none
    enum pooling pooling;             // NONE: it was not trained to make vectors
    int32_t pooling_end;              // with pooling: the token that it wants behind a text; -1: none
    int n_dense;                      // matrices that a pooled vector goes through
    int dense_dims[CONFIG_MAX_DENSE]; // their rows
    int matryoshka;                   // a vector's first so many components, or more, are one, too; 0: all of them alone
    // It says how well two texts go together: score.out · tanh(score.dense · h + bias) + bias, of the first token's h or the
    // mean. score_normed: score.norm of gelu(score.dense · h) in tanh's place.
    bool scores, score_normed;
    enum pooling score_by; // FIRST or MEAN; LAST: score.out · h of the last token alone, where tokens see those before them
    int n_between;         // tokens between the two
    int32_t between[CONFIG_MAX_BETWEEN];
    struct mtp_config mtp;
    bool guesses; // this is not a model's, but its head's (model/mtp.h)
    // Of a rank's share of a model (model/share.h): where its query heads begin, and how many the whole model has; 0: it is
    // the whole.
    int first_head, all_heads;
    int32_t bos; // -1: none
    int n_eos;
    int32_t eos[YALM_MAX_EOS];
};

// Components of a pooled vector.
static inline int config_vector_dim(const struct model_config *config)
{
    return config->n_dense ? config->dense_dims[config->n_dense - 1] : config->hidden_dim;
}

static inline int config_n_kinds(const struct model_config *config)
{
    return 1 + config->n_more_kinds;
}

// Layers that lists of them may name.
static inline int config_n_listed(const struct model_config *config)
{
    return config->n_layers + config->mtp.there;
}

static inline const struct delta_config *config_delta(const struct model_config *config, int layer)
{
    return &config->kinds[config->kind_of_layer[layer]].delta;
}
static inline bool config_is_recurrent(const struct model_config *config, int layer)
{
    return config_delta(config, layer)->conv_width > 0;
}
static inline bool config_kind_recurs(const struct model_config *config, int kind)
{
    return config->kinds[kind].delta.conv_width > 0;
}
static inline bool config_kind_attends(const struct model_config *config, int kind)
{
    return kind == 0 || !config_kind_recurs(config, kind);
}
static inline bool config_attends(const struct model_config *config, int layer)
{
    return config_kind_attends(config, config->kind_of_layer[layer]);
}
// Of a layer's attention, and of its gate and up where it has no experts.
static inline int config_kind_head_dim(const struct model_config *config, int kind)
{
    const int own = config->kinds[kind].head_dim;
    return own ? own : config->head_dim;
}
static inline int config_kind_kv_heads(const struct model_config *config, int kind)
{
    const int own = config->kinds[kind].n_kv_heads;
    return own ? own : config->n_kv_heads;
}
static inline int config_head_dim(const struct model_config *config, int layer)
{
    return config_kind_head_dim(config, config->kind_of_layer[layer]);
}
static inline int config_kv_heads(const struct model_config *config, int layer)
{
    return config_kind_kv_heads(config, config->kind_of_layer[layer]);
}
static inline int config_ffn_dim(const struct model_config *config, int layer)
{
    const int own = config->kinds[config->kind_of_layer[layer]].ffn_dim;
    return own ? own : config->ffn_dim;
}
// Components of a layer's heads that rotate by its table of angles: all, or of latents the last ones.
static inline int config_kind_rotary(const struct model_config *config, int kind)
{
    return config->latent.kv_rank ? config->latent.rope_dim : config_kind_head_dim(config, kind);
}
// Rows of keys and of values that a position has in the cache: two, or of latents one that is both.
static inline int config_cached_rows(const struct model_config *config)
{
    return config->latent.kv_rank ? 1 : 2;
}
// The layer whose keys and values a layer sees: mostly itself.
static inline int config_kv_layer(const struct model_config *config, int layer)
{
    const struct layer_kind *kind = &config->kinds[config->kind_of_layer[layer]];
    int of = layer;
    while (kind->shares_keys && config->kind_of_layer[of] != kind->kv_of)
        of--;
    return of;
}
// The first of the last layers, which keep no keys: tokens whose logits nobody wants need not go through them. n_layers: there
// are none such.
static inline int config_tail(const struct model_config *config)
{
    int layer = config->n_layers;
    while (layer > 0 && config->kinds[config->kind_of_layer[layer - 1]].shares_keys)
        layer--;
    return layer;
}
// Whether layers of a kind keep keys and values.
static inline bool config_kind_keeps(const struct model_config *config, int kind)
{
    return config_kind_attends(config, kind) && !config->kinds[kind].shares_keys;
}
// Whether any layers see others' keys and values.
static inline bool config_kinds_share(const struct model_config *config)
{
    bool any = false;
    for (int kind = 0; kind < config_n_kinds(config); kind++)
        any |= config->kinds[kind].shares_keys;
    return any;
}
// Whether layers differ in more than what they see and how they rotate.
static inline bool config_kinds_differ(const struct model_config *config)
{
    bool any = false;
    for (int kind = 0; kind < config_n_kinds(config); kind++) {
        const struct layer_kind *k = &config->kinds[kind];
        any |= k->head_dim || k->n_kv_heads || k->ffn_dim || k->shares_keys;
    }
    return any;
}

// Whether any layer is recurrent: a session then cannot go back to wherever it likes.
static inline bool config_recurs(const struct model_config *config)
{
    bool any = false;
    for (int kind = 0; kind < config_n_kinds(config); kind++)
        any |= config_kind_recurs(config, kind);
    return any;
}

// Components of all heads of q, or of k; of v and of what comes out; and those that the convolution goes over: all three.
static inline int delta_keys(const struct delta_config *delta)
{
    return delta->n_key_heads * delta->key_dim;
}
static inline int delta_values(const struct delta_config *delta)
{
    return delta->n_value_heads * delta->value_dim;
}
static inline int delta_channels(const struct delta_config *delta)
{
    return delta->conv_dim + 2 * delta_keys(delta) + delta_values(delta);
}

// Decays of a value head: one, or one for each channel of its key.
static inline int delta_head_decays(const struct delta_config *delta)
{
    return delta->kda_rank ? delta->key_dim : 1;
}
static inline int delta_decays(const struct delta_config *delta)
{
    return delta->n_value_heads * delta_head_decays(delta);
}

// Floats of a layer's states, and of the inputs that its convolution has seen last.
static inline size_t delta_state_floats(const struct delta_config *delta)
{
    return (size_t)delta->n_value_heads * delta->key_dim * delta->value_dim;
}
static inline size_t delta_input_floats(const struct delta_config *delta)
{
    return (size_t)(delta->conv_width - 1) * delta_channels(delta);
}
// Bytes that a layer must read and write of both for a batch.
static inline double delta_bytes(const struct delta_config *delta)
{
    return 2.0 * sizeof(float) * (double)(delta_state_floats(delta) + delta_input_floats(delta));
}

// The most of any kind: one of delta_keys() and its likes.
static inline int config_most_of(const struct model_config *config, int (*of)(const struct delta_config *delta))
{
    int most = 0;
    for (int kind = 0; kind < config_n_kinds(config); kind++) {
        const int n = of(&config->kinds[kind].delta);
        most = n > most ? n : most;
    }
    return most;
}

// How many layers of its own kind come before a layer: its place in what is kept for that kind.
static inline int config_place(const struct model_config *config, int layer)
{
    int place = 0;
    for (int l = 0; l < layer; l++)
        place += config->kind_of_layer[l] == config->kind_of_layer[layer];
    return place;
}

// Layers of a kind.
static inline int config_n_layers_of(const struct model_config *config, int kind)
{
    int n = 0;
    for (int l = 0; l < config->n_layers; l++)
        n += config->kind_of_layer[l] == kind;
    return n;
}

static inline float config_attention_scale(const struct model_config *config, int head_dim)
{
    return config->attention_scale > 0 ? config->attention_scale : 1.0f / sqrtf((float)head_dim);
}

// Rows of an expert's gate and up.
static inline int config_expert_ffn(const struct model_config *config)
{
    return config->expert_ffn_dim ? config->expert_ffn_dim : config->ffn_dim;
}

// The kind of layers that attention methods serve: of those that keep keys the one that sees the farthest, the first of
// several. (Kind 0 always keeps keys.) Layers that see its keys are served, too.
static inline int config_far_kind(const struct model_config *config)
{
    int far = 0, most = 0; // the window; none is the longest
    for (int kind = 0; kind < config_n_kinds(config); kind++) {
        const int window = config->kinds[kind].sliding_window, sees = window ? window : INT_MAX;
        if (config_kind_keeps(config, kind) && sees > most) {
            far = kind;
            most = sees;
        }
    }
    return far;
}
// What that kind has, of whatever keeps something for each of its layers and KV heads.
struct far_shape {
    int n_layers, n_kv_heads, head_dim;
};
static inline struct far_shape config_far(const struct model_config *config)
{
    const int kind = config_far_kind(config);
    return (struct far_shape){config_n_layers_of(config, kind), config_kind_kv_heads(config, kind),
                              config_kind_head_dim(config, kind)};
}
// The layer that has that place among these.
static inline int config_far_layer(const struct model_config *config, int place)
{
    int layer = 0;
    while (config->kind_of_layer[layer] != config_far_kind(config) || config_place(config, layer) != place)
        layer++;
    return layer;
}

// Of these layers' KV heads, a head's number, all counted; in a rank's share, of the whole model's.
static inline int config_all_kv_heads(const struct model_config *config)
{
    const int n_kv_heads = config_far(config).n_kv_heads;
    return config->all_heads ? config->all_heads / (config->n_heads / n_kv_heads) : n_kv_heads;
}
static inline size_t config_head_number(const struct model_config *config, size_t place, int kv_head)
{
    const int first = config->first_head / (config->n_heads / config_far(config).n_kv_heads);
    return place * (size_t)config_all_kv_heads(config) + (size_t)(first + kv_head);
}

static inline bool config_has_experts(const struct model_config *config, int layer)
{
    return config->n_experts > 0 && !config->dense_layer[layer];
}

struct json_object;

// Refuses, by name, what is missing, extra, out of range, unknown or contradictory.
yalm_status config_read(struct model_config *config, const struct container *container, yalm_error *error);
// Reads `delta` of an object of the metadata.
yalm_status delta_read(struct delta_config *delta, const struct json_object *of, yalm_error *error);
// Refuses facts that contradict each other.
yalm_status config_check(const struct model_config *config, const char *path, yalm_error *error);
