// The forward pass as data: the steps that turn tokens into logits, in the order in which they are done. Made from the model's
// facts (recipe.c); executors go through it (cpu/run.c, cuda/run.cu).
//
// A step says what is computed, from which buffer to which, with which weights. How is the executor's business, and so is all
// that concerns every step alike: fetching weights ahead, sums among ranks, tokens that are apart, the last token alone,
// timing, observation.
#pragma once
#include "model/importance.h"
#include "model/weights.h"

enum op {
    OP_EMBED,      // x = number · the token's row of `table`, plus rows of its position and type where the model has such
    OP_PAIR,       // units = [rmsnorm(x); rmsnorm(hidden)]: of a head that guesses
    OP_PROJECT,    // out[i] = w[i] · in + bias[i]
    OP_MIX_INPUTS, // inputs = (rmsnorm(inputs) + the token's row of `table`) / √2, for each layer its own
    OP_HEAD_NORM,  // RMSNorm of each head of q and k, before rotation (Henry et al., arXiv 2010.04245)
    OP_HEADS,      // out = of each head w[0]'s rows for it · its part of in, and what of it goes along as it is
    OP_ATTEND,     // attended = attention of q, rotated, to all keys that it sees, once k and v are among them
    OP_RECUR,      // out = what a recurrent layer makes of q, k, v, gates, decays and betas (Gated DeltaNet, KDA, Mamba-2)
    OP_CONVOLVE,   // attended = q ∘ (a convolution of k ∘ v over the last tokens + its bias)
    OP_GATE,       // attended *= 1 / (1 + e^-gates)
    OP_ADD,        // x += w · in + bias
    OP_UNITS,      // units = activation(w[0] · in + bias[0]) ∘ (w[1] · in + bias[1]), the latter 1 where there is no w[1]
    OP_WEIGH,      // units *= 1 / (1 + e^-(shared_router · in))
    OP_ROUTE,      // each token's experts, and their weights, by the logits w · in + bias
    OP_EXPERTS,    // out += the sum over each token's experts of weight · expert(in)
    OP_JOIN,       // x += rmsnorm(w · units + expert_sum); w · units normalised where experts have norms of their own
    OP_GATE_INPUT, // units = activation(w · x) ∘ the layer's own input
    OP_SCALE,      // x *= the layer's scale
    OP_NORM,       // x = norm(x)
    OP_CAP,        // logits = number · tanh(logits / number)
};

// Of each token a row.
enum recipe_buffer {
    BUFFER_X, // the residual stream
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_LATENT, // that queries are made of, or decays
    BUFFER_HEADS,  // what is multiplied head by head, or comes out of that; a latent that gates are made of
    BUFFER_GATES,  // of what attention gives
    BUFFER_DECAYS,
    BUFFER_BETAS,
    BUFFER_ATTENDED,
    BUFFER_UNITS,
    BUFFER_EXPERT_SUM,
    BUFFER_INPUTS, // the layers' own
    BUFFER_LOGITS,
    BUFFERS
};

// How a step differs from what a Llama does there. Whoever cannot do all steps asks for those that it knows.
enum trait {
    TRAIT_UNROTATED = 1 << 0,    // ATTEND: queries and keys are as they are at every position
    TRAIT_CAPPED = 1 << 1,       // ATTEND: scores have a soft cap
    TRAIT_SINK_LOGITS = 1 << 2,  // ATTEND: each head has a logit without a key
    TRAIT_GROWING = 1 << 3,      // ATTEND: queries grow with their position
    TRAIT_OTHERS_KEYS = 1 << 4,  // ATTEND: the keys and values are another layer's
    TRAIT_KIND = 1 << 5,         // ATTEND: layers differ in what they see, or in how they rotate
    TRAIT_WIDTH = 1 << 6,        // ATTEND, UNITS: the layer's heads or units are not as many, or as wide, as the model's
    TRAIT_WHOLE = 1 << 7,        // HEAD_NORM: all heads together, not each alone
    TRAIT_VALUES = 1 << 8,       // HEAD_NORM: each head of v, too, without weights
    TRAIT_BARE = 1 << 9,         // what is read is rmsnorm(in) without weights
    TRAIT_NORM_BEHIND = 1 << 10, // ADD: what is added is its rmsnorm
    TRAIT_ACTIVATION = 1 << 11,  // UNITS, EXPERTS, GATE_INPUT: another activation than SiLU
    TRAIT_BOTH_WAYS = 1 << 12,   // ATTEND: a token sees those behind it, too
    TRAIT_UNGATED = 1 << 13,     // UNITS, EXPERTS: of one matrix
    TRAIT_LAYER_NORM = 1 << 14,  // of all norms that the step has: LayerNorm
    TRAIT_ROWS = 1 << 15,        // EMBED: positions or types have rows of their own
    TRAIT_LATENT = 1 << 16,      // ATTEND: rows of keys are the values, too; HEAD_NORM: of latents
    TRAIT_GROUPS = 1 << 17,      // ROUTE: among experts of the best groups
    TRAIT_ALIBI = 1 << 18,       // ATTEND: scores fall with the distance
    TRAIT_SCAN = 1 << 19,        // RECUR: a selective state space, in the delta rule's place
    TRAIT_CHANNELS = 1 << 20,    // RECUR: channels of keys have decays of their own, and gates are sigmoids
    TRAIT_WEIGHTED = 1 << 21,    // HEAD_NORM: without weights; ATTEND: rotated queries are multiplied by the norm's weights
};
enum {
    TRAITS_OF_ATTENTION = TRAIT_UNROTATED | TRAIT_CAPPED | TRAIT_SINK_LOGITS | TRAIT_GROWING | TRAIT_OTHERS_KEYS | TRAIT_KIND |
                          TRAIT_BOTH_WAYS | TRAIT_LATENT | TRAIT_ALIBI,
};

enum { STEP_MATRICES = 6, NOT_OBSERVED = -1 };

// ATTEND: what a query is multiplied by. It grows by 1 + growth ln(1 + position / context), rounded down; growth 0: not.
struct query_scale {
    float scale, growth;
    int context;
};

// ATTEND, HEAD_NORM and GATE around it, RECUR and CONVOLVE: what sort of layer it is.
struct attending {
    int kind;            // of layers: which rotation, and whose window
    int seen, seen_kind; // the layer whose keys and values are seen, mostly its own
    int place, layers;   // of that one among those of its kind, and how many these are
    int n_heads, n_kv_heads, head_dim;
};

// HEADS: floats of a head in `in` and in `out`; the last so many of the former become the last of the latter.
struct per_head {
    int n, in, out, kept;
};

struct step {
    enum op op;
    int layer; // -1: before the first; n_layers: behind the last
    const struct matrix *w[STEP_MATRICES];
    const float *bias[STEP_MATRICES]; // NULL: none
    enum recipe_buffer in, out[STEP_MATRICES];
    int n_w;
    int n_narrow; // the last so many of w: float32, and of few rows
    int n_exact;  // the first so many of w: rounding what they read costs the most
    const struct matrix *table;
    const float *norm;                   // what is read is rmsnorm(in), or LayerNorm of it; NULL: `in` as it is
    const float *norm_bias;              // of LayerNorm; NULL: none
    const float *post_norm;              // what is added is its rmsnorm; NULL: as it is
    const struct layer_weights *weights; // the layer's: of ops that need more than w; else NULL
    // EMBED, CAP: above; ATTEND: the soft cap of scores; ROUTE, EXPERTS: a factor of the weights. 0: none
    float number;
    struct query_scale query;
    struct attending attending;
    struct per_head heads;
    const struct delta_config *delta; // RECUR, CONVOLVE
    int n_experts, n_active;          // ROUTE, EXPERTS
    bool raw_weights;                 // likewise: not brought to the sum 1
    enum activation activation;
    unsigned traits;
    int observed;    // the input's number (model/importance.h), or NOT_OBSERVED
    bool ends_block; // ranks' parts of what was added are summed
    bool ends_layer;
};

// Of a token: bytes of weights that are read, multiplications and additions without attention's.
struct cost {
    double bytes, ops;
};

struct recipe {
    struct step *steps; // (n)
    int n;
    int tail;       // the first step that is needed of a prompt's last token alone
    int classifier; // the step that gives logits
    unsigned ops;   // those of all steps: bits 1 << op
    unsigned traits;
    struct cost cost, tail_cost; // of all steps; of those from `tail` on
    type_set types;              // of all matrices that are multiplied but narrow ones
    type_set block_types;        // of those that read an observed input in a layer
    int width[BUFFERS];          // floats of a token: the most that any step writes there, or reads
};

// The recipe without its steps, for whoever only asks what they are.
struct recipe recipe_outline(const struct model_config *config, const struct model_weights *weights);
// false: out of memory. The steps point into `weights`.
bool recipe_open(struct recipe *recipe, const struct model_config *config, const struct model_weights *weights);
void recipe_close(struct recipe *recipe);

// Its steps, a line for each sort of layers; the text's length, as snprintf() gives it.
size_t recipe_text(const struct recipe *recipe, char *text, size_t room);

static inline float query_scale_at(const struct query_scale *query, int64_t position)
{
    if (query->growth == 0)
        return query->scale;
    return query->scale * (1.0f + query->growth * logf(1.0f + (float)(position / query->context)));
}
// Whether all ops and traits are among these.
static inline bool recipe_within(const struct recipe *recipe, unsigned ops, unsigned traits)
{
    return !(recipe->ops & ~ops) && !(recipe->traits & ~traits);
}
// Whether methods that select keys serve it: tokens come one by one, see those before them, however far away, and have keys
// beside values.
static inline bool recipe_selects(const struct recipe *recipe)
{
    return !(recipe->traits & (TRAIT_BOTH_WAYS | TRAIT_LATENT | TRAIT_ALIBI));
}
