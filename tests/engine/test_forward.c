// Whole forward passes against the double-precision reference: every architecture option that changes the sequence of
// operations, every instruction set of this machine, all cache types, batches of all shapes, past the context and the window.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "engine/reference.h"

enum { TOKENS = 90 };

struct arrangement {
    const char *isa;
    enum yalm_kv kv;
    int n_threads, chunk, piece; // piece: tokens given to one yalm_eval()
};

static yalm_activations activations = YALM_ACTIVATIONS_INT16; // of the sessions to come

static const struct arrangement arrangements[] = {
    {"scalar", YALM_KV_FP32, 1, 64, TOKENS},
    {"scalar", YALM_KV_FP16, 2, 16, 1},
    {"avx2", YALM_KV_FP32, 2, TOKENS, TOKENS},
    {"avx2", YALM_KV_FP16, 1, 7, 20},
    {"avx2", YALM_KV_FP32, 2, 5, 1},
    {"avx512", YALM_KV_FP32, 2, TOKENS, TOKENS},
    {"avx512", YALM_KV_FP16, 3, 7, 33},
    {"avx512", YALM_KV_FP32, 1, 64, 1},
    {"avx512", YALM_KV_FP32, 5, 31, 77},
    {"avx512vnni", YALM_KV_FP32, 2, 41, 60},
    {"avxvnni", YALM_KV_FP32, 2, 41, 60},
    {"avxvnni", YALM_KV_FP16, 3, 20, 77},
    {"avx512vnni", YALM_KV_FP32, 1, 5, 1},
    {"avx512vnni", YALM_KV_FP16, 2, TOKENS, TOKENS},
    {"avx512vnni", YALM_KV_FP16, 3, 41, 77},
    {"scalar", YALM_KV_INT8, 2, 64, TOKENS},
    {"scalar", YALM_KV_INT8, 1, 16, 1},
    {"avx2", YALM_KV_INT8, 2, TOKENS, TOKENS},
    {"avx2", YALM_KV_INT8, 3, 5, 1},
    {"avx512", YALM_KV_INT8, 2, 41, 77},
    {"avx512", YALM_KV_INT8, 1, 7, 1},
    {"avx512vnni", YALM_KV_INT8, 3, 4, 33},
    {"amx", YALM_KV_FP32, 2, TOKENS, TOKENS},
    {"amx", YALM_KV_FP32, 3, 41, 77},
    {"avx512vnni", YALM_KV_FP32, 3, 20, 77},
    {"neon", YALM_KV_FP32, 2, TOKENS, TOKENS},
    {"neon", YALM_KV_FP16, 1, 7, 20},
    {"neon", YALM_KV_INT8, 3, 5, 1},
    {"neondot", YALM_KV_FP32, 2, 41, 60},
    {"neondot", YALM_KV_FP16, 3, 20, 77},
    {"neoni8mm", YALM_KV_FP32, 2, TOKENS, TOKENS},
};

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
};

static bool has(const char *isa)
{
    return cpu_kernels_select(isa) != NULL;
}

static double range_of(const double *x, int n)
{
    double low = x[0], high = x[0];
    for (int i = 1; i < n; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return high - low;
}

// Largest difference over the range of the position's logits.
static double difference(const float *found, const double *expected, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, isfinite(found[i]) ? fabs(found[i] - expected[i]) : INFINITY);
    return worst / range_of(expected, n);
}

static yalm_session *open_session(const struct random_model *m, const struct scenario *s, const struct arrangement *a)
{
    yalm_session_options options = yalm_session_defaults();
    options.isa = a->isa;
    options.kv = a->kv;
    options.activations = activations;
    options.n_threads = a->n_threads;
    options.n_threads_batch = a->n_threads % 3 + 1;
    options.chunk = a->chunk;
    options.context = s->context;
    options.endless = s->endless;
    options.n_sinks = s->n_sinks;
    yalm_error error;
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session)
        fail_msg("%s: %s", s->name, error.text);
    return session;
}

static int32_t token_at(int i, int vocab)
{
    return (int32_t)((uint32_t)(i * 7919 + i * i * 31) % (uint32_t)vocab);
}

// fp32: rounding of sums over some tens of terms. Quantised weights: tokens are rounded to 15 bits before each product. fp16, bf16 and fp8 ones by VNNI:
// both are rounded, tokens to some 12 bits, up to 24 of them to 14; the largest seen is 7.6e-4 (of the fewer 5.6e-4), where the fp16 cache alone costs up to 1.3e-3.
// fp16: keys and values carry relative errors of 2^-11. int8: the reference rounds likewise, but an element between two steps may
// go the other way, which is 1/127 of its row's largest: rarely by float32's errors, often by those of quantised products.
static double tolerance_of(const struct scenario *s, const struct arrangement *a)
{
    const bool quantised = dtype_group_bytes[s->dtype] != 0, half = !quantised && s->dtype != DTYPE_FP32;
    const bool vnni = !strcmp(a->isa, "avx512vnni") || !strcmp(a->isa, "amx");
    const bool integers = half && vnni && activations == YALM_ACTIVATIONS_INT16;
    if (a->kv == YALM_KV_FP32)
        return quantised ? 1.5e-4 * s->config.n_layers : integers ? 1e-3 : 1e-5;
    return a->kv == YALM_KV_INT8 && quantised ? 1e-2 : 3e-3;
}

// With quantised weights int8's rounding goes the other way often enough to change the choice between two nearly equal experts.
static bool comparable(const struct scenario *s, yalm_kv kv)
{
    return kv != YALM_KV_INT8 || s->config.n_experts == 0 || dtype_group_bytes[s->dtype] == 0;
}

static void check(const struct random_model *m, const struct scenario *s, const struct arrangement *a, const double *expected)
{
    const int vocab = m->model.config.vocab_size;
    const double tolerance = tolerance_of(s, a);
    yalm_session *session = open_session(m, s, a);
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = token_at(i, vocab);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        yalm_error error;
        if (yalm_eval(session, tokens + done, n, YALM_LOGITS_ALL, &error) != YALM_OK)
            fail_msg("%s: %s", s->name, error.text);
        for (int i = 0; i < n; i++) {
            const double d = difference(yalm_logits(session, i), expected + (size_t)(done + i) * vocab, vocab);
            if (!(d <= tolerance))
                fail_msg("%s, %s, kv %d, %d threads, chunk %d, pieces of %d: position %d differs by %g of the range", s->name,
                         a->isa, a->kv, a->n_threads, a->chunk, a->piece, done + i, d);
        }
    }
    yalm_session_close(session);
}

// (TOKENS, vocab_size), to be freed. The int8 cache's are those of the rounded keys and values.
static double *reference_logits(const struct random_model *m, const struct scenario *s, bool int8)
{
    const int vocab = s->config.vocab_size;
    struct kv_policy kv[CONFIG_MAX_KINDS];
    for (int kind = 0; kind < config_n_kinds(&s->config); kind++)
        kv[kind] = kv_policy_make(s->context, s->config.kinds[kind].sliding_window, s->endless, s->n_sinks, 1);
    struct reference r = reference_open(&m->model, kv, TOKENS);
    r.int8 = int8;
    double *logits = doubles((size_t)TOKENS * vocab);
    for (int t = 0; t < TOKENS; t++)
        reference_token(&r, token_at(t, vocab), logits + (size_t)t * vocab);
    reference_close(&r);
    return logits;
}

static void test_against_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *s = &scenarios[i];
        struct random_model *m = random_model_make(s->config, s->dtype, 1000 + i);
        double *expected = reference_logits(m, s, false), *rounded = reference_logits(m, s, true);
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++)
            if (has(arrangements[j].isa) && comparable(s, arrangements[j].kv))
                check(m, s, &arrangements[j], arrangements[j].kv == YALM_KV_INT8 ? rounded : expected);
        free(expected);
        free(rounded);
        random_model_free(m);
    }
}

// Of models whose last layers keep no keys only the last token goes through these, where no other's logits are wanted.
static void check_last(const struct random_model *m, const struct scenario *s, const struct arrangement *a,
                       const double *expected)
{
    const int vocab = m->model.config.vocab_size;
    yalm_session *session = open_session(m, s, a);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        int32_t tokens[TOKENS];
        for (int i = 0; i < n; i++)
            tokens[i] = token_at(done + i, vocab);
        assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
        const double d = difference(yalm_logits(session, 0), expected + (size_t)(done + n - 1) * vocab, vocab);
        if (!(d <= tolerance_of(s, a)))
            fail_msg("%s, %s, pieces of %d: the last logits at %d differ by %g of the range", s->name, a->isa, a->piece,
                     done + n - 1, d);
    }
    yalm_session_close(session);
}

static void test_last_layers_without_keys(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *s = &scenarios[i];
        if (config_tail(&s->config) == s->config.n_layers)
            continue;
        struct random_model *m = random_model_make(s->config, s->dtype, 1000 + i);
        double *expected = reference_logits(m, s, false);
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++)
            if (has(arrangements[j].isa) && arrangements[j].kv != YALM_KV_INT8) {
                check_last(m, s, &arrangements[j], expected);
                checked++;
            }
        free(expected);
        random_model_free(m);
    }
    assert_true(checked > 0);
}

// Of experts that a router finds equal those of the lower index are chosen.
static void test_equal_experts(void **state)
{
    (void)state;
    const struct scenario s = {
        "equal experts", {SHAPE(4, 2, 12), .n_experts = 5, .n_active_experts = 2}, DTYPE_FP32, 128, false, 0};
    const struct arrangement a = {"auto", YALM_KV_FP32, 2, 7, 20};
    struct random_model *m = random_model_make(s.config, s.dtype, 7);
    for (int layer = 0; layer < s.config.n_layers; layer++) {
        float *router = (float *)m->model.weights.layers[layer].router.data;
        for (int e = 1; e < s.config.n_experts; e++)
            memcpy(router + e * s.config.hidden_dim, router, sizeof(float) * s.config.hidden_dim);
    }
    double *expected = reference_logits(m, &s, false);
    check(m, &s, &a, expected);
    free(expected);
    random_model_free(m);
}

// What --activations fp32 promises: nothing is rounded, where the default would.
static void test_float32_by_choice(void **state)
{
    (void)state;
    const struct arrangement a = {"avx512vnni", YALM_KV_FP32, 2, 41, 60};
    if (!has(a.isa))
        skip();
    activations = YALM_ACTIVATIONS_FP32;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (dtype_group_bytes[scenarios[i].dtype])
            continue;
        struct random_model *m = random_model_make(scenarios[i].config, scenarios[i].dtype, 1000 + i);
        double *expected = reference_logits(m, &scenarios[i], false);
        check(m, &scenarios[i], &a, expected);
        free(expected);
        random_model_free(m);
    }
    activations = YALM_ACTIVATIONS_INT16;
}

// Logits of the last of TOKENS tokens, with the given threads.
static void last_logits(const struct random_model *m, const struct scenario *s, const struct arrangement *a, float *logits)
{
    yalm_session *session = open_session(m, s, a);
    for (int done = 0, n; done < TOKENS; done += n) {
        n = TOKENS - done < a->piece ? TOKENS - done : a->piece;
        int32_t tokens[TOKENS];
        for (int i = 0; i < n; i++)
            tokens[i] = token_at(done + i, m->model.config.vocab_size);
        assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
    }
    memcpy(logits, yalm_logits(session, 0), sizeof(float) * m->model.config.vocab_size);
    yalm_session_close(session);
}

static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        struct random_model *m = random_model_make(scenarios[i].config, scenarios[i].dtype, 77);
        for (size_t j = 0; j < sizeof arrangements / sizeof *arrangements; j++) {
            struct arrangement a = arrangements[j];
            float one[64], many[64];
            if (!has(a.isa))
                continue;
            a.n_threads = 1;
            last_logits(m, &scenarios[i], &a, one);
            for (a.n_threads = 2; a.n_threads <= 7; a.n_threads += 5) {
                last_logits(m, &scenarios[i], &a, many);
                assert_memory_equal(one, many, sizeof(float) * m->model.config.vocab_size);
            }
        }
        random_model_free(m);
    }
}

static void test_long_contexts_in_parts(void **state)
{
    (void)state;
    // More keys than one part holds, decoded after a prefill: the merge of parts, of which one has the heads' logits without keys, and the
    // ring's wrap inside a part.
    const struct scenario s = {"parts", {SHAPE(2, 1, 8), .sink_logits = true}, DTYPE_FP32, 600, true, 4};
    struct random_model *m = random_model_make(s.config, s.dtype, 5);
    m->model.config.context_length = 4096;
    enum { LONG = 1100 };
    const int vocab = s.config.vocab_size;
    const struct kv_policy kv = kv_policy_make(600, 0, true, 4, 1);
    struct reference r = reference_open(&m->model, &kv, LONG);
    double *expected = doubles((size_t)LONG * vocab);
    for (int t = 0; t < LONG; t++)
        reference_token(&r, token_at(t, vocab), expected + (size_t)t * vocab);
    for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++) {
        const struct arrangement a = {(*k)->name, YALM_KV_FP32, 2, 100, 0};
        yalm_session *session = open_session(m, &s, &a);
        for (int t = 0, n; t < LONG; t += n) {
            n = t < 500 ? 100 : t < 800 ? 1 : t < 900 ? 9 : 50;
            n = n < LONG - t ? n : LONG - t;
            int32_t tokens[100];
            for (int i = 0; i < n; i++)
                tokens[i] = token_at(t + i, vocab);
            assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
            const double d = difference(yalm_logits(session, 0), expected + (size_t)(t + n - 1) * vocab, vocab);
            if (!(d <= 1e-5))
                fail_msg("%s: position %d differs by %g of the range", a.isa, t + n - 1, d);
        }
        yalm_session_close(session);
    }
    free(expected);
    reference_close(&r);
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_reference),
        cmocka_unit_test(test_last_layers_without_keys),
        cmocka_unit_test(test_equal_experts),
        cmocka_unit_test(test_float32_by_choice),
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_long_contexts_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
