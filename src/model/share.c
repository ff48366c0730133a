#include "model/share.h"

#include <stdlib.h>

#include "model/share_copy.h"
#include "util/error.h"
#include "util/memory.h"

// ------------------------------------------------------------------------------------------ who has what

// `n` items in units of `unit`, of which the last may be short: the units that rank `rank` has.
static struct share_span cut(int n, int unit, int rank, int n_ranks)
{
    const int64_t units = (n + unit - 1) / unit;
    const int first = (int)(units * rank / n_ranks) * unit, last = (int)(units * (rank + 1) / n_ranks) * unit;
    return (struct share_span){first, last < n ? last : n};
}

static int greatest_divisor(int a, int b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// Columns that stay together in a matrix of this type.
static int cols_unit(enum dtype type)
{
    return dtype_in_eights(type) ? QUANT_EIGHT_COLS : dtype_group_bytes[type] ? QUANT_GROUP : 1;
}

static int least_multiple(int a, int b)
{
    return a / greatest_divisor(a, b) * b;
}

// Query heads that stay together: with all that share their KV heads, whatever the layer's kind, and so that their columns of
// o begin with a group.
static int heads_unit(const struct model_config *c, const struct model_weights *w)
{
    int unit = 1;
    for (int l = 0; l < c->n_layers; l++) {
        const int cols = cols_unit(w->layers[l].o.dtype), width = c->latent.kv_rank ? c->latent.v_dim : config_head_dim(c, l);
        if (config_is_recurrent(c, l))
            continue;
        if (!c->latent.kv_rank) // a latent is all heads', so they can be cut anywhere
            unit = least_multiple(unit, c->n_heads / config_kv_heads(c, l));
        unit = least_multiple(unit, cols / greatest_divisor(width, cols));
    }
    return unit;
}

// What is cut of a kind of recurrent layers: key heads, or channels of a convolution alone.
static int delta_parts(const struct delta_config *d)
{
    return d->conv_dim ? d->conv_dim : d->n_key_heads;
}

// How many of these stay together, likewise: key heads with the value heads that go with them.
static int delta_unit(const struct model_config *c, const struct model_weights *w, int kind)
{
    const struct delta_config *d = &c->kinds[kind].delta;
    int unit = 1;
    for (int l = 0; l < c->n_layers && !config_kind_attends(c, kind); l++) {
        const int cols = cols_unit(w->layers[l].o.dtype);
        if (c->kind_of_layer[l] != kind)
            continue;
        if (d->tiled && d->n_key_heads * d->value_dim % cols != 0)
            return d->n_key_heads;
        const int width = d->conv_dim ? 1 : d->tiled ? d->value_dim : delta_values(d) / d->n_key_heads;
        unit = least_multiple(unit, cols / greatest_divisor(width, cols));
    }
    return unit;
}

// Components between gate and up, and down, that stay together.
static int ffn_unit(const struct model_config *c, const struct model_weights *w)
{
    int unit = QUANT_GROUP;
    for (int l = 0; l < c->n_layers; l++) {
        const struct layer_weights *layer = &w->layers[l];
        const int n_experts = layer->router.data ? c->n_experts : 1;
        for (int e = 0; e < n_experts; e++)
            unit = cols_unit(layer->experts[e].down.dtype) > unit ? QUANT_EIGHT_COLS : unit;
        unit = layer->shared.up.data && cols_unit(layer->shared.down.dtype) > unit ? QUANT_EIGHT_COLS : unit;
    }
    return unit;
}

static int units_of(int n, int unit)
{
    return (n + unit - 1) / unit;
}

int share_most_ranks(const struct model_config *c, const struct model_weights *w)
{
    const int unit = ffn_unit(c, w);
    int most = units_of(c->n_heads, heads_unit(c, w));
    for (int kind = 0; kind < config_n_kinds(c); kind++) {
        const int recurrent = units_of(delta_parts(&c->kinds[kind].delta), delta_unit(c, w, kind));
        most = !config_kind_attends(c, kind) && recurrent < most ? recurrent : most;
    }
    for (int l = 0; l < c->n_layers; l++) {
        const int ffn = units_of(w->layers[l].experts[0].up.rows, unit);
        const int shared = w->layers[l].shared.up.data ? units_of(c->shared_ffn_dim, unit) : ffn;
        most = ffn < most ? ffn : most;
        most = shared < most ? shared : most;
    }
    return c->vocab_size < most ? c->vocab_size : most;
}

// ------------------------------------------------------------------------------------------ a model's parts

struct divider {
    struct copier copier;
    const struct model_config *config; // the whole's
    int rank, n_ranks, ffn_unit;
    struct share_span heads;                       // query heads
    struct share_span key_heads[CONFIG_MAX_KINDS]; // of recurrent layers: key heads, or channels of a convolution alone
};

static struct pieces one(struct share_span span)
{
    return (struct pieces){span, 1, 0};
}

static struct pieces all(int n)
{
    return one((struct share_span){0, n});
}

static struct pieces times(struct pieces p, int n)
{
    return (struct pieces){{p.span.first * n, p.span.last * n}, p.n, p.apart * n};
}

// Nothing where the model has no such matrix.
static struct matrix copy_some(struct copier *c, const struct matrix *w, struct pieces rows)
{
    return w->data ? copy_rows(c, w, rows) : (struct matrix){0};
}

// A matrix that every rank has whole.
static struct matrix copy_all(struct copier *c, const struct matrix *w)
{
    return copy_some(c, w, all(w->rows));
}

// A bias of what all ranks together add is one rank's.
static const float *once(struct divider *c, const float *bias)
{
    return c->rank == 0 ? copy_floats(&c->copier, bias, all(c->config->hidden_dim)) : NULL;
}

static void cut_attention(struct divider *c, struct layer_weights *part, const struct layer_weights *w, int layer)
{
    const struct model_config *config = c->config;
    const int d = config_head_dim(config, layer), group = config->n_heads / config_kv_heads(config, layer);
    const struct pieces q = times(one(c->heads), d);
    const struct pieces kv = times(one((struct share_span){c->heads.first / group, c->heads.last / group}), d);
    struct copier *to = &c->copier;
    part->q = copy_rows(to, &w->q, q);
    part->k = copy_some(to, &w->k, kv);
    part->v = copy_some(to, &w->v, kv);
    part->output_gate = copy_some(to, &w->output_gate, q);
    part->o = copy_cols(to, &w->o, q);
    part->output_gate_bias = copy_floats(to, w->output_gate_bias, q);
    part->q_bias = copy_floats(to, w->q_bias, q);
    part->k_bias = copy_floats(to, w->k_bias, kv);
    part->v_bias = copy_floats(to, w->v_bias, kv);
    part->o_bias = once(c, w->o_bias);
    part->q_norm = copy_floats(to, w->q_norm, config->whole_qk_norm ? q : all(d));
    part->k_norm = copy_floats(to, w->k_norm, config->whole_qk_norm ? kv : all(d));
    part->sink_logits = copy_floats(to, w->sink_logits, one(c->heads));
}

// Every rank keeps the latents, and makes its heads' keys and values of them.
static void cut_latents(struct divider *c, struct layer_weights *part, const struct layer_weights *w)
{
    const struct latent_config *d = &c->config->latent;
    const struct pieces heads = one(c->heads);
    struct copier *to = &c->copier;
    part->k = copy_all(to, &w->k);
    part->k_norm = copy_floats(to, w->k_norm, all(d->kv_rank));
    part->latent.q_a = copy_all(to, &w->latent.q_a);
    part->q_norm = copy_floats(to, w->q_norm, all(d->q_rank));
    part->q = copy_rows(to, &w->q, times(heads, d->nope_dim + d->rope_dim));
    part->latent.k_b = copy_rows(to, &w->latent.k_b, times(heads, d->kv_rank));
    part->latent.v_b = copy_rows(to, &w->latent.v_b, times(heads, d->v_dim));
    part->o = copy_cols(to, &w->o, times(heads, d->v_dim));
}

// (conv_width, channels of q, k and v)
static const float *cut_convolution(struct copier *c, const float *conv, const struct delta_config *d, struct pieces keys,
                                    struct pieces values)
{
    const size_t channels = 2 * (size_t)pieces_length(keys) + (size_t)pieces_length(values);
    uint8_t *const to = copier_take(c, sizeof *conv * (size_t)d->conv_width * channels), *at = to;
    for (int tap = 0; to && tap < d->conv_width; tap++, conv += delta_channels(d)) {
        at = copy_pieces(at, (const uint8_t *)conv, keys, sizeof *conv);
        at = copy_pieces(at, (const uint8_t *)(conv + delta_keys(d)), keys, sizeof *conv);
        at = copy_pieces(at, (const uint8_t *)(conv + 2 * delta_keys(d)), values, sizeof *conv);
    }
    return (const float *)to;
}

// Key heads, with the value heads that go with them: in tiles those of each tile, else neighbours.
static void cut_recurrence(struct divider *c, struct layer_weights *part, const struct layer_weights *w, int layer)
{
    const struct delta_config *d = config_delta(c->config, layer);
    const struct share_span key_heads = c->key_heads[c->config->kind_of_layer[layer]];
    const int each = d->n_value_heads / d->n_key_heads;
    const struct pieces heads = d->tiled ? (struct pieces){key_heads, each, d->n_key_heads} : times(one(key_heads), each);
    const struct pieces keys = times(one(key_heads), d->key_dim), values = times(heads, d->value_dim);
    const struct pieces decays = times(heads, delta_head_decays(d));
    struct copier *to = &c->copier;
    part->q = copy_rows(to, &w->q, keys);
    part->k = copy_rows(to, &w->k, keys);
    part->v = copy_rows(to, &w->v, values);
    part->output_gate = copy_some(to, &w->output_gate, values);
    part->o = copy_cols(to, &w->o, values);
    part->delta.conv = cut_convolution(to, w->delta.conv, d, keys, values);
    part->delta.decay = copy_some(to, &w->delta.decay, heads);
    part->delta.decay_a = copy_all(to, &w->delta.decay_a);
    part->delta.decay_b = copy_some(to, &w->delta.decay_b, decays);
    part->delta.gate_a = copy_all(to, &w->delta.gate_a);
    part->delta.gate_b = copy_some(to, &w->delta.gate_b, values);
    part->delta.beta = copy_rows(to, &w->delta.beta, heads);
    part->delta.decay_bias = copy_floats(to, w->delta.decay_bias, decays);
    part->delta.decay_rate = copy_floats(to, w->delta.decay_rate, heads);
    part->delta.value_norm = copy_floats(to, w->delta.value_norm, all(d->value_dim));
}

static void cut_channels(struct divider *c, struct layer_weights *part, const struct layer_weights *w, int layer)
{
    const struct delta_config *d = config_delta(c->config, layer);
    const struct pieces channels = one(c->key_heads[c->config->kind_of_layer[layer]]);
    struct copier *to = &c->copier;
    part->q = copy_rows(to, &w->q, channels);
    part->k = copy_rows(to, &w->k, channels);
    part->v = copy_rows(to, &w->v, channels);
    part->o = copy_cols(to, &w->o, channels);
    part->q_bias = copy_floats(to, w->q_bias, channels);
    part->k_bias = copy_floats(to, w->k_bias, channels);
    part->v_bias = copy_floats(to, w->v_bias, channels);
    part->o_bias = once(c, w->o_bias);
    const size_t row = sizeof(float) * (size_t)pieces_length(channels);
    uint8_t *taps = copier_take(to, row * (size_t)d->conv_width);
    part->delta.conv = (const float *)taps;
    for (int tap = 0; taps && tap < d->conv_width; tap++, taps += row)
        copy_pieces(taps, (const uint8_t *)(w->delta.conv + (size_t)tap * d->conv_dim), channels, sizeof(float));
    part->delta.conv_bias = copy_floats(to, w->delta.conv_bias, channels);
}

static void cut_units(struct divider *c, struct expert_weights *part, const struct expert_weights *w)
{
    if (!w->up.data)
        return;
    const struct pieces units = one(cut(w->up.rows, c->ffn_unit, c->rank, c->n_ranks));
    part->gate = copy_some(&c->copier, &w->gate, units);
    part->up = copy_rows(&c->copier, &w->up, units);
    part->down = copy_cols(&c->copier, &w->down, units);
    part->gate_bias = copy_floats(&c->copier, w->gate_bias, units);
    part->up_bias = copy_floats(&c->copier, w->up_bias, units);
    part->down_bias = once(c, w->down_bias);
}

// What is added to x or multiplies it without a sum over ranks: every rank does all of that.
static void copy_layer_end(struct divider *c, struct layer_weights *part, const struct layer_weights *w)
{
    part->shared_router = copy_all(&c->copier, &w->shared_router);
    part->input_gate = copy_all(&c->copier, &w->input_gate);
    part->input_projection = copy_all(&c->copier, &w->input_projection);
    part->input_norm = copy_floats(&c->copier, w->input_norm, all(c->config->hidden_dim));
    part->scale = copy_floats(&c->copier, w->scale, all(1));
}

static void cut_layer(struct divider *c, struct layer_weights *part, const struct layer_weights *w, int layer)
{
    const int dim = c->config->hidden_dim, n_experts = w->router.data ? c->config->n_experts : 1;
    part->attention_norm = copy_floats(&c->copier, w->attention_norm, all(dim));
    part->attention_norm_bias = copy_floats(&c->copier, w->attention_norm_bias, all(dim));
    part->attention_post_norm = copy_floats(&c->copier, w->attention_post_norm, all(dim));
    part->ffn_norm = copy_floats(&c->copier, w->ffn_norm, all(dim));
    part->ffn_norm_bias = copy_floats(&c->copier, w->ffn_norm_bias, all(dim));
    part->ffn_post_norm = copy_floats(&c->copier, w->ffn_post_norm, all(dim));
    part->xielu = copy_floats(&c->copier, w->xielu, all(3));
    if (config_attends(c->config, layer) && c->config->latent.kv_rank)
        cut_latents(c, part, w);
    else
        (config_delta(c->config, layer)->conv_dim ? cut_channels
         : config_is_recurrent(c->config, layer)  ? cut_recurrence
                                                  : cut_attention)(c, part, w, layer);
    part->router = copy_all(&c->copier, &w->router);
    part->router_bias = copy_floats(&c->copier, w->router_bias, all(n_experts));
    part->router_choice_bias = copy_floats(&c->copier, w->router_choice_bias, all(n_experts));
    for (int e = 0; e < n_experts; e++)
        cut_units(c, &part->experts[e], &w->experts[e]);
    cut_units(c, &part->shared, &w->shared);
    copy_layer_end(c, part, w);
}

static void cut_weights(struct divider *c, struct model_weights *part, const struct model_weights *w)
{
    const int dim = c->config->hidden_dim;
    const struct pieces rows = one(share_of_rows(c->config->vocab_size, c->rank, c->n_ranks));
    part->embedding = w->embedding;
    part->positions = w->positions;
    part->token_types = w->token_types;
    part->layer_embedding = w->layer_embedding;
    part->embedding_norm = copy_floats(&c->copier, w->embedding_norm, all(dim));
    part->embedding_norm_bias = copy_floats(&c->copier, w->embedding_norm_bias, all(dim));
    part->alibi_slopes = copy_floats(&c->copier, w->alibi_slopes, one(c->heads));
    part->layer_projection = copy_all(&c->copier, &w->layer_projection);
    part->layer_projection_norm = copy_floats(&c->copier, w->layer_projection_norm, all(c->config->layer_input_dim));
    for (int l = 0; l < c->config->n_layers; l++)
        cut_layer(c, &part->layers[l], &w->layers[l], l);
    part->norm = copy_floats(&c->copier, w->norm, all(dim));
    part->norm_bias = copy_floats(&c->copier, w->norm_bias, all(dim));
    part->classifier = copy_rows(&c->copier, &w->classifier, rows);
    part->classifier_bias = copy_floats(&c->copier, w->classifier_bias, rows);
}

static void cut_kind(struct layer_kind *part, const struct divider *c, int kind)
{
    const struct model_config *whole = c->config;
    const int n_heads = c->heads.last - c->heads.first, n_keys = c->key_heads[kind].last - c->key_heads[kind].first;
    if (part->n_kv_heads)
        part->n_kv_heads = n_heads / (whole->n_heads / part->n_kv_heads);
    if (part->ffn_dim) {
        const struct share_span units = cut(part->ffn_dim, c->ffn_unit, c->rank, c->n_ranks);
        part->ffn_dim = units.last - units.first;
    }
    if (part->delta.conv_dim)
        part->delta.conv_dim = n_keys;
    else if (!config_kind_attends(whole, kind)) {
        part->delta.n_value_heads = n_keys * (part->delta.n_value_heads / part->delta.n_key_heads);
        part->delta.n_key_heads = n_keys;
    }
}

static void cut_config(struct model_config *part, const struct divider *c)
{
    const struct model_config *whole = c->config;
    *part = *whole;
    part->first_head = c->heads.first;
    part->all_heads = whole->n_heads;
    part->n_heads = c->heads.last - c->heads.first;
    part->n_kv_heads = whole->latent.kv_rank ? 1 : part->n_heads / (whole->n_heads / whole->n_kv_heads);
    for (int kind = 0; kind < config_n_kinds(whole); kind++)
        cut_kind(&part->kinds[kind], c, kind);
    int *const widths[] = {&part->ffn_dim, &part->expert_ffn_dim, &part->shared_ffn_dim};
    for (int i = 0; i < 3; i++) {
        const struct share_span units = cut(*widths[i], c->ffn_unit, c->rank, c->n_ranks);
        *widths[i] = units.last - units.first;
    }
    const struct share_span rows = share_of_rows(whole->vocab_size, c->rank, c->n_ranks);
    part->vocab_size = rows.last - rows.first;
}

// Pointers for the parts, all empty.
static bool open_layers(struct model_weights *part, const struct model_config *config)
{
    const size_t n_layers = (size_t)config->n_layers, n_experts = (size_t)(config->n_experts ? config->n_experts : 1);
    part->layers = calloc(n_layers, sizeof *part->layers);
    struct expert_weights *experts = calloc(n_layers * n_experts, sizeof *experts);
    if (!part->layers || !experts) {
        free(experts);
        return false;
    }
    part->layers[0].experts = experts; // weights_free()'s
    for (size_t l = 1; l < n_layers; l++)
        part->layers[l].experts = experts + l * n_experts;
    return true;
}

yalm_status share_open(struct model_share *share, const struct model_config *config, const struct model_weights *weights,
                       const struct container *container, int rank, int n_ranks, yalm_error *error)
{
    *share = (struct model_share){0};
    struct divider c = {.config = config, .rank = rank, .n_ranks = n_ranks, .ffn_unit = ffn_unit(config, weights)};
    c.heads = cut(config->n_heads, heads_unit(config, weights), rank, n_ranks);
    for (int kind = 0; kind < config_n_kinds(config); kind++)
        c.key_heads[kind] = cut(delta_parts(&config->kinds[kind].delta), delta_unit(config, weights, kind), rank, n_ranks);
    if (!open_layers(&share->weights, config)) {
        share_close(share);
        return error_set(error, YALM_NO_MEMORY, "no memory for the pointers of %d layers", config->n_layers);
    }
    cut_config(&share->config, &c);
    cut_weights(&c, &share->weights, weights);
    share->bytes = c.copier.used;
    const uint64_t available = memory_available();
    if (share->bytes <= available)
        share->block = memory_pages(share->bytes);
    if (!share->block) {
        const double needed = (double)share->bytes / 1e9;
        share_close(share);
        return error_set(error, YALM_NO_MEMORY,
                         "not enough memory for 1 of %d shares of the weights: needed %.2f GB, available %.2f GB", n_ranks,
                         needed, (double)available / 1e9);
    }
    c.copier = (struct copier){.base = share->block, .mapped = container->mapping.data && !container->mapping.copied};
    cut_weights(&c, &share->weights, weights);
    share->weights.bytes = share->bytes;
    return YALM_OK;
}

void share_close(struct model_share *share)
{
    memory_pages_free(share->block, share->bytes);
    weights_free(&share->weights);
    *share = (struct model_share){0};
}
