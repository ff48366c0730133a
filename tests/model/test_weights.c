// Names, shapes and types of the tensors, and what a decode step reads of them.

#include "expect_tensors.h"
#include "model/mtp.h"

static void test_dense(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.attention_bias = true, .mlp_bias = true, .weights = "bf16"});
    struct opened o;
    accepted(&o, &file);
    const struct model_weights *w = &o.weights;
    expect_matrix(&o, &w->embedding, "embedding", V, D, DTYPE_BF16);
    expect_matrix(&o, &w->classifier, "classifier", V, D, DTYPE_BF16);
    expect_vector(&o, w->norm, "norm");
    const struct layer_weights *l = &w->layers[1];
    expect_vector(&o, l->attention_norm, "layers.1.attention_norm");
    expect_vector(&o, l->ffn_norm, "layers.1.ffn_norm");
    expect_matrix(&o, &l->q, "layers.1.q", Q, D, DTYPE_BF16);
    expect_matrix(&o, &l->k, "layers.1.k", KV, D, DTYPE_BF16);
    expect_matrix(&o, &l->v, "layers.1.v", KV, D, DTYPE_BF16);
    expect_matrix(&o, &l->o, "layers.1.o", D, Q, DTYPE_BF16);
    expect_vector(&o, l->q_bias, "layers.1.q_bias");
    expect_vector(&o, l->k_bias, "layers.1.k_bias");
    expect_vector(&o, l->v_bias, "layers.1.v_bias");
    expect_vector(&o, l->o_bias, "layers.1.o_bias");
    expect_matrix(&o, &l->experts->gate, "layers.1.gate", F, D, DTYPE_BF16);
    expect_matrix(&o, &l->experts->up, "layers.1.up", F, D, DTYPE_BF16);
    expect_matrix(&o, &l->experts->down, "layers.1.down", D, F, DTYPE_BF16);
    expect_vector(&o, l->experts->gate_bias, "layers.1.gate_bias");
    expect_vector(&o, l->experts->up_bias, "layers.1.up_bias");
    expect_vector(&o, l->experts->down_bias, "layers.1.down_bias");
    assert_null(l->router.data);

    const int64_t matrices = 2 * (2 * Q * D + 2 * KV * D + 3 * F * D), vectors = 2 * (2 * D + Q + 2 * KV + D + 2 * F + D) + D;
    assert_int_equal(w->n_params, matrices + vectors + 2 * V * D);
    assert_int_equal(w->bytes, 2 * (matrices + 2 * V * D) + 4 * vectors);
    assert_true(cost_of(&o).bytes == (double)(2 * (matrices + V * D) + 4 * vectors));
    assert_true(cost_of(&o).ops == 2.0 * (double)(matrices + V * D));
    close_all(&o);
    built_free(&file);
}

static void test_tied(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.tied = true, .weights = "fp16"});
    struct opened o;
    accepted(&o, &file);
    const struct model_weights *w = &o.weights;
    expect_matrix(&o, &w->embedding, "embedding", V, D, DTYPE_FP16);
    expect_matrix(&o, &w->classifier, "embedding", V, D, DTYPE_FP16);
    assert_null(w->layers[0].q_bias);
    assert_null(w->layers[0].experts->gate_bias);
    const int64_t matrices = 2 * (2 * Q * D + 2 * KV * D + 3 * F * D) + V * D, vectors = 5 * D;
    assert_int_equal(w->n_params, matrices + vectors);
    assert_int_equal(w->bytes, 2 * matrices + 4 * vectors);
    assert_true(cost_of(&o).bytes == (double)w->bytes);
    assert_true(cost_of(&o).ops == 2.0 * (double)matrices);
    close_all(&o);
    built_free(&file);
}

static void test_experts(void **state)
{
    (void)state;
    enum { E = 5, ACTIVE = 2 };
    struct built file = build(&(struct build_options){.n_experts = E, .weights = "fp16"});
    struct opened o;
    accepted(&o, &file);
    const struct model_weights *w = &o.weights;
    for (int l = 0; l < TINY_LAYERS; l++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.router", l);
        expect_matrix(&o, &w->layers[l].router, name, E, D, DTYPE_FP32);
        for (int e = 0; e < E; e++) {
            snprintf(name, sizeof name, "layers.%d.experts.%d.down", l, e);
            expect_matrix(&o, &w->layers[l].experts[e].down, name, D, F, DTYPE_FP16);
            snprintf(name, sizeof name, "layers.%d.experts.%d.up", l, e);
            expect_matrix(&o, &w->layers[l].experts[e].up, name, F, D, DTYPE_FP16);
        }
    }
    const int64_t attention = 2 * (2 * Q * D + 2 * KV * D), expert = 3 * F * D, routers = 2 * E * D, vectors = 5 * D;
    assert_int_equal(w->n_params, attention + 2 * E * expert + routers + vectors + 2 * V * D);
    assert_true(cost_of(&o).bytes == (double)(2 * (attention + 2 * ACTIVE * expert + V * D) + 4 * (routers + vectors)));
    assert_true(cost_of(&o).ops == 2.0 * (double)(attention + 2 * ACTIVE * expert + routers + V * D));
    close_all(&o);
    built_free(&file);
}

static void test_later_facts(void **state)
{
    (void)state;
    enum { E = 3, X = 5 };
    struct built file =
        build(&(struct build_options){.n_experts = E, .expert_ffn = X, .first_dense = true, .qkv_bias = true, .qk_norm = true});
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = o.weights.layers;
    expect_vector(&o, l[1].q_norm, "layers.1.q_norm");
    expect_vector(&o, l[1].k_norm, "layers.1.k_norm");
    expect_vector(&o, l[0].q_bias, "layers.0.q_bias");
    assert_null(l[0].o_bias);
    assert_null(l[0].router.data);
    expect_matrix(&o, &l[0].experts->gate, "layers.0.gate", F, D, DTYPE_FP32);
    expect_matrix(&o, &l[1].router, "layers.1.router", E, D, DTYPE_FP32);
    expect_matrix(&o, &l[1].experts[2].down, "layers.1.experts.2.down", D, X, DTYPE_FP32);
    const int64_t attention = 2 * (2 * Q * D + 2 * KV * D);
    assert_true(cost_of(&o).ops == 2.0 * (double)(attention + 3 * F * D + 2 * 3 * X * D + E * D + V * D));
    close_all(&o);
    static const struct damage damages[] = {
        {"\"qk_norm\":true,", "", "tensor 'layers.0.q_norm' has no place"},
        {"\"qk_norm\":true,", "\"qk_norm\":true,\"rotated_qk_norm\":true,", "tensor 'layers.0.k_norm' has no place"},
        {"\"dense_layers\":[0],", "", "tensor 'layers.0.router' is missing"},
        {"\"qkv_bias\":true,", "", "tensor 'layers.0.q_bias' has no place"},
        {"\"expert_ffn_dim\":5,", "", "tensor 'layers.1.experts.0.gate': shape: found (5, 8), expected (12, 8)"},
        {"\"name\":\"layers.1.k_norm\"", "\"name\":\"layers.1.knorm\"", "tensor 'layers.1.k_norm' is missing"},
    };
    each_refused(
        &(struct build_options){.n_experts = E, .expert_ffn = X, .first_dense = true, .qkv_bias = true, .qk_norm = true},
        damages, COUNT(damages));
    built_free(&file);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct damage damages[] = {
        {"\"name\":\"embedding\"", "\"name\":\"embeddings\"", "tensor 'embedding' is missing"},
        {"\"name\":\"layers.1.o\"", "\"name\":\"layers.1.out\"", "tensor 'layers.1.o' is missing"},
        {"\"name\":\"norm\"", "\"name\":\"tokenizer.norm\"", "tensor 'norm' is missing"},
        {"\"name\":\"classifier\"", "\"name\":\"Classifier\"", "tensor 'classifier' is missing"},
        {"\"tied_embeddings\":false", "\"tied_embeddings\":true", "tensor 'classifier' has no place in this architecture"},
        {"\"n_layers\":2", "\"n_layers\":1", "tensor 'layers.1.attention_norm' has no place"},
        {"\"n_layers\":2", "\"n_layers\":3", "tensor 'layers.2.attention_norm' is missing"},
        {"\"n_layers\":2", "\"n_layers\":1024", "tensor 'layers.2.attention_norm' is missing"},
        {"\"attention_bias\":false", "\"attention_bias\":true", "tensor 'layers.0.q_bias' is missing"},
        {"\"mlp_bias\":false", "\"mlp_bias\":true", "tensor 'layers.0.gate_bias' is missing"},
        {"\"vocab_size\":11", "\"vocab_size\":12", "tensor 'embedding': shape: found (11, 8), expected (12, 8)"},
        {"\"hidden_dim\":8", "\"hidden_dim\":9", "tensor 'embedding': shape: found (11, 8), expected (11, 9)"},
        {"\"ffn_dim\":12", "\"ffn_dim\":11", "tensor 'layers.0.gate': shape: found (12, 8), expected (11, 8)"},
        {"\"n_kv_heads\":2", "\"n_kv_heads\":4", "tensor 'layers.0.k': shape: found (8, 8), expected (16, 8)"},
        {"\"head_dim\":4", "\"head_dim\":2", "tensor 'layers.0.q': shape: found (16, 8), expected (8, 8)"},
        {"\"shape\":[11,8]", "\"shape\":[8,11]", "tensor 'embedding': shape: found (8, 11), expected (11, 8)"},
        {"\"shape\":[11,8]", "\"shape\":[11,8,1]", "tensor 'embedding': shape: found (11, 8, 1), expected (11, 8)"},
        {"\"shape\":[11,8]", "\"shape\":[88]", "tensor 'embedding': shape: found (88), expected (11, 8)"},
        {"\"shape\":[8],", "\"shape\":[1,8],", "tensor 'layers.0.attention_norm': shape: found (1, 8), expected (8)"},
        {"\"fp32\",\"shape\":[8]", "\"fp16\",\"shape\":[16]",
         "tensor 'layers.0.attention_norm': shape: found (16), expected (8)"},
        {"\"fp32\",\"shape\":[8]", "\"u32\",\"shape\":[8]",
         "tensor 'layers.0.attention_norm': dtype: found u32, expected fp32"},
        {"\"fp32\",\"shape\":[11,8]", "\"u32\",\"shape\":[11,8]",
         "tensor 'embedding': dtype: found u32, expected fp32, fp16, bf16, bf12, fp8, fp8_e5m2, q8, q6, q5, q4n, q4, "
         "q3, q2, q6k, q5k, q5u, q4k, q5a, q4a, mxfp4, iq4nl, iq4xs, q4z32, q4z64, q4z128, q3k, q2k, iq3s, iq3xxs, iq2s, iq2xs "
         "or "
         "iq2xxs"},
    };
    each_refused(NULL, damages, COUNT(damages));
    static const struct damage of_experts[] = {
        {"\"n_experts\":3", "\"n_experts\":4", "tensor 'layers.0.router': shape: found (3, 8), expected (4, 8)"},
        {"\"name\":\"layers.1.experts.2.up\"", "\"name\":\"layers.1.experts.3.up\"",
         "tensor 'layers.1.experts.2.up' is missing"},
        {"\"name\":\"layers.0.router\"", "\"name\":\"layers.0.gate\"", "tensor 'layers.0.router' is missing"},
        {"\"n_layers\":2,", "\"n_layers\":1024,", "tensor 'layers.2.attention_norm' is missing"},
    };
    each_refused(&(struct build_options){.n_experts = 3}, of_experts, COUNT(of_experts));
}

static void test_a_layer_may_mix_types(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.weights = "fp16"});
    edit(&file, "\"layers.1.up\",\"dtype\":\"fp16\"", "\"layers.1.up\",\"dtype\":\"bf16\"");
    struct opened o;
    accepted(&o, &file);
    assert_int_equal(o.weights.layers[1].experts->up.dtype, DTYPE_BF16);
    assert_int_equal(o.weights.layers[0].experts->up.dtype, DTYPE_FP16);
    close_all(&o);
    built_free(&file);
}

static void test_short_types(void **state)
{
    (void)state;
    static const struct {
        enum dtype type;
        uint64_t row, element; // bytes: of a row without its elements, and of an element
    } cases[] = {{DTYPE_Q8, 34, 0}, {DTYPE_Q4, 18, 0}, {DTYPE_FP8, 4, 1}, {DTYPE_FP8_E5M2, 0, 1}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct built file = build(&(struct build_options){.weights = dtype_names[cases[c].type]});
        struct opened o;
        accepted(&o, &file);
        const struct model_weights *w = &o.weights;
        assert_int_equal(w->layers[1].q.dtype, cases[c].type);
        assert_int_equal(w->norm != NULL, 1);
        // Of the quantised types, one group for each row of each matrix: none is wider than 32 columns.
        assert_true(TINY_HIDDEN <= 32 && TINY_FFN <= 32);
        const struct layer_weights *l = &w->layers[0];
        const struct matrix *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->experts->gate, &l->experts->up, &l->experts->down};
        const uint64_t outside = (uint64_t)TINY_VOCAB * (cases[c].row + TINY_HIDDEN * cases[c].element);
        uint64_t bytes = outside + 5 * TINY_HIDDEN * 4; // the classifier, and norms
        for (size_t i = 0; i < COUNT(all); i++)
            bytes += 2 * (uint64_t)all[i]->rows * (cases[c].row + (uint64_t)all[i]->cols * cases[c].element);
        assert_true(cost_of(&o).bytes == (double)bytes);
        assert_int_equal(w->bytes, bytes + outside);
        close_all(&o);
        built_free(&file);
    }
}

static void test_norms_before_and_behind(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.norms_around = true, .sink_logits = true});
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[1];
    expect_vector(&o, l->attention_norm, "layers.1.attention_norm");
    expect_vector(&o, l->attention_post_norm, "layers.1.attention_post_norm");
    expect_vector(&o, l->ffn_norm, "layers.1.ffn_norm");
    expect_vector(&o, l->ffn_post_norm, "layers.1.ffn_post_norm");
    expect_vector(&o, l->sink_logits, "layers.1.sink_logits");
    close_all(&o);
    built_free(&file);
    file = build(&(struct build_options){.norms_after = true});
    accepted(&o, &file);
    l = &o.weights.layers[1];
    expect_vector(&o, l->attention_post_norm, "layers.1.attention_norm");
    expect_vector(&o, l->ffn_post_norm, "layers.1.ffn_norm");
    assert_true(!l->attention_norm && !l->ffn_norm && !l->sink_logits);
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"norms_around\":true,", "", "tensor 'layers.0.attention_post_norm' has no place"},
        {"\"sink_logits\":true,", "", "tensor 'layers.0.sink_logits' has no place"},
        {"\"name\":\"layers.1.ffn_post_norm\"", "\"name\":\"layers.1.ffn_past_norm\"",
         "tensor 'layers.1.ffn_post_norm' is missing"},
        {"\"name\":\"layers.0.sink_logits\"", "\"name\":\"layers.0.sinklogits\"", "tensor 'layers.0.sink_logits' is missing"},
    };
    each_refused(&(struct build_options){.norms_around = true, .sink_logits = true}, damages, COUNT(damages));
}

static void test_biased_and_shared_experts(void **state)
{
    (void)state;
    const struct build_options options = {.n_experts = 3,
                                          .mlp_bias = true,
                                          .router_bias = true,
                                          .sigmoid_router = true,
                                          .expert_ffn = 5,
                                          .shared_ffn = 7,
                                          .first_dense = true,
                                          .weights = "fp16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[1];
    expect_vector(&o, l->router_bias, "layers.1.router_bias");
    expect_vector(&o, l->router_choice_bias, "layers.1.router_choice_bias");
    expect_vector(&o, l->experts[2].up_bias, "layers.1.experts.2.up_bias");
    expect_vector(&o, l->experts[2].down_bias, "layers.1.experts.2.down_bias");
    expect_matrix(&o, &l->shared.gate, "layers.1.shared.gate", 7, D, DTYPE_FP16);
    expect_matrix(&o, &l->shared.up, "layers.1.shared.up", 7, D, DTYPE_FP16);
    expect_matrix(&o, &l->shared.down, "layers.1.shared.down", D, 7, DTYPE_FP16);
    assert_true(!o.weights.layers[0].shared.gate.data && !o.weights.layers[0].router_bias);
    assert_int_equal(recipe_outline(&o.config, &o.weights).width[BUFFER_UNITS], F);
    // Two of three experts, the one of all tokens, the router, what is outside; the first layer is dense.
    const double attention = 2 * (2.0 * Q * D + 2.0 * KV * D), dense = 3.0 * F * D,
                 experts = 2 * 3.0 * 5 * D + 3.0 * 7 * D + 3.0 * D;
    assert_true(cost_of(&o).ops == 2 * (attention + dense + experts + (double)V * D));
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"router_bias\":true,", "", "tensor 'layers.1.router_bias' has no place"},
        {"\"sigmoid_router\":true,", "", "tensor 'layers.1.router_choice_bias' has no place"},
        {"\"shared_ffn_dim\":7", "\"shared_ffn_dim\":8", "tensor 'layers.1.shared.gate': shape: found (7, 8), expected (8, 8)"},
        {"\"name\":\"layers.1.shared.down\"", "\"name\":\"layers.1.shared.dawn\"", "tensor 'layers.1.shared.down' is missing"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_kinds_that_differ(void **state)
{
    (void)state;
    enum { OWN_Q = TINY_HEADS * OWN_HEAD_DIM, INPUTS = 6 };
    const struct build_options heads = {.own_heads = true, .qk_norm = true};
    struct built file = build(&heads);
    struct opened o;
    accepted(&o, &file);
    expect_matrix(&o, &o.weights.layers[0].q, "layers.0.q", OWN_Q, D, DTYPE_FP32);
    expect_matrix(&o, &o.weights.layers[0].k, "layers.0.k", OWN_HEAD_DIM, D, DTYPE_FP32);
    expect_matrix(&o, &o.weights.layers[0].experts[0].down, "layers.0.down", D, OWN_FFN, DTYPE_FP32);
    expect_matrix(&o, &o.weights.layers[1].q, "layers.1.q", Q, D, DTYPE_FP32);
    assert_true(recipe_outline(&o.config, &o.weights).tail_cost.ops == 2.0 * V * D); // the classifier
    close_all(&o);
    built_free(&file);
    const struct build_options shared = {.shared_keys = true, .layer_scale = true, .layer_input = INPUTS, .weights = "bf16"};
    file = build(&shared);
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[1];
    assert_true(!l->k.data && !l->v.data && o.weights.layers[0].k.data);
    expect_matrix(&o, &l->input_gate, "layers.1.input_gate", INPUTS, D, DTYPE_BF16);
    expect_matrix(&o, &l->input_projection, "layers.1.input_projection", D, INPUTS, DTYPE_BF16);
    expect_vector(&o, l->input_norm, "layers.1.input_norm");
    expect_vector(&o, l->scale, "layers.1.scale");
    expect_matrix(&o, &o.weights.layer_embedding, "layer_embedding", V, 2 * INPUTS, DTYPE_BF16);
    expect_matrix(&o, &o.weights.layer_projection, "layer_projection", 2 * INPUTS, D, DTYPE_BF16);
    expect_vector(&o, o.weights.layer_projection_norm, "layer_projection_norm");
    assert_true(recipe_outline(&o.config, &o.weights).tail_cost.ops ==
                2 * ((double)V * D + 2.0 * Q * D + 3.0 * OWN_FFN * D + 2.0 * INPUTS * D));
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {",\"kv_of\":0", "", "tensor 'layers.1.k' is missing"},
        {"\"layer_input_dim\":6,", "", "has no place"},
        {"\"layer_scale\":true,", "", "tensor 'layers.0.scale' has no place"},
        {"\"name\":\"layer_projection_norm\"", "\"name\":\"layer_projection_nome\"",
         "tensor 'layer_projection_norm' is missing"},
    };
    each_refused(&shared, damages, COUNT(damages));
}

static void test_experts_with_norms(void **state)
{
    (void)state;
    const struct build_options options = {.n_experts = 3, .shared_ffn = 7, .norms_around = true, .expert_norms = true};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct layer_weights *l = &o.weights.layers[1];
    expect_vector(&o, l->expert_norm, "layers.1.expert_norm");
    expect_vector(&o, l->expert_post_norm, "layers.1.expert_post_norm");
    expect_vector(&o, l->shared_post_norm, "layers.1.shared_post_norm");
    expect_vector(&o, l->router_scale, "layers.1.router_scale");
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"expert_norms\":true,", "", "tensor 'layers.0.expert_norm' has no place"},
        {"\"norms_around\":true,", "", "'config.expert_norms': expected with norms_around and shared_ffn_dim"},
        {"\"name\":\"layers.0.router_scale\"", "\"name\":\"layers.0.router_scile\"",
         "tensor 'layers.0.router_scale' is missing"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_a_head_that_guesses(void **state)
{
    (void)state;
    const struct build_options options = {
        .n_experts = 3, .first_dense = true, .recurrent = true, .mtp = true, .weights = "bf16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    assert_true(o.config.mtp.there && o.config.mtp.normed && !o.config.mtp.own_normed && !o.config.guesses);
    expect_matrix(&o, &o.weights.mtp_projection, "mtp.projection", D, 2 * D, DTYPE_BF16);
    const struct model_config config = mtp_config_of(&o.config);
    const struct model_weights head = mtp_weights_of(&o.weights, &o.config);
    assert_true(config.n_layers == 1 && config.guesses && !config.mtp.there && !config.mtp.normed && !config_recurs(&config));
    assert_true(config_has_experts(&config, 0));
    expect_vector(&o, head.mtp_embedding_norm, "mtp.embedding_norm");
    expect_vector(&o, head.mtp_hidden_norm, "mtp.hidden_norm");
    expect_vector(&o, head.norm, "mtp.norm");
    expect_matrix(&o, &head.layers[0].q, "layers.2.q", Q, D, DTYPE_BF16);
    expect_matrix(&o, &head.layers[0].experts[2].down, "layers.2.experts.2.down", D, F, DTYPE_BF16);
    assert_ptr_equal(head.classifier.data, o.weights.classifier.data);
    // It reads all of these once for a guess, and of two experts of three.
    const struct cost cost = recipe_outline(&config, &head).cost;
    const double matrices = D * 2.0 * D + 2.0 * D * Q + 2.0 * D * KV + 2 * 3.0 * D * F + V * (double)D;
    assert_true(cost.bytes == 2 * matrices + sizeof(float) * (3.0 * D + 5 * D));
    close_all(&o);
    built_free(&file);
    static const struct damage damages[] = {
        {"\"normed\":true,", "", "'config.mtp.normed' is missing"},
        {"\"normed\":true,", "\"normed\":true,\"depth\":1,", "'config.mtp.depth' is not known"},
        {"\"normed\":true,", "\"normed\":1,", "'config.mtp.normed': found a number, expected a bool"},
        {"\"layers\":[0],\"delta\"", "\"layers\":[0,2],\"delta\"", "'config.mtp': found where"},
        {"\"layers\":[0],\"delta\"", "\"layers\":[0,3],\"delta\"", "expected layers from 0 to 2, each once"},
        {"\"mtp\":{\"normed\":true,\"own_normed\":false},", "", "tensor 'layers.2.attention_norm' has no place"},
        {"\"name\":\"mtp.norm\"", "\"name\":\"mtp.nirm\"", "tensor 'mtp.norm' is missing"},
    };
    each_refused(&options, damages, COUNT(damages));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_later_facts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_layer_may_mix_types),
        cmocka_unit_test(test_short_types),
        cmocka_unit_test(test_norms_before_and_behind),
        cmocka_unit_test(test_biased_and_shared_experts),
        cmocka_unit_test(test_kinds_that_differ),
        cmocka_unit_test(test_experts_with_norms),
        cmocka_unit_test(test_a_head_that_guesses),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
