// Small models of every kind that ranks share.
#pragma once
#include "engine/kinds.h"
#include "engine/random_model.h"

enum { VOCAB = 67, N_SHARED_KINDS = 13, N_SHARED_LAYERS = 8 };

static inline struct model_config plain(void)
{
    return (struct model_config){.n_layers = 3,
                                 .hidden_dim = 96,
                                 .ffn_dim = 208, // its last unit is short
                                 .n_heads = 10,
                                 .n_kv_heads = 5,
                                 .head_dim = 16,
                                 .vocab_size = VOCAB,
                                 .context_length = 64,
                                 .bos = -1};
}

static inline void shared_kinds(struct model_config kinds[N_SHARED_KINDS])
{
    for (int i = 0; i < N_SHARED_KINDS; i++)
        kinds[i] = plain();
    kinds[0].tied_embeddings = kinds[0].qkv_bias = true;
    kinds[1].attention_bias = kinds[1].mlp_bias = kinds[1].qk_norm = kinds[1].rotated_qk_norm = true;
    kinds[2].qk_norm = true;
    kinds[3].whole_qk_norm = true;
    kinds[4].norms_after = true;
    kinds[4].whole_qk_norm = true;
    kinds[5].norms_around = true;
    kinds[5].attention_softcap = 20;
    kinds[5].logits_softcap = 10;
    kinds[5].activation = ACTIVATION_GELU;
    kinds[6].sink_logits = true;
    kinds[6].kinds[0].sliding_window = 9;
    kinds[7].n_more_kinds = 1;
    kinds[7].kind_of_layer[1] = 1;
    kinds[7].kinds[1].sliding_window = 7;
    kinds[8].n_experts = 5;
    kinds[8].n_active_experts = 2;
    kinds[8].router_bias = kinds[8].mlp_bias = kinds[8].softmax_choice_bias = kinds[8].norms_after = true;
    kinds[9].n_experts = 6;
    kinds[9].n_active_experts = 3;
    kinds[9].expert_ffn_dim = 128;
    kinds[9].shared_ffn_dim = 160;
    kinds[9].sigmoid_router = true;
    kinds[9].n_dense_layers = 1;
    kinds[9].dense_layer[0] = true;
    kinds[10].layer_norm = kinds[10].norm_bias = kinds[10].embedding_norm = kinds[10].learned_positions = true;
    kinds[10].attention_bias = kinds[10].mlp_bias = kinds[10].classifier_bias = kinds[10].ungated = true;
    kinds[10].activation = ACTIVATION_GELU;
    kinds[11].alibi = kinds[11].parallel = kinds[11].layer_norm = kinds[11].ungated = true;
    kinds[11].n_kv_heads = kinds[11].n_heads;
    kinds[11].activation = ACTIVATION_XIELU;
    kinds[12] = kinds[9];
    kinds[12].n_expert_groups = 3;
    kinds[12].n_active_groups = 2;
    kinds[12].expert_eps = 0.3f;
    kinds[12].norms_around = true;
}

// With layers that only ranks on CPUs share.
static inline void shared_layers(struct model_config kinds[N_SHARED_LAYERS])
{
    for (int i = 0; i < N_SHARED_LAYERS; i++)
        kinds[i] = plain();
    for (int i = 0; i < 2; i++) {
        kinds[i].n_more_kinds = 1;
        kinds[i].kind_of_layer[0] = kinds[i].kind_of_layer[2] = 1;
        kinds[i].kinds[1].delta = (struct delta_config){
            .n_key_heads = 4, .n_value_heads = 8, .key_dim = 8, .value_dim = 16, .conv_width = 4, .tiled = i};
        kinds[i].output_gate = kinds[i].qk_norm = true;
    }
    kinds[2].n_more_kinds = 1;
    kinds[2].kind_of_layer[1] = 1;
    kinds[2].kinds[1] = (struct layer_kind){.sliding_window = 7, .head_dim = 8, .n_kv_heads = 10, .ffn_dim = 176};
    kinds[2].v_norm = kinds[2].qk_norm = kinds[2].layer_scale = true;
    kinds[3].n_more_kinds = 2;
    kinds[3].kind_of_layer[1] = 1;
    kinds[3].kind_of_layer[2] = 2;
    kinds[3].kinds[1].sliding_window = 7;
    kinds[3].kinds[2] = (struct layer_kind){.shares_keys = true, .kv_of = 0, .ffn_dim = 240};
    kinds[3].norms_around = true;
    kinds[3].layer_input_dim = 24;
    kinds[3].activation = ACTIVATION_GELU;
    kinds[4].n_experts = 6;
    kinds[4].n_active_experts = 3;
    kinds[4].shared_ffn_dim = 160;
    kinds[4].shared_gate = kinds[4].output_gate = kinds[4].qkv_bias = true;
    kinds[5].n_more_kinds = 1;
    kinds[5].kind_of_layer[0] = kinds[5].kind_of_layer[2] = 1;
    kinds[5].hidden_dim = 160; // a last rank has fewer channels, of which a group of columns stays together
    kinds[5].kinds[1].delta = (struct delta_config){.conv_width = 3, .conv_dim = 160, .conv_bias = true};
    give_latents(&kinds[6]);
    give_kda(&kinds[7], 4);
    kinds[7].kinds[1].delta.n_key_heads = kinds[7].kinds[1].delta.n_value_heads = 5;
    kinds[7].kinds[1].delta.value_dim = 48;
}

static inline int32_t token_of(int i)
{
    return (int32_t)((i * 37 + i * i) % VOCAB);
}
