// Models of all kinds that change the sequence of operations, and contexts that they are tried in.
#pragma once
#include "model/config.h"

struct scenario {
    const char *name;
    struct model_config config;
    enum dtype dtype;
    int context;
    bool endless;
    int n_sinks;
};

#define SHAPE(heads, kv_heads, d)                                                                                              \
    .n_layers = 2, .hidden_dim = 48, .ffn_dim = 71, .n_heads = heads, .n_kv_heads = kv_heads, .head_dim = d, .vocab_size = 53, \
    .context_length = 128

// As GGUF's K-quants need it.
#define WIDE(heads, kv_heads, d)                                                                                               \
    .n_layers = 2, .hidden_dim = 256, .ffn_dim = 256, .n_heads = heads, .n_kv_heads = kv_heads, .head_dim = d,                 \
    .vocab_size = 53, .context_length = 128

// The first layer has a window, and RoPE of another base than the second's.
#define WINDOWED(window) .n_more_kinds = 1, .kinds[1].sliding_window = window, .kind_of_layer = {1, 0}

// All layers but the last are recurrent.
#define RECURRENT(keys, values, k_dim, v_dim, width, by_tiles)                                                                 \
    .n_more_kinds = 1, .kind_of_layer = {1, 0},                                                                                \
    .kinds[1].delta = {.n_key_heads = keys,                                                                                    \
                       .n_value_heads = values,                                                                                \
                       .key_dim = k_dim,                                                                                       \
                       .value_dim = v_dim,                                                                                     \
                       .conv_width = width,                                                                                    \
                       .tiled = by_tiles}

// Two kinds with keys, and two that see theirs and are wider; layers have inputs of their own.
#define GEMMA4_E                                                                                                               \
    .n_layers = 6, .hidden_dim = 48, .ffn_dim = 71, .n_heads = 4, .n_kv_heads = 1, .head_dim = 12, .vocab_size = 53,           \
    .context_length = 128, .n_more_kinds = 3, .kind_of_layer = {1, 1, 0, 3, 3, 2}, .kinds[0].head_dim = 20,                    \
    .kinds[1].sliding_window = 17, .kinds[2] = {.head_dim = 20, .ffn_dim = 90, .shares_keys = true, .kv_of = 0},               \
    .kinds[3] = {.sliding_window = 17, .ffn_dim = 90, .shares_keys = true, .kv_of = 1}, .v_norm = true, .qk_norm = true,       \
    .norms_around = true, .layer_scale = true, .layer_input_dim = 24, .attention_scale = 0.2f, .activation = ACTIVATION_GELU

static const struct scenario scenarios[] = {
    {"one head each", {SHAPE(4, 4, 12)}, DTYPE_FP32, 128, false, 0},
    {"grouped queries, fp16", {SHAPE(6, 2, 16)}, DTYPE_FP16, 128, false, 0},
    {"one key head, bf16, tied", {SHAPE(8, 1, 8), .tied_embeddings = true}, DTYPE_BF16, 128, false, 0},
    {"heads wider than the stream", {SHAPE(3, 3, 40)}, DTYPE_FP32, 128, false, 0},
    {"biases", {SHAPE(4, 2, 12), .attention_bias = true, .mlp_bias = true}, DTYPE_FP32, 128, false, 0},
    {"window", {SHAPE(4, 2, 12), .kinds[0].sliding_window = 17}, DTYPE_FP32, 128, false, 0},
    {"window, endless", {SHAPE(4, 2, 12), .kinds[0].sliding_window = 17}, DTYPE_FP32, 31, true, 4},
    {"endless with sinks", {SHAPE(4, 2, 12)}, DTYPE_FP32, 23, true, 3},
    {"endless without sinks", {SHAPE(4, 4, 10)}, DTYPE_FP32, 23, true, 0},
    {"endless, context of one", {SHAPE(4, 2, 12)}, DTYPE_FP32, 1, true, 4},
    {"experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_FP32, 128, false, 0},
    {"all experts, fp16, biases",
     {SHAPE(4, 2, 12), .n_experts = 3, .n_active_experts = 3, .mlp_bias = true},
     DTYPE_FP16,
     128,
     false,
     0},
    {"fp8, grouped queries", {SHAPE(6, 2, 16)}, DTYPE_FP8, 128, false, 0},
    {"fp8, tied, biases",
     {SHAPE(4, 4, 12), .tied_embeddings = true, .attention_bias = true, .mlp_bias = true},
     DTYPE_FP8,
     128,
     false,
     0},
    {"fp8 and bf16 experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_FP8, 128, false, 0},
    {"fp8_e5m2, one key head", {SHAPE(8, 1, 8)}, DTYPE_FP8_E5M2, 128, false, 0},
    {"q8, grouped queries", {SHAPE(6, 2, 16)}, DTYPE_Q8, 128, false, 0},
    {"q8, tied, biases",
     {SHAPE(4, 4, 12), .tied_embeddings = true, .attention_bias = true, .mlp_bias = true},
     DTYPE_Q8,
     128,
     false,
     0},
    {"q4, grouped queries", {SHAPE(6, 2, 16)}, DTYPE_Q4, 128, false, 0},
    {"q4 and bf16 experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_Q4, 128, false, 0},
    {"q4n, grouped queries", {SHAPE(6, 2, 16)}, DTYPE_Q4N, 128, false, 0},
    {"q5 and bf16 experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_Q5, 128, false, 0},
    {"q6, tied, biases",
     {SHAPE(4, 4, 12), .tied_embeddings = true, .attention_bias = true, .mlp_bias = true},
     DTYPE_Q6,
     128,
     false,
     0},
    {"biases of q, k and v", {SHAPE(4, 2, 12), .qkv_bias = true}, DTYPE_FP32, 128, false, 0},
    {"normalised heads", {SHAPE(4, 2, 20), .qk_norm = true}, DTYPE_FP32, 128, false, 0},
    {"normalised heads, endless, bf16", {SHAPE(6, 2, 16), .qk_norm = true, .qkv_bias = true}, DTYPE_BF16, 23, true, 3},
    {"raw weights of narrow experts in one layer",
     {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2, .expert_ffn_dim = 30, .raw_expert_weights = true,
      .n_dense_layers = 1, .dense_layer = {true}},
     DTYPE_FP32,
     128,
     false,
     0},
    {"wide experts, none in the last layer",
     {SHAPE(4, 2, 12), .n_experts = 4, .n_active_experts = 3, .expert_ffn_dim = 90, .n_dense_layers = 1,
      .dense_layer = {false, true}},
     DTYPE_FP16,
     128,
     false,
     0},
    {"a layer without rotation, endless",
     {SHAPE(4, 2, 12), .n_unrotated_layers = 1, .unrotated_layer = {false, true}},
     DTYPE_FP32,
     23,
     true,
     3},
    {"scales", {SHAPE(4, 2, 12), .attention_scale = 0.1f, .embedding_scale = 7}, DTYPE_FP32, 128, false, 0},
    {"scales, fp8", {SHAPE(4, 2, 12), .attention_scale = 0.1f, .embedding_scale = 7}, DTYPE_FP8, 23, true, 3},
    {"norms behind the blocks", {SHAPE(4, 2, 12), .norms_after = true, .whole_qk_norm = true}, DTYPE_FP32, 128, false, 0},
    {"norms behind the blocks, bf16, biases",
     {SHAPE(6, 2, 16), .norms_after = true, .whole_qk_norm = true, .attention_bias = true, .mlp_bias = true},
     DTYPE_BF16,
     23,
     true,
     3},
    {"a window and a rotation of a layer's own", {SHAPE(4, 2, 12), WINDOWED(17)}, DTYPE_FP32, 128, false, 0},
    {"a window of a layer's own, endless", {SHAPE(4, 2, 12), WINDOWED(9)}, DTYPE_FP16, 23, true, 3},
    {"a window of a layer's own that is longer than the context", {SHAPE(4, 2, 12), WINDOWED(50)}, DTYPE_FP32, 23, true, 3},
    {"GELU, norms around the blocks",
     {SHAPE(4, 2, 20), .activation = ACTIVATION_GELU, .norms_around = true, .qk_norm = true, .embedding_scale = 5},
     DTYPE_FP32,
     128,
     false,
     0},
    {"clamped units, biases", {SHAPE(4, 2, 12), .activation = ACTIVATION_CLAMPED, .mlp_bias = true}, DTYPE_FP32, 128, false, 0},
    {"capped scores and logits",
     {SHAPE(4, 2, 12), .attention_softcap = 1.5f, .logits_softcap = 0.7f},
     DTYPE_FP32,
     128,
     false,
     0},
    {"capped scores of 64 components, endless, bf16",
     {SHAPE(6, 2, 64), .attention_softcap = 2, .attention_scale = 0.3f, .logits_softcap = 3, WINDOWED(11)},
     DTYPE_BF16,
     23,
     true,
     3},
    {"heads that rotate in part, endless", {SHAPE(4, 2, 12), .kinds[0].rope.rotary_dim = 6}, DTYPE_FP32, 23, true, 3},
    {"logits without keys, endless", {SHAPE(6, 2, 16), .sink_logits = true}, DTYPE_BF16, 23, true, 3},
    {"biased and clamped experts, logits without keys, a layer with a window",
     {SHAPE(4, 2, 64), .n_experts = 5, .n_active_experts = 2, .mlp_bias = true, .router_bias = true, .sink_logits = true,
      .activation = ACTIVATION_CLAMPED, WINDOWED(17)},
     DTYPE_FP32,
     128,
     false,
     0},
    {"experts by sigmoids, scaled, beside one of all tokens",
     {SHAPE(4, 2, 12), .n_experts = 6, .n_active_experts = 2, .expert_ffn_dim = 40, .sigmoid_router = true,
      .expert_scale = 1.7f, .shared_ffn_dim = 77, .n_dense_layers = 1, .dense_layer = {true}},
     DTYPE_FP32,
     128,
     false,
     0},
    {"raw experts by sigmoids, q8",
     {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 3, .sigmoid_router = true, .raw_expert_weights = true,
      .shared_ffn_dim = 80},
     DTYPE_Q8,
     128,
     false,
     0},
    {"gated outputs, biases", {SHAPE(4, 2, 12), .output_gate = true, .attention_bias = true}, DTYPE_FP32, 128, false, 0},
    {"a recurrent layer", {SHAPE(4, 2, 12), RECURRENT(2, 6, 11, 41, 4, false)}, DTYPE_FP32, 128, false, 0},
    {"a recurrent layer, tiled, gated outputs, bf16",
     {SHAPE(4, 2, 16), RECURRENT(3, 6, 32, 32, 3, true), .output_gate = true, .qk_norm = true},
     DTYPE_BF16,
     128,
     false,
     0},
    {"a recurrent layer, endless, q8", {SHAPE(4, 2, 12), RECURRENT(2, 2, 24, 72, 2, false)}, DTYPE_Q8, 23, true, 3},
    {"a recurrent layer, experts beside a weighed one of all tokens",
     {SHAPE(4, 2, 12), RECURRENT(1, 3, 20, 17, 5, false), .output_gate = true, .n_experts = 6, .n_active_experts = 2,
      .expert_ffn_dim = 40, .shared_ffn_dim = 77, .shared_gate = true},
     DTYPE_FP32,
     128,
     false,
     0},
    {"heads and widths of kinds of layers, a norm of v, a factor behind the layer",
     {SHAPE(4, 2, 12), WINDOWED(17), .kinds[1].head_dim = 20, .kinds[1].n_kv_heads = 1, .kinds[1].ffn_dim = 99, .v_norm = true,
      .qk_norm = true, .layer_scale = true},
     DTYPE_FP32,
     128,
     false,
     0},
    {"small heads of a kind of layers, endless, q8",
     {SHAPE(4, 1, 32), WINDOWED(11), .kinds[1].head_dim = 16, .kinds[1].n_kv_heads = 4, .norms_around = true},
     DTYPE_Q8,
     23,
     true,
     3},
    {"shared keys, inputs of layers", {GEMMA4_E, .logits_softcap = 3}, DTYPE_FP32, 128, false, 0},
    {"shared keys, inputs of layers, bf16, endless", {GEMMA4_E}, DTYPE_BF16, 23, true, 3},
    {"shared keys, inputs of layers, q4", {GEMMA4_E}, DTYPE_Q4, 128, false, 0},
    {"experts with norms of their own",
     {SHAPE(4, 2, 12), .n_experts = 6, .n_active_experts = 2, .expert_ffn_dim = 40, .shared_ffn_dim = 77, .norms_around = true,
      .expert_norms = true, .activation = ACTIVATION_GELU, .layer_scale = true, WINDOWED(17), .kinds[1].head_dim = 16},
     DTYPE_FP32,
     128,
     false,
     0},
    {"queries that grow", {SHAPE(4, 2, 12), .query_growth = 0.3f, .query_growth_context = 16}, DTYPE_FP32, 128, false, 0},
    {"shared keys behind a recurrent layer",
     {.n_layers = 3,
      .hidden_dim = 48,
      .ffn_dim = 71,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 12,
      .vocab_size = 53,
      .context_length = 128,
      .n_more_kinds = 2,
      .kind_of_layer = {1, 0, 2},
      .kinds[1].delta = {.n_key_heads = 2, .n_value_heads = 2, .key_dim = 20, .value_dim = 36, .conv_width = 4},
      .kinds[2] = {.shares_keys = true, .kv_of = 0}},
     DTYPE_FP32,
     128,
     false,
     0},
    {"q5u, grouped queries", {SHAPE(6, 2, 16)}, DTYPE_Q5U, 128, false, 0},
    {"q4a, biases", {SHAPE(4, 4, 12), .attention_bias = true, .mlp_bias = true}, DTYPE_Q4A, 128, false, 0},
    {"q5a experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_Q5A, 128, false, 0},
    {"q4k, grouped queries", {WIDE(8, 2, 32)}, DTYPE_Q4K, 128, false, 0},
    {"q5k, tied", {WIDE(4, 4, 64), .tied_embeddings = true}, DTYPE_Q5K, 128, false, 0},
    {"q6k experts", {WIDE(8, 2, 32), .n_experts = 3, .n_active_experts = 2}, DTYPE_Q6K, 128, false, 0},
};
