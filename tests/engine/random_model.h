// A small model with random weights, in memory.
#pragma once
#include "engine/kv_cache.h"
#include "model/mtp.h"
#include "random_matrix.h"

// Decays are between about 0.2 and 0.99, so that a state remembers tokens and forgets them.
static void random_recurrence(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const struct delta_config *d = config_delta(c, layer);
    l->q = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->k = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->v = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    if (!d->kda_rank)
        l->output_gate = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->o = random_matrix(m, dtype, c->hidden_dim, delta_values(d));
    l->delta.conv = random_vector(m, d->conv_width * delta_channels(d), 0.3, 0.5);
    if (d->kda_rank) { // floats, as the converter has them
        const enum dtype of_gates = dtype <= DTYPE_BF16 ? dtype : DTYPE_BF16;
        l->delta.decay_a = random_matrix(m, of_gates, d->kda_rank, c->hidden_dim);
        l->delta.decay_b = random_matrix(m, of_gates, delta_decays(d), d->kda_rank);
        l->delta.gate_a = random_matrix(m, of_gates, d->kda_rank, c->hidden_dim);
        l->delta.gate_b = random_matrix(m, of_gates, delta_values(d), d->kda_rank);
    } else
        l->delta.decay = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.beta = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.decay_bias = random_vector(m, delta_decays(d), -1, 1);
    float *rates = random_vector(m, d->n_value_heads, 0.5, 0.2);
    for (int i = 0; i < d->n_value_heads; i++)
        rates[i] = fabsf(rates[i]);
    l->delta.decay_rate = rates;
    l->delta.value_norm = random_vector(m, d->value_dim, 1, 0.3);
}

// A convolution alone, which sees the oldest of its tokens as well as the last.
static void random_convolution(struct random_model *m, int layer, enum dtype dtype)
{
    const struct delta_config *d = config_delta(&m->model.config, layer);
    struct layer_weights *l = &m->model.weights.layers[layer];
    const int dim = m->model.config.hidden_dim;
    struct matrix *const products[] = {&l->q, &l->k, &l->v, &l->o};
    const float **const biases[] = {&l->q_bias, &l->k_bias, &l->v_bias, &l->o_bias};
    for (int i = 0; i < 4; i++) {
        *products[i] = random_matrix(m, dtype, dim, dim);
        if (d->conv_bias)
            *biases[i] = random_vector(m, dim, 0, 0.5);
    }
    l->delta.conv = random_vector(m, d->conv_width * dim, 0.3, 0.5);
    if (d->conv_bias)
        l->delta.conv_bias = random_vector(m, dim, 0, 0.5);
}

// Steps and decays of all sizes, some beyond the bounds.
static void random_scan(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const struct delta_config *d = config_delta(c, layer);
    l->scan.c = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->scan.b = random_matrix(m, dtype, delta_keys(d), c->hidden_dim);
    l->scan.x = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->scan.z = random_matrix(m, dtype, delta_values(d), c->hidden_dim);
    l->scan.o = random_matrix(m, dtype, c->hidden_dim, delta_values(d));
    l->scan.skip = random_vector(m, d->n_value_heads, 0.7, 0.5);
    l->delta.conv = random_vector(m, d->conv_width * delta_channels(d), 0.3, 0.5);
    if (d->scan.conv_bias)
        l->scan.conv_bias = random_vector(m, delta_channels(d), 0, 0.4);
    l->delta.decay = random_matrix(m, DTYPE_FP32, d->n_value_heads, c->hidden_dim);
    l->delta.decay_bias = random_vector(m, d->n_value_heads, -1, 1);
    float *rates = random_vector(m, d->n_value_heads, 0.5, 0.2);
    for (int i = 0; i < d->n_value_heads; i++)
        rates[i] = fabsf(rates[i]);
    l->delta.decay_rate = rates;
    if (d->scan.norm_groups)
        l->delta.value_norm = random_vector(m, delta_values(d), 1, 0.3);
}

// What Gemma 4 has besides: norms of experts, an input of the layer's own, a factor at its end.
static void random_extras(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    if (l->router.data && c->expert_norms) {
        l->expert_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->expert_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->shared_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->router_scale = random_vector(m, c->n_experts, 1, 0.3);
    }
    if (c->layer_input_dim) {
        l->input_gate = random_matrix(m, dtype, c->layer_input_dim, c->hidden_dim);
        l->input_projection = random_matrix(m, dtype, c->hidden_dim, c->layer_input_dim);
        l->input_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    }
    if (c->layer_scale)
        l->scale = random_vector(m, 1, 0.8, 0.1);
}

static void random_latents(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    const struct latent_config *d = &c->latent;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const enum dtype of_heads = dtype <= DTYPE_BF16 ? dtype : DTYPE_BF16;
    l->q = random_matrix(m, dtype, c->n_heads * (d->nope_dim + d->rope_dim), d->q_rank ? d->q_rank : c->hidden_dim);
    l->k = random_matrix(m, dtype, d->kv_rank + d->rope_dim, c->hidden_dim);
    l->k_norm = random_vector(m, d->kv_rank, 1, 0.3);
    l->o = random_matrix(m, dtype, c->hidden_dim, c->n_heads * d->v_dim);
    l->latent.k_b = random_matrix(m, of_heads, c->n_heads * d->kv_rank, d->nope_dim);
    l->latent.v_b = random_matrix(m, of_heads, c->n_heads * d->v_dim, d->kv_rank);
    if (d->q_rank) {
        l->latent.q_a = random_matrix(m, dtype, d->q_rank, c->hidden_dim);
        l->q_norm = random_vector(m, d->q_rank, 1, 0.3);
    }
}

static void random_layer(struct random_model *m, int layer, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->model.weights.layers[layer];
    const bool experts = config_has_experts(c, layer);
    const int d = config_head_dim(c, layer), q = c->n_heads * d, kv = config_kv_heads(c, layer) * d;
    const int n = c->n_experts ? c->n_experts : 1, ffn = experts ? config_expert_ffn(c) : config_ffn_dim(c, layer);
    const bool keeps = config_kv_layer(c, layer) == layer;
    *(c->norms_after ? &l->attention_post_norm : &l->attention_norm) = random_vector(m, c->hidden_dim, 1, 0.1);
    *(c->norms_after ? &l->ffn_post_norm : &l->ffn_norm) = random_vector(m, c->hidden_dim, 1, 0.1);
    if (c->norm_bias) {
        l->attention_norm_bias = random_vector(m, c->hidden_dim, 0, 0.5);
        l->ffn_norm_bias = random_vector(m, c->hidden_dim, 0, 0.5);
    }
    if (c->norms_around) {
        l->attention_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
        l->ffn_post_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    }
    const bool recurrent = !config_attends(c, layer);
    if (config_delta(c, layer)->conv_dim)
        random_convolution(m, layer, dtype);
    else if (config_is_recurrent(c, layer))
        (config_delta(c, layer)->scan.there ? random_scan : random_recurrence)(m, layer, dtype);
    if (recurrent)
        ;
    else if (c->latent.kv_rank)
        random_latents(m, layer, dtype);
    else {
        l->q = random_matrix(m, dtype, q, c->hidden_dim);
        if (keeps)
            l->k = random_matrix(m, dtype, kv, c->hidden_dim);
        if (keeps)
            l->v = random_matrix(m, dtype, kv, c->hidden_dim);
        l->o = random_matrix(m, dtype, c->hidden_dim, q);
    }
    if (!recurrent && c->output_gate)
        l->output_gate = random_matrix(m, dtype, q, c->hidden_dim);
    if (!recurrent && c->output_gate && (c->attention_bias || c->qkv_bias))
        l->output_gate_bias = random_vector(m, q, 0, 0.5);
    if (!recurrent && (c->qk_norm || c->whole_qk_norm)) {
        l->q_norm = random_vector(m, c->whole_qk_norm ? q : d, 1, 0.3);
        if (keeps && !c->rotated_qk_norm)
            l->k_norm = random_vector(m, c->whole_qk_norm ? kv : d, 1, 0.3);
    }
    if (!recurrent && (c->attention_bias || c->qkv_bias)) {
        l->q_bias = random_vector(m, q, 0, 0.5);
        l->k_bias = random_vector(m, kv, 0, 0.5);
        l->v_bias = random_vector(m, kv, 0, 0.5);
    }
    if (!recurrent && c->attention_bias)
        l->o_bias = random_vector(m, c->hidden_dim, 0, 0.5);
    if (experts)
        l->router = random_matrix(m, DTYPE_FP32, c->n_experts, c->hidden_dim);
    if (experts && (c->sigmoid_router || c->softmax_choice_bias))
        l->router_choice_bias = random_vector(m, c->n_experts, 0, 0.3);
    if (experts && c->shared_ffn_dim) {
        if (!c->ungated)
            l->shared.gate = random_matrix(m, dtype, c->shared_ffn_dim, c->hidden_dim);
        l->shared.up = random_matrix(m, dtype, c->shared_ffn_dim, c->hidden_dim);
        l->shared.down = random_matrix(m, dtype, c->hidden_dim, c->shared_ffn_dim);
        if (c->shared_gate)
            l->shared_router = random_matrix(m, DTYPE_FP32, 1, c->hidden_dim);
    }
    if (experts && c->router_bias)
        l->router_bias = random_vector(m, c->n_experts, 0, 1);
    if (c->sink_logits)
        l->sink_logits = random_vector(m, c->n_heads, 0.5, 1);
    if (c->activation == ACTIVATION_XIELU)
        l->xielu = random_vector(m, 3, 0.7, 0.2);
    l->experts = random_block(m, sizeof *l->experts * n);
    memset(l->experts, 0, sizeof *l->experts * n);
    for (int e = 0; e < (experts ? n : 1); e++) {
        // A file may keep some experts in another type: here every other one of those in q4, q5 or fp8.
        const enum dtype type = (dtype == DTYPE_Q4 || dtype == DTYPE_Q5 || dtype == DTYPE_FP8) && e % 2 ? DTYPE_BF16 : dtype;
        if (!c->ungated)
            l->experts[e].gate = random_matrix(m, type, ffn, c->hidden_dim);
        l->experts[e].up = random_matrix(m, type, ffn, c->hidden_dim);
        l->experts[e].down = random_matrix(m, type, c->hidden_dim, ffn);
        if (c->mlp_bias) {
            l->experts[e].gate_bias = random_vector(m, ffn, 0, 0.5);
            l->experts[e].up_bias = random_vector(m, ffn, 0, 0.5);
            l->experts[e].down_bias = random_vector(m, c->hidden_dim, 0, 0.5);
        }
    }
}

// A head that guesses, with its layer.
static void random_head(struct random_model *m, enum dtype dtype)
{
    const struct model_config *c = &m->model.config;
    struct model_weights *w = &m->model.weights;
    random_layer(m, c->n_layers, dtype);
    w->mtp_projection = random_matrix(m, dtype, c->hidden_dim, 2 * c->hidden_dim);
    w->mtp_embedding_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    w->mtp_hidden_norm = random_vector(m, c->hidden_dim, 1, 0.3);
    w->mtp_norm = random_vector(m, c->hidden_dim, 1, 0.1);
    m->model.mtp_config = mtp_config_of(c);
    m->model.mtp_weights = mtp_weights_of(w, c);
}

// `config` needs its numbers; the rest is filled in. Freed by random_model_free().
static struct random_model *random_model_make(struct model_config config, enum dtype dtype, uint64_t seed)
{
    struct random_model *m = calloc(1, sizeof *m);
    m->seed = seed;
    config.norm_eps = 1e-5f;
    config.latent.norm_eps = 1e-3f; // so that another one shows
    for (int kind = 0; kind < config_n_kinds(&config); kind++) {
        const int like = config.kinds[kind].shares_keys ? config.kinds[kind].kv_of : kind;
        config.kinds[kind].rope = (struct rope_config){
            .type = ROPE_DEFAULT, .rotary_dim = config.kinds[kind].rope.rotary_dim, .theta = like ? 500 : 10000, .factor = 1};
    }
    m->model.config = config;
    struct model_weights *w = &m->model.weights;
    w->embedding = random_matrix(m, dtype, config.vocab_size, config.hidden_dim);
    if (config.learned_positions)
        w->positions = random_matrix(m, DTYPE_FP32, config.context_length, config.hidden_dim);
    if (config.alibi)
        w->alibi_slopes = random_vector(m, config.n_heads, 0.1, 0.05);
    if (config.classifier_bias)
        w->classifier_bias = random_vector(m, config.vocab_size, 0, 0.5);
    w->norm = random_vector(m, config.hidden_dim, 1, 0.1);
    if (config.norm_bias)
        w->norm_bias = random_vector(m, config.hidden_dim, 0, 0.5);
    if (config.embedding_norm)
        w->embedding_norm = random_vector(m, config.hidden_dim, 1, 0.3);
    if (config.embedding_norm && config.norm_bias)
        w->embedding_norm_bias = random_vector(m, config.hidden_dim, 0, 0.5);
    w->classifier = config.tied_embeddings ? w->embedding : random_matrix(m, dtype, config.vocab_size, config.hidden_dim);
    const size_t n_layers = (size_t)config_n_listed(&config);
    w->layers = random_block(m, sizeof *w->layers * n_layers);
    memset(w->layers, 0, sizeof *w->layers * n_layers);
    for (int l = 0; l < config.n_layers; l++) {
        random_layer(m, l, dtype);
        random_extras(m, l, dtype);
    }
    if (config.layer_input_dim) {
        w->layer_embedding = random_matrix(m, dtype, config.vocab_size, config.n_layers * config.layer_input_dim);
        w->layer_projection = random_matrix(m, dtype, config.n_layers * config.layer_input_dim, config.hidden_dim);
        w->layer_projection_norm = random_vector(m, config.layer_input_dim, 1, 0.3);
    }
    if (config.mtp.there)
        random_head(m, dtype);
    return m;
}

static void random_model_free(struct random_model *m)
{
    struct shared *const shared[] = {&m->model.of_cpu, &m->model.mtp_copy, &m->model.weights_copy};
    for (int i = 0; i < 3; i++)
        if (shared[i]->data)
            shared[i]->release(shared[i]->data);
    for (int i = 0; i < m->n_blocks; i++)
        free(m->blocks[i]);
    free(m);
}
