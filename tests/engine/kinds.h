// Models whose attention is of another kind: layers of four kinds, as Gemma 4's small ones are, latents, as DeepSeek's, or
// scans in its place or beside it, as Nemotron's and Falcon's, or KDA between latents, as Kimi Linear's.
#pragma once
#include "model/config.h"

// The config's layers, which become six: with a window and without, both with keys and values of their own and with those of a
// layer before; inputs of their own, and a factor behind each.
static inline void give_kinds(struct model_config *c)
{
    const uint8_t kinds[] = {1, 1, 0, 3, 2, 3};
    c->n_layers = sizeof kinds;
    c->n_more_kinds = 3;
    for (int l = 0; l < c->n_layers; l++)
        c->kind_of_layer[l] = kinds[l];
    for (int kind = 1; kind < 4; kind++)
        c->kinds[kind] =
            (struct layer_kind){.shares_keys = kind > 1, .kv_of = kind > 1 ? kind - 2 : 0, .ffn_dim = kind > 1 ? 240 : 0};
    for (int kind = 1; kind < 4; kind += 2) {
        c->kinds[kind].sliding_window = 9;
        c->kinds[kind].head_dim = 2 * c->head_dim;
        c->kinds[kind].n_kv_heads = 1;
    }
    c->norms_around = c->qk_norm = c->v_norm = c->layer_scale = true;
    c->layer_input_dim = 32;
    c->attention_scale = 0.2f;
    c->activation = ACTIVATION_GELU;
}

// The first and the last layer are scans; or all are, beside attention.
static inline void give_scan(struct model_config *c, bool beside, int conv_width)
{
    struct delta_config *d = &c->kinds[!beside].delta;
    *d = (struct delta_config){.n_key_heads = 2, .n_value_heads = 6, .key_dim = 20, .value_dim = 36, .conv_width = conv_width};
    d->scan = (struct scan_config){.there = true, .conv_bias = true, .norm_groups = 3, .norm_eps = 1e-5f, .dt_min = 0.1f};
    c->n_more_kinds = !beside;
    for (int layer = 0; layer < c->n_layers && !beside; layer += 2)
        c->kind_of_layer[layer] = 1;
}

// One latent for all heads' keys and values, and one for queries.
static inline void give_latents(struct model_config *c)
{
    c->latent = (struct latent_config){.q_rank = 40, .kv_rank = 56, .nope_dim = 20, .rope_dim = 8, .v_dim = 12};
    c->n_kv_heads = 1;
    c->head_dim = 56 + 8;
    c->attention_scale = 0.2f;
}

// Every other layer, from the first on, is KDA; the others have latents, and do not rotate.
static inline void give_kda(struct model_config *c, int conv_width)
{
    give_latents(c);
    c->latent.q_rank = 0;
    c->n_more_kinds = 1;
    c->kinds[1].delta = (struct delta_config){
        .n_key_heads = 3, .n_value_heads = 3, .key_dim = 20, .value_dim = 36, .conv_width = conv_width, .kda_rank = 12};
    for (int layer = 0; layer < c->n_layers; layer++) {
        c->kind_of_layer[layer] = layer % 2 == 0;
        c->unrotated_layer[layer] = layer % 2;
        c->n_unrotated_layers += layer % 2;
    }
}
