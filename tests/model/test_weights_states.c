// As test_weights.c, for layers that carry a state, and for latents.

#include "expect_tensors.h"

static void test_short_convolutions(void **state)
{
    (void)state;
    const struct build_options options = {.convolves = true, .weights = "bf16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[0], *attends = &o.weights.layers[1];
    expect_matrix(&o, &l->q, "layers.0.q", D, D, DTYPE_BF16);
    expect_matrix(&o, &l->k, "layers.0.k", D, D, DTYPE_BF16);
    expect_matrix(&o, &l->v, "layers.0.v", D, D, DTYPE_BF16);
    expect_matrix(&o, &l->o, "layers.0.o", D, D, DTYPE_BF16);
    expect_vector(&o, l->q_bias, "layers.0.q_bias");
    expect_vector(&o, l->k_bias, "layers.0.k_bias");
    expect_vector(&o, l->v_bias, "layers.0.v_bias");
    expect_vector(&o, l->o_bias, "layers.0.o_bias");
    expect_vector(&o, l->delta.conv, "layers.0.conv");
    expect_vector(&o, l->delta.conv_bias, "layers.0.conv_bias");
    assert_true(!l->output_gate.data && !l->q_norm && !attends->q_bias && !attends->delta.conv);
    const double convolves = 4.0 * D * D + 3 * D + D, attention = 2.0 * Q * D + 2.0 * KV * D; // and both gates
    assert_true(cost_of(&o).ops == 2 * (convolves + attention + 2 * 3.0 * F * D + (double)V * D));
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"name\":\"layers.0.conv\"", "\"name\":\"layers.0.conf\"", "tensor 'layers.0.conv' is missing"},
        {"\"bias\":true", "\"bias\":false", "tensor 'layers.0.q_bias' has no place"},
        {"\"conv_width\":3", "\"conv_width\":4", "tensor 'layers.0.conv': shape: found (3, 8), expected (4, 8)"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_recurrent_layers(void **state)
{
    (void)state;
    enum { KEYS = 6, VALUES = 20 };
    const struct build_options options = {.recurrent = true,
                                          .output_gate = true,
                                          .attention_bias = true,
                                          .n_experts = 3,
                                          .shared_ffn = 7,
                                          .shared_gate = true,
                                          .weights = "bf16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[0], *attends = &o.weights.layers[1];
    expect_matrix(&o, &l->q, "layers.0.q", KEYS, D, DTYPE_BF16);
    expect_matrix(&o, &l->v, "layers.0.v", VALUES, D, DTYPE_BF16);
    expect_matrix(&o, &l->output_gate, "layers.0.output_gate", VALUES, D, DTYPE_BF16);
    expect_matrix(&o, &l->o, "layers.0.o", D, VALUES, DTYPE_BF16);
    expect_matrix(&o, &l->delta.decay, "layers.0.decay", 4, D, DTYPE_FP32);
    expect_matrix(&o, &l->delta.beta, "layers.0.beta", 4, D, DTYPE_FP32);
    expect_vector(&o, l->delta.conv, "layers.0.conv");
    expect_vector(&o, l->delta.decay_bias, "layers.0.decay_bias");
    expect_vector(&o, l->delta.decay_rate, "layers.0.decay_rate");
    expect_vector(&o, l->delta.value_norm, "layers.0.value_norm");
    assert_true(!l->q_bias && !l->o_bias && !l->output_gate_bias && !attends->delta.decay.data);
    expect_matrix(&o, &attends->output_gate, "layers.1.output_gate", Q, D, DTYPE_BF16);
    expect_vector(&o, attends->output_gate_bias, "layers.1.output_gate_bias");
    expect_matrix(&o, &attends->shared_router, "layers.1.shared.router", 1, D, DTYPE_FP32);
    const double recurrent = 2.0 * KEYS * D + 3.0 * VALUES * D + 4 * 32 + 2.0 * 4 * D, attention = 3.0 * Q * D + 2.0 * KV * D,
                 ffn = 2 * 3.0 * F * D + 3.0 * 7 * D + 3.0 * D + D;
    assert_true(cost_of(&o).ops == 2 * (recurrent + attention + 2 * ffn + (double)V * D) + 7.0 * 4 * 3 * 5); // and the rule
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"name\":\"layers.0.conv\"", "\"name\":\"layers.0.conf\"", "tensor 'layers.0.conv' is missing"},
        {"\"name\":\"layers.1.output_gate\"", "\"name\":\"layers.1.output_gait\"", "tensor 'layers.1.output_gate' is missing"},
        {"\"value_dim\":5", "\"value_dim\":6", "tensor 'layers.0.v': shape: found (20, 8), expected (24, 8)"},
        {"\"conv_width\":4", "\"conv_width\":3", "tensor 'layers.0.conv': shape: found (4, 32), expected (3, 32)"},
        {"\"shared_gate\":true,", "", "tensor 'layers.0.shared.router' has no place"},
        {"\"output_gate\":true,", "", "tensor 'layers.1.output_gate' has no place"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_latents(void **state)
{
    (void)state;
    const struct build_options options = {.latents = "bf16"}, quantised = {.latents = "q8"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[1];
    expect_matrix(&o, &l->k, "layers.1.kv_a", 8, D, DTYPE_FP32);
    expect_matrix(&o, &l->latent.k_b, "layers.1.k_b", 24, 3, DTYPE_BF16);
    expect_matrix(&o, &l->latent.v_b, "layers.1.v_b", 16, 6, DTYPE_BF16);
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"rope_dim\":2", "\"rope_dim\":4", "'config.latent': expected an even 'rope_dim', n_kv_heads = 1 and head_dim ="},
        {"\"q_rank\":6", "\"q_rank\":0", "tensor 'layers.0.q': shape: found (20, 6), expected (20, 8)"},
        {"\"attention_scale\":0.4,", "\"attention_scale\":0.4,\"n_expert_groups\":2,",
         "'config.n_expert_groups': found 2 with 0"},
    };
    each_refused(&options, damages, COUNT(damages));
    static const struct damage none = {"\"bos\":1", "\"bos\":2",
                                       "'layers.0.k_b': dtype: found q8, expected fp32, fp16 or bf16"};
    each_refused(&quantised, &none, 1);
}

static void test_kda_before_latents(void **state)
{
    (void)state;
    const struct build_options options = {.recurrent = true, .kda = true, .latents = "bf16", .weights = "fp16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[0], *attends = &o.weights.layers[1];
    expect_matrix(&o, &l->k, "layers.0.k", 12, D, DTYPE_FP16);
    expect_matrix(&o, &l->delta.decay_a, "layers.0.decay_a", 7, D, DTYPE_FP16);
    expect_matrix(&o, &l->delta.decay_b, "layers.0.decay_b", 12, 7, DTYPE_FP16);
    expect_matrix(&o, &l->delta.gate_a, "layers.0.gate_a", 7, D, DTYPE_FP16);
    expect_matrix(&o, &l->delta.gate_b, "layers.0.gate_b", 20, 7, DTYPE_FP16);
    expect_vector(&o, l->delta.decay_bias, "layers.0.decay_bias");
    expect_matrix(&o, &attends->latent.k_b, "layers.1.k_b", 24, 3, DTYPE_BF16);
    assert_true(!l->delta.decay.data && !l->output_gate.data && !l->latent.k_b.data && !attends->delta.decay_a.data);
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"kda_rank\":7", "\"kda_rank\":6", "tensor 'layers.0.decay_a': shape: found (7, 8), expected (6, 8)"},
        {"\"kda_rank\":7,", "", "tensor 'layers.0.output_gate' is missing"},
        {"\"kda_rank\":7,", "\"kda_rank\":7,\"tiled\":true,", "kda_rank': expected as many key heads as value heads"},
        {"{\"layers\":[0],\"delta\":{\"kda_rank\":7,\"n_key_heads\":4,\"n_value_heads\":4,\"key_dim\":3,\"value_dim\":5,"
         "\"conv_width\":4}}",
         "{\"layers\":[0],\"sliding_window\":9,\"rope\":{\"type\":\"default\",\"theta\":1}}",
         "'config.latent': found beside kinds of attention"},
    };
    each_refused(&options, damages, COUNT(damages));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_short_convolutions),
        cmocka_unit_test(test_latents),
        cmocka_unit_test(test_kda_before_latents),
    };
    return cmocka_run_group_tests_name("weights of states", tests, NULL, NULL);
}
