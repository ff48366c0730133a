// Binds the names of docs/format.md, "tensors", to the table.

#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct binder {
    struct model_weights *weights;
    const struct model_config *config;
    const struct container *container;
    yalm_error *error;
    bool *bound;        // (container->n_tensors)
    yalm_status status; // the first failure; all calls after it do nothing
};

static void fail_shape(struct binder *b, const struct tensor *t, int64_t rows, int64_t cols)
{
    char found[128], expected[64];
    size_t n = 0;
    for (int i = 0; i < t->rank; i++)
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    snprintf(expected, sizeof expected, cols ? "%lld, %lld" : "%lld", (long long)rows, (long long)cols);
    b->status = error_set(b->error, YALM_BAD_MODEL, "%s: tensor '%s': shape: found (%s), expected (%s)",
                          b->container->mapping.path, t->name, found, expected);
}

// The tensor with this name and shape, (rows, cols) or, with cols = 0, (rows); NULL after a failure.
static const struct tensor *take(struct binder *b, const char *name, int64_t rows, int64_t cols, bool weights)
{
    if (b->status != YALM_OK)
        return NULL;
    const struct tensor *t = container_find(b->container, name);
    if (!t) {
        b->status = error_set(b->error, YALM_BAD_MODEL, "%s: tensor '%s' is missing", b->container->mapping.path, name);
        return NULL;
    }
    if (t->rank != (cols ? 2 : 1) || t->shape[0] != rows || (cols && t->shape[1] != cols)) {
        fail_shape(b, t, rows, cols);
        return NULL;
    }
    if (weights ? (int)t->dtype >= DTYPE_WEIGHTS : t->dtype != DTYPE_FP32) {
        b->status =
            error_set(b->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype: found %s, expected %s", b->container->mapping.path,
                      name, dtype_names[t->dtype],
                      weights ? "fp32, fp16, bf16, bf12, fp8, fp8_e5m2, q8, q6, q5, q4n, q4, q3, q2, q6k, q5k, q5u, q4k, q5a, "
                                "q4a, mxfp4, iq4nl, iq4xs, q4z32, q4z64, q4z128, q3k, q2k, iq3s, iq3xxs, iq2s, iq2xs or iq2xxs"
                              : "fp32");
        return NULL;
    }
    struct model_weights *w = b->weights;
    b->bound[t - b->container->tensors] = true;
    w->bytes += t->length;
    w->n_params += rows * (cols ? cols : 1);
    return t;
}

static struct matrix take_matrix(struct binder *b, const char *name, int rows, int cols, bool weights)
{
    const struct tensor *t = take(b, name, rows, cols, weights);
    return t ? (struct matrix){t->data, t->dtype, rows, cols} : (struct matrix){0};
}

static const float *take_vector(struct binder *b, const char *name, int n)
{
    const struct tensor *t = take(b, name, n, 0, false);
    return t ? t->data : NULL;
}

// "layers.N.name", or with expert >= 0 "layers.N.experts.E.name".
struct tensor_name {
    char text[64];
};

static struct tensor_name layer_name(int layer, int expert, const char *name)
{
    struct tensor_name n;
    if (expert >= 0)
        snprintf(n.text, sizeof n.text, "layers.%d.experts.%d.%s", layer, expert, name);
    else
        snprintf(n.text, sizeof n.text, "layers.%d.%s", layer, name);
    return n;
}

static void bind_norms(struct binder *b, struct layer_weights *w, int l)
{
    const struct model_config *c = b->config;
    const bool bare = c->bare_first && l == 0;
    const float *attention = bare ? NULL : take_vector(b, layer_name(l, -1, "attention_norm").text, c->hidden_dim);
    const bool no_norm = c->one_norm || c->no_ffn_layer[l];
    const float *ffn = no_norm ? attention : take_vector(b, layer_name(l, -1, "ffn_norm").text, c->hidden_dim);
    if (c->norm_bias && attention)
        w->attention_norm_bias = take_vector(b, layer_name(l, -1, "attention_norm_bias").text, c->hidden_dim);
    if (c->norm_bias)
        w->ffn_norm_bias =
            c->one_norm ? w->attention_norm_bias : take_vector(b, layer_name(l, -1, "ffn_norm_bias").text, c->hidden_dim);
    *(c->norms_after ? &w->attention_post_norm : &w->attention_norm) = attention;
    *(c->norms_after ? &w->ffn_post_norm : &w->ffn_norm) = ffn;
    if (c->norms_around) {
        w->attention_post_norm = take_vector(b, layer_name(l, -1, "attention_post_norm").text, c->hidden_dim);
        w->ffn_post_norm = take_vector(b, layer_name(l, -1, "ffn_post_norm").text, c->hidden_dim);
    }
}

static void bind_recurrence(struct binder *b, struct layer_weights *w, int l)
{
    const struct delta_config *d = config_delta(b->config, l);
    const int dim = b->config->hidden_dim, keys = delta_keys(d), values = delta_values(d);
    w->q = take_matrix(b, layer_name(l, -1, "q").text, keys, dim, true);
    w->k = take_matrix(b, layer_name(l, -1, "k").text, keys, dim, true);
    w->v = take_matrix(b, layer_name(l, -1, "v").text, values, dim, true);
    w->o = take_matrix(b, layer_name(l, -1, "o").text, dim, values, true);
    w->delta.conv = take_matrix(b, layer_name(l, -1, "conv").text, d->conv_width, delta_channels(d), false).data;
    if (d->kda_rank) {
        w->delta.decay_a = take_matrix(b, layer_name(l, -1, "decay_a").text, d->kda_rank, dim, true);
        w->delta.decay_b = take_matrix(b, layer_name(l, -1, "decay_b").text, delta_decays(d), d->kda_rank, true);
        w->delta.gate_a = take_matrix(b, layer_name(l, -1, "gate_a").text, d->kda_rank, dim, true);
        w->delta.gate_b = take_matrix(b, layer_name(l, -1, "gate_b").text, values, d->kda_rank, true);
    } else {
        w->output_gate = take_matrix(b, layer_name(l, -1, "output_gate").text, values, dim, true);
        w->delta.decay = take_matrix(b, layer_name(l, -1, "decay").text, d->n_value_heads, dim, false);
    }
    w->delta.beta = take_matrix(b, layer_name(l, -1, "beta").text, d->n_value_heads, dim, false);
    w->delta.decay_bias = take_vector(b, layer_name(l, -1, "decay_bias").text, delta_decays(d));
    w->delta.decay_rate = take_vector(b, layer_name(l, -1, "decay_rate").text, d->n_value_heads);
    w->delta.value_norm = take_vector(b, layer_name(l, -1, "value_norm").text, d->value_dim);
}

static void bind_convolution(struct binder *b, struct layer_weights *w, int l)
{
    const struct delta_config *d = config_delta(b->config, l);
    const int dim = b->config->hidden_dim;
    const struct {
        const char *name, *bias;
        struct matrix *matrix;
        const float **to;
    } products[] = {
        {"q", "q_bias", &w->q, &w->q_bias},
        {"k", "k_bias", &w->k, &w->k_bias},
        {"v", "v_bias", &w->v, &w->v_bias},
        {"o", "o_bias", &w->o, &w->o_bias},
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        *products[i].matrix = take_matrix(b, layer_name(l, -1, products[i].name).text, dim, dim, true);
        if (d->conv_bias)
            *products[i].to = take_vector(b, layer_name(l, -1, products[i].bias).text, dim);
    }
    w->delta.conv = take_matrix(b, layer_name(l, -1, "conv").text, d->conv_width, dim, false).data;
    if (d->conv_bias)
        w->delta.conv_bias = take_vector(b, layer_name(l, -1, "conv_bias").text, dim);
}

static void bind_scan(struct binder *b, struct layer_weights *w, int l)
{
    const struct delta_config *d = config_delta(b->config, l);
    const int dim = b->config->hidden_dim, keys = delta_keys(d), values = delta_values(d);
    w->scan.c = take_matrix(b, layer_name(l, -1, "scan.c").text, keys, dim, true);
    w->scan.b = take_matrix(b, layer_name(l, -1, "scan.b").text, keys, dim, true);
    w->scan.x = take_matrix(b, layer_name(l, -1, "scan.x").text, values, dim, true);
    w->scan.z = take_matrix(b, layer_name(l, -1, "scan.z").text, values, dim, true);
    w->scan.o = take_matrix(b, layer_name(l, -1, "scan.o").text, dim, values, true);
    w->scan.skip = take_vector(b, layer_name(l, -1, "scan.skip").text, d->n_value_heads);
    w->delta.conv = take_matrix(b, layer_name(l, -1, "scan.conv").text, d->conv_width, delta_channels(d), false).data;
    if (d->scan.conv_bias)
        w->scan.conv_bias = take_vector(b, layer_name(l, -1, "scan.conv_bias").text, delta_channels(d));
    w->delta.decay = take_matrix(b, layer_name(l, -1, "scan.dt").text, d->n_value_heads, dim, false);
    w->delta.decay_bias = take_vector(b, layer_name(l, -1, "scan.dt_bias").text, d->n_value_heads);
    w->delta.decay_rate = take_vector(b, layer_name(l, -1, "scan.rate").text, d->n_value_heads);
    if (d->scan.norm_groups)
        w->delta.value_norm = take_vector(b, layer_name(l, -1, "scan.norm").text, values);
}

static void bind_attention(struct binder *b, struct layer_weights *w, int l)
{
    const struct model_config *c = b->config;
    const int head_dim = config_head_dim(c, l), q_dim = c->n_heads * head_dim, kv_dim = config_kv_heads(c, l) * head_dim;
    const bool biased = c->attention_bias || c->qkv_bias, keeps = config_kv_layer(c, l) == l;
    w->q = take_matrix(b, layer_name(l, -1, "q").text, q_dim, c->hidden_dim, true);
    if (keeps) {
        w->k = take_matrix(b, layer_name(l, -1, "k").text, kv_dim, c->hidden_dim, true);
        w->v = take_matrix(b, layer_name(l, -1, "v").text, kv_dim, c->hidden_dim, true);
    }
    w->o = take_matrix(b, layer_name(l, -1, "o").text, c->hidden_dim, q_dim, true);
    if (biased)
        w->q_bias = take_vector(b, layer_name(l, -1, "q_bias").text, q_dim);
    if (biased && keeps) {
        w->k_bias = take_vector(b, layer_name(l, -1, "k_bias").text, kv_dim);
        w->v_bias = take_vector(b, layer_name(l, -1, "v_bias").text, kv_dim);
    }
    if (c->output_gate)
        w->output_gate = take_matrix(b, layer_name(l, -1, "output_gate").text, q_dim, c->hidden_dim, true);
    if (c->output_gate && w->q_bias)
        w->output_gate_bias = take_vector(b, layer_name(l, -1, "output_gate_bias").text, q_dim);
    if (c->attention_bias)
        w->o_bias = take_vector(b, layer_name(l, -1, "o_bias").text, c->hidden_dim);
    if (c->sink_logits)
        w->sink_logits = take_vector(b, layer_name(l, -1, "sink_logits").text, c->n_heads);
    if (c->activation == ACTIVATION_XIELU)
        w->xielu = take_vector(b, layer_name(l, -1, "xielu").text, 3);
    if (c->qk_norm || c->whole_qk_norm)
        w->q_norm = take_vector(b, layer_name(l, -1, "q_norm").text, c->whole_qk_norm ? q_dim : head_dim);
    if ((c->qk_norm || c->whole_qk_norm) && keeps && !c->rotated_qk_norm)
        w->k_norm = take_vector(b, layer_name(l, -1, "k_norm").text, c->whole_qk_norm ? kv_dim : head_dim);
}

// The types that a matrix of each head has: floats, which are multiplied as they are stored.
static struct matrix take_heads(struct binder *b, const char *name, int rows, int cols)
{
    const struct matrix m = take_matrix(b, name, rows, cols, true);
    if (m.data && m.dtype != DTYPE_FP32 && m.dtype != DTYPE_FP16 && m.dtype != DTYPE_BF16)
        b->status = error_set(b->error, YALM_BAD_MODEL, "%s: tensor '%s': dtype: found %s, expected fp32, fp16 or bf16",
                              b->container->mapping.path, name, dtype_names[m.dtype]);
    return m;
}

static void bind_latent(struct binder *b, struct layer_weights *w, int l)
{
    const struct model_config *c = b->config;
    const struct latent_config *d = &c->latent;
    if (d->q_rank) {
        w->latent.q_a = take_matrix(b, layer_name(l, -1, "q_a").text, d->q_rank, c->hidden_dim, true);
        w->q_norm = take_vector(b, layer_name(l, -1, "q_a_norm").text, d->q_rank);
    }
    w->q = take_matrix(b, layer_name(l, -1, "q").text, c->n_heads * (d->nope_dim + d->rope_dim),
                       d->q_rank ? d->q_rank : c->hidden_dim, true);
    w->k = take_matrix(b, layer_name(l, -1, "kv_a").text, d->kv_rank + d->rope_dim, c->hidden_dim, true);
    w->k_norm = take_vector(b, layer_name(l, -1, "kv_a_norm").text, d->kv_rank);
    w->latent.k_b = take_heads(b, layer_name(l, -1, "k_b").text, c->n_heads * d->kv_rank, d->nope_dim);
    w->latent.v_b = take_heads(b, layer_name(l, -1, "v_b").text, c->n_heads * d->v_dim, d->kv_rank);
    w->o = take_matrix(b, layer_name(l, -1, "o").text, c->hidden_dim, c->n_heads * d->v_dim, true);
}

static void bind_expert(struct binder *b, struct expert_weights *w, int l, int expert)
{
    const struct model_config *c = b->config;
    const int ffn_dim = expert >= 0 ? config_expert_ffn(c) : config_ffn_dim(c, l);
    if (!c->ungated)
        w->gate = take_matrix(b, layer_name(l, expert, "gate").text, ffn_dim, c->hidden_dim, true);
    w->up = take_matrix(b, layer_name(l, expert, "up").text, ffn_dim, c->hidden_dim, true);
    w->down = take_matrix(b, layer_name(l, expert, "down").text, c->hidden_dim, ffn_dim, true);
    if (c->mlp_bias) {
        if (!c->ungated)
            w->gate_bias = take_vector(b, layer_name(l, expert, "gate_bias").text, ffn_dim);
        w->up_bias = take_vector(b, layer_name(l, expert, "up_bias").text, ffn_dim);
        w->down_bias = take_vector(b, layer_name(l, expert, "down_bias").text, c->hidden_dim);
    }
}

static void bind_shared(struct binder *b, struct layer_weights *layer, int l)
{
    struct expert_weights *w = &layer->shared;
    const int dim = b->config->hidden_dim, ffn_dim = b->config->shared_ffn_dim;
    if (!b->config->ungated)
        w->gate = take_matrix(b, layer_name(l, -1, "shared.gate").text, ffn_dim, dim, true);
    w->up = take_matrix(b, layer_name(l, -1, "shared.up").text, ffn_dim, dim, true);
    w->down = take_matrix(b, layer_name(l, -1, "shared.down").text, dim, ffn_dim, true);
    if (b->config->shared_gate)
        layer->shared_router = take_matrix(b, layer_name(l, -1, "shared.router").text, 1, dim, false);
}

// Norms of experts, and factors of their weights.
static void bind_expert_norms(struct binder *b, struct layer_weights *w, int l)
{
    const int dim = b->config->hidden_dim;
    w->expert_norm = take_vector(b, layer_name(l, -1, "expert_norm").text, dim);
    w->expert_post_norm = take_vector(b, layer_name(l, -1, "expert_post_norm").text, dim);
    w->shared_post_norm = take_vector(b, layer_name(l, -1, "shared_post_norm").text, dim);
    w->router_scale = take_vector(b, layer_name(l, -1, "router_scale").text, b->config->n_experts);
}

static void bind_input(struct binder *b, struct layer_weights *w, int l)
{
    const int dim = b->config->hidden_dim, inputs = b->config->layer_input_dim;
    w->input_gate = take_matrix(b, layer_name(l, -1, "input_gate").text, inputs, dim, true);
    w->input_projection = take_matrix(b, layer_name(l, -1, "input_projection").text, dim, inputs, true);
    w->input_norm = take_vector(b, layer_name(l, -1, "input_norm").text, dim);
}

// What the layers' inputs are made of.
static void bind_inputs(struct binder *b)
{
    struct model_weights *w = b->weights;
    const struct model_config *c = b->config;
    const int all = c->n_layers * c->layer_input_dim;
    w->layer_embedding = take_matrix(b, "layer_embedding", c->vocab_size, all, true);
    w->layer_projection = take_matrix(b, "layer_projection", all, c->hidden_dim, true);
    w->layer_projection_norm = take_vector(b, "layer_projection_norm", c->layer_input_dim);
}

static void bind_experts(struct binder *b, struct layer_weights *w, int l)
{
    const struct model_config *c = b->config;
    const int n = c->n_experts ? c->n_experts : 1;
    w->experts = b->weights->layers[0].experts + (size_t)l * n; // one block for all layers
    if (c->no_ffn_layer[l])
        return;
    if (!config_has_experts(c, l)) {
        bind_expert(b, w->experts, l, -1);
        return;
    }
    w->router = take_matrix(b, layer_name(l, -1, "router").text, n, c->hidden_dim, false);
    if (c->router_bias)
        w->router_bias = take_vector(b, layer_name(l, -1, "router_bias").text, n);
    if (c->sigmoid_router || c->softmax_choice_bias)
        w->router_choice_bias = take_vector(b, layer_name(l, -1, "router_choice_bias").text, n);
    if (c->shared_ffn_dim)
        bind_shared(b, w, l);
    if (c->expert_norms)
        bind_expert_norms(b, w, l);
    for (int e = 0; e < n && b->status == YALM_OK; e++)
        bind_expert(b, &w->experts[e], l, e);
}

// Tensors that nobody took. Those of the tokenizer are its own business.
static void check_extra(struct binder *b)
{
    for (int i = 0; i < b->container->n_tensors && b->status == YALM_OK; i++) {
        const char *name = b->container->tensors[i].name;
        if (!b->bound[i] && strncmp(name, "tokenizer.", strlen("tokenizer.")) != 0)
            b->status = error_set(b->error, YALM_BAD_MODEL, "%s: tensor '%s' has no place in this architecture",
                                  b->container->mapping.path, name);
    }
}

// What is added to the embedding, and its norm.
static void bind_embedding(struct binder *b)
{
    struct model_weights *w = b->weights;
    const struct model_config *c = b->config;
    if (c->learned_positions)
        w->positions = take_matrix(b, "positions", c->context_length, c->hidden_dim, false);
    if (c->n_token_types)
        w->token_types = take_matrix(b, "token_types", c->n_token_types, c->hidden_dim, false);
    if (c->alibi)
        w->alibi_slopes = take_vector(b, "alibi_slopes", c->n_heads);
    if (c->embedding_norm)
        w->embedding_norm = take_vector(b, "embedding_norm", c->hidden_dim);
    if (c->embedding_norm && c->norm_bias)
        w->embedding_norm_bias = take_vector(b, "embedding_norm_bias", c->hidden_dim);
}

// What comes behind pooling, and what scores two texts.
static void bind_heads(struct binder *b)
{
    struct model_weights *w = b->weights;
    const struct model_config *c = b->config;
    for (int i = 0; i < c->n_dense; i++) {
        struct tensor_name name;
        snprintf(name.text, sizeof name.text, "dense.%d", i);
        w->dense[i] = take_matrix(b, name.text, c->dense_dims[i], i ? c->dense_dims[i - 1] : c->hidden_dim, false);
    }
    if (c->scores && c->score_by == POOLING_LAST)
        w->score_out = take_matrix(b, "score.out", 1, c->hidden_dim, false);
    if (!c->scores || c->score_by == POOLING_LAST)
        return;
    w->score_dense = take_matrix(b, "score.dense", c->hidden_dim, c->hidden_dim, false);
    if (c->score_normed)
        w->score_norm = take_vector(b, "score.norm", c->hidden_dim);
    else
        w->score_dense_bias = take_vector(b, "score.dense_bias", c->hidden_dim);
    if (c->score_normed && c->norm_bias)
        w->score_norm_bias = take_vector(b, "score.norm_bias", c->hidden_dim);
    w->score_out = take_matrix(b, "score.out", 1, c->hidden_dim, false);
    w->score_out_bias = take_vector(b, "score.out_bias", 1);
}

static void bind_all(struct binder *b)
{
    struct model_weights *w = b->weights;
    const struct model_config *c = b->config;
    w->embedding = take_matrix(b, "embedding", c->vocab_size, c->hidden_dim, true);
    bind_embedding(b);
    if (c->layer_input_dim)
        bind_inputs(b);
    for (int l = 0; l < config_n_listed(c) && b->status == YALM_OK; l++) {
        bind_norms(b, &w->layers[l], l);
        if (config_delta(c, l)->conv_dim)
            bind_convolution(b, &w->layers[l], l);
        else if (config_is_recurrent(c, l))
            (config_delta(c, l)->scan.there ? bind_scan : bind_recurrence)(b, &w->layers[l], l);
        if (config_attends(c, l))
            (c->latent.kv_rank ? bind_latent : bind_attention)(b, &w->layers[l], l);
        bind_experts(b, &w->layers[l], l);
        if (c->layer_input_dim)
            bind_input(b, &w->layers[l], l);
        if (c->layer_scale)
            w->layers[l].scale = take_vector(b, layer_name(l, -1, "scale").text, 1);
    }
    if (!c->post_norm)
        w->norm = take_vector(b, "norm", c->hidden_dim);
    if (c->norm_bias && !c->post_norm)
        w->norm_bias = take_vector(b, "norm_bias", c->hidden_dim);
    bind_heads(b);
    w->classifier = c->tied_embeddings ? w->embedding : take_matrix(b, "classifier", c->vocab_size, c->hidden_dim, true);
    if (c->classifier_bias)
        w->classifier_bias = take_vector(b, "classifier_bias", c->vocab_size);
    if (c->mtp.there) {
        w->mtp_projection = take_matrix(b, "mtp.projection", c->hidden_dim, 2 * c->hidden_dim, true);
        w->mtp_embedding_norm = take_vector(b, "mtp.embedding_norm", c->hidden_dim);
        w->mtp_hidden_norm = take_vector(b, "mtp.hidden_norm", c->hidden_dim);
        w->mtp_norm = take_vector(b, "mtp.norm", c->hidden_dim);
    }
    check_extra(b);
}

yalm_status weights_bind(struct model_weights *weights, const struct model_config *config, const struct container *container,
                         yalm_error *error)
{
    *weights = (struct model_weights){0};
    const size_t n_layers = (size_t)config_n_listed(config), n_experts = (size_t)(config->n_experts ? config->n_experts : 1);
    struct binder b = {weights, config, container, error, calloc((size_t)container->n_tensors, 1), YALM_OK};
    struct expert_weights *experts = calloc(n_layers * n_experts, sizeof *experts);
    weights->layers = calloc(n_layers, sizeof *weights->layers);
    if (b.bound && experts && weights->layers) {
        weights->layers[0].experts = experts;
        bind_all(&b);
    } else {
        b.status =
            error_set(error, YALM_NO_MEMORY, "%s: no memory for the pointers of %zu layers", container->mapping.path, n_layers);
        if (!weights->layers)
            free(experts);
        else
            weights->layers[0].experts = experts;
    }
    free(b.bound);
    if (b.status != YALM_OK)
        weights_free(weights);
    return b.status;
}

void weights_free(struct model_weights *weights)
{
    if (weights->layers)
        free(weights->layers[0].experts);
    free(weights->layers);
    *weights = (struct model_weights){0};
}
