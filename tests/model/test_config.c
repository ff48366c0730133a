// The architecture's numbers: every field arrives, and what is wrong is refused by name.

#include "expect.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ROPE_JSON    "{\"type\":\"default\",\"theta\":10000.0}"

static const char llama3[] =
    "{\"type\":\"llama3\",\"theta\":500000,\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4.5,"
    "\"original_context\":8192}";
static const char yarn[] = "{\"type\":\"yarn\",\"theta\":1e6,\"factor\":4,\"beta_fast\":32,\"beta_slow\":1.5,"
                           "\"original_context\":4096,\"attention_factor\":1.25,\"truncate\":true}";

static const char longrope[] =
    "{\"type\":\"longrope\",\"theta\":1e4,\"rotary_dim\":2,\"original_context\":32,\"attention_factor\":1.2,"
    "\"short_factors\":[1.5],\"long_factors\":[9]}";

static struct model_config read_config(const struct build_options *options, const char *from, const char *to)
{
    struct built file = build(options);
    if (from)
        edit(&file, from, to);
    struct opened o;
    accepted(&o, &file);
    const struct model_config config = o.config;
    close_all(&o);
    built_free(&file);
    return config;
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    struct model_config c = read_config(NULL, "\"sliding_window\":0", "\"sliding_window\":33");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.n_layers, TINY_LAYERS);
    assert_int_equal(c.hidden_dim, TINY_HIDDEN);
    assert_int_equal(c.ffn_dim, TINY_FFN);
    assert_int_equal(c.n_heads, TINY_HEADS);
    assert_int_equal(c.n_kv_heads, TINY_KV_HEADS);
    assert_int_equal(c.head_dim, TINY_HEAD_DIM);
    assert_int_equal(c.vocab_size, TINY_VOCAB);
    assert_int_equal(c.context_length, 64);
    assert_true(c.norm_eps == 1e-5f);
    assert_int_equal(c.kinds[0].rope.type, ROPE_DEFAULT);
    assert_true(c.kinds[0].rope.theta == 10000);
    assert_int_equal(c.kinds[0].sliding_window, 33);
    assert_int_equal(c.n_experts, 0);
    assert_int_equal(c.n_active_experts, 0);
    assert_false(c.tied_embeddings || c.attention_bias || c.mlp_bias);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[0], 2);
    assert_int_equal(c.eos[1], 10);

    assert_true(read_config(&(struct build_options){.tied = true}, NULL, NULL).tied_embeddings);
    assert_true(read_config(&(struct build_options){.attention_bias = true}, NULL, NULL).attention_bias);
    assert_true(read_config(&(struct build_options){.mlp_bias = true}, NULL, NULL).mlp_bias);
    c = read_config(&(struct build_options){.n_experts = 4}, NULL, NULL);
    assert_int_equal(c.n_experts, 4);
    assert_int_equal(c.n_active_experts, 2);
    assert_string_equal(c.architecture, "MixtralForCausalLM");
    c = read_config(NULL, "Llama", "Mistral");
    assert_string_equal(c.architecture, "MistralForCausalLM");
    assert_string_equal(read_config(NULL, "LlamaForCausalLM", "AnyNameAtAll").architecture, "AnyNameAtAll");
    c = read_config(NULL, "\"bos\":1", "\"unrotated_layers\":[1],\"bos\":1");
    assert_true(c.n_unrotated_layers == 1 && !c.unrotated_layer[0] && c.unrotated_layer[1]);
    c = read_config(NULL, "\"bos\":1", "\"pooling\":{\"by\":\"mean\",\"end\":3,\"matryoshka\":2},\"bos\":1");
    assert_int_equal(c.matryoshka, 2);
    assert_true(c.pooling == POOLING_MEAN && c.pooling_end == 3);
    c = read_config(NULL, "\"bos\":1", "\"pooling\":{\"by\":\"last\",\"end\":-1},\"bos\":1");
    assert_true(c.pooling == POOLING_LAST && c.pooling_end == -1);
    assert_true(read_config(NULL, NULL, NULL).pooling == POOLING_NONE);
    c = read_config(NULL, "\"bos\":1", "\"layer_norm\":true,\"pooling\":{\"by\":\"first\",\"end\":-1},\"bos\":1");
    assert_true(c.layer_norm && c.pooling == POOLING_FIRST);
    c = read_config(NULL, "\"bos\":1", "\"attention_scale\":0.25,\"embedding_scale\":12,\"bos\":1");
    assert_true(c.attention_scale == 0.25f && c.embedding_scale == 12);
    c = read_config(NULL, "\"bos\":1", "\"query_growth\":0.5,\"query_growth_context\":8,\"bos\":1");
    assert_true(c.query_growth == 0.5f && c.query_growth_context == 8);
    c = read_config(NULL, NULL, NULL);
    assert_true(config_attention_scale(&c, c.head_dim) == 0.5f && c.embedding_scale == 0);
    assert_true(config_n_kinds(&c) == 1 && config_n_layers_of(&c, 0) == TINY_LAYERS && config_place(&c, 1) == 1);
    c = read_config(NULL, "\"activation\":\"silu\"",
                    "\"activation\":\"gelu_tanh\",\"attention_softcap\":50,\"logits_softcap\":30");
    assert_true(c.activation == ACTIVATION_GELU && c.attention_softcap == 50 && c.logits_softcap == 30);
    assert_false(c.n_unrotated_layers || c.qkv_bias || c.qk_norm || c.raw_expert_weights || c.n_dense_layers ||
                 c.expert_ffn_dim);
    c = read_config(&(struct build_options){.qkv_bias = true, .qk_norm = true}, NULL, NULL);
    assert_true(c.qkv_bias && c.qk_norm && !c.attention_bias);
    c = read_config(&(struct build_options){.n_experts = 4, .expert_ffn = 5, .first_dense = true}, "\"bos\":1",
                    "\"raw_expert_weights\":true,\"bos\":1");
    assert_true(c.raw_expert_weights && c.n_dense_layers == 1 && c.dense_layer[0] && !c.dense_layer[1]);
    assert_int_equal(c.expert_ffn_dim, 5);
    assert_int_equal(read_config(NULL, "\"bos\":1", "\"bos\":-1").bos, -1);
    assert_int_equal(read_config(NULL, "\"eos\":[2,10]", "\"eos\":[]").n_eos, 0);
    assert_int_equal(read_config(NULL, "[2,10]", "[0,1,2,3,4,5,6,7,8,9,10,0,1,2,3,4]").n_eos, 16);
}

#define ONE_KIND "\"kinds\":[{\"layers\":[0],\"sliding_window\":7,\"rope\":{\"type\":\"linear\",\"theta\":1e4,\"factor\":3}}]"

static void test_kinds_of_layers_arrive(void **state)
{
    (void)state;
    const struct model_config c = read_config(NULL, "\"bos\":1", ONE_KIND ",\"bos\":1");
    assert_int_equal(config_n_kinds(&c), 2);
    assert_true(c.kind_of_layer[0] == 1 && c.kind_of_layer[1] == 0);
    assert_true(c.kinds[0].sliding_window == 0 && c.kinds[0].rope.type == ROPE_DEFAULT);
    assert_true(c.kinds[1].sliding_window == 7 && c.kinds[1].rope.type == ROPE_LINEAR && c.kinds[1].rope.factor == 3);
    assert_true(config_n_layers_of(&c, 0) == 1 && config_n_layers_of(&c, 1) == 1);
    assert_true(config_place(&c, 0) == 0 && config_place(&c, 1) == 0);
}

static void test_kinds_refused(void **state)
{
    (void)state;
#define ROPE        "\"rope\":" ROPE_JSON
#define KINDS(list) "\"kinds\":[" list "],\"bos\":1"
    static const struct damage damages[] = {
        {"\"bos\":1", "\"kinds\":{},\"bos\":1", "'config.kinds': found an object, expected an array"},
        {"\"bos\":1", KINDS("7"), "'config.kinds': expected objects"},
        {"\"bos\":1", KINDS("{\"layers\":[0],\"sliding_window\":7}"), "'config.kinds.rope' is missing"},
        {"\"bos\":1", KINDS("{\"layers\":[0]," ROPE "}"), "'config.kinds.sliding_window' is missing"},
        {"\"bos\":1", KINDS("{\"sliding_window\":7," ROPE "}"), "'config.kinds.layers' is missing"},
        {"\"bos\":1", KINDS("{\"layers\":[0],\"sliding_window\":-7," ROPE "}"), "'config.kinds.sliding_window': found -7"},
        {"\"bos\":1", KINDS("{\"layers\":[2],\"sliding_window\":7," ROPE "}"),
         "'config.kinds.layers': expected layers from 0 to 1"},
        {"\"bos\":1", KINDS("{\"layers\":[0,0],\"sliding_window\":7," ROPE "}"), "from 0 to 1, each once"},
        {"\"bos\":1", KINDS("{\"layers\":[],\"sliding_window\":7," ROPE "}"), "'config.kinds': found a kind without layers"},
        {"\"bos\":1", KINDS("{\"layers\":[0,1],\"sliding_window\":7," ROPE "}"), "'config.kinds': found a kind without layers"},
        {"\"bos\":1", KINDS("{\"layers\":[0],\"sliding_window\":7,\"theta\":1," ROPE "}"), "'config.kinds.theta' is not known"},
        {"\"bos\":1", KINDS("{\"layers\":[0],\"sliding_window\":7,\"rope\":{\"type\":\"default\",\"theta\":0}}"),
         "'config.kinds.rope.theta': found 0"},
        {"\"bos\":1", "\"norms_after\":true,\"norms_around\":true,\"bos\":1",
         "'config.norms_around': found true beside norms_after"},
        {"\"bos\":1", "\"attention_softcap\":0,\"bos\":1", "'config.attention_softcap': found 0"},
        {"\"bos\":1", "\"logits_softcap\":-3,\"bos\":1", "'config.logits_softcap': found -3"},
        {"\"activation\":\"silu\"", "\"activation\":\"relu\"",
         "'config.activation': found 'relu', expected silu, gelu_tanh, gelu, relu2, clamped or xielu"},
    };
    each_refused(NULL, damages, COUNT(damages));
}

static void test_recurrent_layers(void **state)
{
    (void)state;
    const struct build_options options = {.recurrent = true, .output_gate = true};
    struct model_config c = read_config(&options, NULL, NULL);
    assert_true(config_is_recurrent(&c, 0) && !config_is_recurrent(&c, 1) && config_recurs(&c) && c.output_gate);
    assert_true(config_kind_attends(&c, 0) && !config_kind_attends(&c, 1));
    assert_false(c.kinds[1].delta.tiled);
    const struct delta_config *d = config_delta(&c, 0);
    assert_true(d->n_key_heads == 2 && d->n_value_heads == 4 && d->key_dim == 3 && d->value_dim == 5 && d->conv_width == 4);
    assert_true(delta_keys(d) == 6 && delta_values(d) == 20 && delta_channels(d) == 32);
    assert_true(config_most_of(&c, delta_values) == 20 && delta_state_floats(d) == 60 && delta_input_floats(d) == 96);
    c = read_config(&options, "\"conv_width\":4", "\"conv_width\":4,\"tiled\":true");
    assert_true(c.kinds[1].delta.tiled && delta_decays(&c.kinds[1].delta) == 4);
    const struct build_options kda = {.recurrent = true, .kda = true};
    c = read_config(&kda, NULL, NULL);
    assert_true(c.kinds[1].delta.kda_rank == 7 && delta_decays(&c.kinds[1].delta) == 12);
    c = read_config(NULL, NULL, NULL);
    assert_false(config_recurs(&c));
    static const struct damage damages[] = {
        {"\"n_value_heads\":4", "\"n_value_heads\":5", "'config.kinds.delta.n_value_heads': found 5, expected a multiple of"},
        {"\"n_key_heads\":2", "\"n_key_heads\":0", "n_key_heads': found 0"},
        {"\"conv_width\":4", "\"conv_width\":1", "conv_width': found 1, expected an integer from 2 to 64"},
        {"\"conv_width\":4", "\"conv_width\":65", "conv_width': found 65"},
        {"\"key_dim\":3", "\"key_dim\":5000", "key_dim': found 5000"},
        {"\"key_dim\":3,", "", "key_dim' is missing"},
        {"\"key_dim\":3,", "\"key_dim\":3,\"kda_rank\":7,", "kda_rank': expected as many key heads as value heads"},
        {"\"key_dim\":3,", "\"key_dim\":3,\"kda_rank\":0,", "kda_rank': found 0"},
        {"\"key_dim\":3,", "\"key_dim\":3,\"more\":1,", "more' is not known"},
        {"\"n_value_heads\":4,\"key_dim\":3,\"value_dim\":5", "\"n_value_heads\":4096,\"key_dim\":3,\"value_dim\":4000",
         "expected at most 1048576"},
        {"{\"layers\":[0],\"delta\"", "{\"layers\":[0],\"sliding_window\":0,\"delta\"",
         "'config.kinds.sliding_window' is not known"},
        {"{\"layers\":[0],\"delta\"", "{\"layers\":[0,1],\"delta\"", "found a kind without layers"},
    };
    each_refused(&options, damages, COUNT(damages));
    static const struct damage alone[] = {
        {"\"bos\":1", "\"shared_gate\":true,\"bos\":1", "'config.shared_gate': found without 'shared_ffn_dim'"},
    };
    each_refused(NULL, alone, COUNT(alone));
}

static void test_short_convolutions(void **state)
{
    (void)state;
    const struct build_options options = {.convolves = true};
    struct model_config c = read_config(&options, NULL, NULL);
    const struct delta_config *d = config_delta(&c, 0);
    assert_true(config_is_recurrent(&c, 0) && !config_is_recurrent(&c, 1) && config_recurs(&c));
    assert_true(!config_kind_attends(&c, 1) && !config_kind_keeps(&c, 1) && config_kind_keeps(&c, 0));
    assert_true(d->conv_dim == c.hidden_dim && d->conv_width == 3 && d->conv_bias && d->n_value_heads == 0);
    assert_true(delta_channels(d) == c.hidden_dim && delta_state_floats(d) == 0);
    assert_true(delta_input_floats(d) == 2 * (size_t)c.hidden_dim);
    static const struct damage damages[] = {
        {"\"conv_width\":3", "\"conv_width\":1", "'config.kinds.conv.conv_width': found 1, expected an integer from 2 to 64"},
        {"\"conv_width\":3,", "", "conv_width' is missing"},
        {"\"conv_width\":3", "\"conv_width\":3,\"more\":1", "more' is not known"},
        {"{\"layers\":[0],\"conv\"", "{\"layers\":[0],\"ffn_dim\":8,\"conv\"", "'config.kinds.ffn_dim' is not known"},
        {"{\"layers\":[0],\"conv\"", "{\"layers\":[0,1],\"conv\"", "found a kind without layers"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_scans(void **state)
{
    (void)state;
    const struct build_options options = {.recurrent = true};
    static const struct damage damages[] = {
        {"\"conv_width\":4",
         "\"conv_width\":4,\"scan\":{\"conv_bias\":true,\"norm_groups\":3,\"norm_first\":true,\"norm_eps\":1}",
         "expected 'norm_groups' that divide all heads' values"},
        {"\"conv_width\":4", "\"conv_width\":4,\"tiled\":true,\"scan\":{\"conv_bias\":true,\"norm_groups\":0}",
         "no 'tiled' beside it"},
        {"\"conv_width\":4", "\"conv_width\":4,\"scan\":{\"conv_bias\":true,\"norm_groups\":2}", "norm_first' is missing"},
        {"\"conv_width\":4", "\"conv_width\":4,\"scan\":{\"norm_groups\":0}", "conv_bias' is missing"},
        {"\"bos\":1", "\"no_ffn_layers\":[0],\"bos\":1", "'config.no_ffn_layers': found beside layers none of which"},
        {"\"bos\":1",
         "\"delta\":{\"n_key_heads\":1,\"n_value_heads\":1,\"key_dim\":3,\"value_dim\":5,\"conv_width\":4},\"bos\":1",
         "'config.delta': found beside kinds of layers, or without 'scan'"},
    };
    each_refused(&options, damages, COUNT(damages));
}

static void test_kinds_that_differ(void **state)
{
    (void)state;
    const struct build_options heads = {.own_heads = true};
    struct model_config c = read_config(&heads, NULL, NULL);
    assert_true(config_head_dim(&c, 0) == OWN_HEAD_DIM && config_head_dim(&c, 1) == TINY_HEAD_DIM);
    assert_true(config_kv_heads(&c, 0) == 1 && config_kv_heads(&c, 1) == TINY_KV_HEADS);
    assert_true(config_ffn_dim(&c, 0) == OWN_FFN && config_ffn_dim(&c, 1) == TINY_FFN);
    assert_true(config_kinds_differ(&c) && config_tail(&c) == 2);
    const struct build_options shared = {.shared_keys = true, .layer_scale = true, .v_norm = true, .layer_input = 6};
    c = read_config(&shared, NULL, NULL);
    assert_true(config_kv_layer(&c, 0) == 0 && config_kv_layer(&c, 1) == 0 && config_tail(&c) == 1);
    assert_true(config_kind_keeps(&c, 0) && !config_kind_keeps(&c, 1));
    assert_true(c.layer_scale && c.v_norm && c.layer_input_dim == 6 && !c.expert_norms);
    c = read_config(NULL, NULL, NULL);
    assert_false(config_kinds_differ(&c));
    static const struct damage of_heads[] = {
        {"\"n_kv_heads\":1,\"ffn", "\"n_kv_heads\":3,\"ffn",
         "'config.n_heads': found 4, expected a multiple of n_kv_heads = 3"},
        {"\"head_dim\":6", "\"head_dim\":5", "'config.head_dim': found 5, expected an even number"},
        {"\"head_dim\":6", "\"head_dim\":0", "'config.kinds.head_dim': found 0, expected an integer from 2"},
        {"\"ffn_dim\":20", "\"ffn_dim\":-1", "'config.kinds.ffn_dim': found -1"},
        {"\"ffn_dim\":20", "\"ffn_dim\":20,\"kv_of\":0", "'config.kinds.kv_of': expected a kind with keys of its own"},
        {"\"ffn_dim\":20", "\"ffn_dim\":20,\"kv_of\":1", "'config.kinds.kv_of': found 1, expected an integer from 0 to 0"},
    };
    each_refused(&heads, of_heads, COUNT(of_heads));
    static const struct damage of_keys[] = {
        {"{\"layers\":[1],\"sliding_window\":0", "{\"layers\":[1],\"sliding_window\":7", "'config.kinds.kv_of': expected"},
        {"{\"layers\":[1]", "{\"layers\":[0]", "'config.kinds.kv_of': expected a kind with keys of its own, alike"},
        {"\"kv_of\":0", "\"kv_of\":0,\"head_dim\":6", "'config.kinds.kv_of': expected"},
        {"\"theta\":1e4},\"ffn", "\"theta\":1e5},\"ffn", "'config.kinds.kv_of': expected"},
        {"\"layer_input_dim\":6", "\"layer_input_dim\":1048576", "'config.layer_input_dim': found 1048576, expected at most"},
        {"\"layer_scale\":true", "\"layer_scale\":true,\"expert_norms\":true",
         "'config.expert_norms': expected with norms_around"},
    };
    each_refused(&shared, of_keys, COUNT(of_keys));
}

static void test_every_rope_arrives(void **state)
{
    (void)state;
    struct rope_config r =
        read_config(&(struct build_options){.rope = "{\"type\":\"linear\",\"theta\":1e4,\"factor\":2.5}"}, NULL, NULL)
            .kinds[0]
            .rope;
    assert_int_equal(r.type, ROPE_LINEAR);
    assert_true(r.factor == 2.5);
    r = read_config(&(struct build_options){.rope = llama3}, NULL, NULL).kinds[0].rope;
    assert_int_equal(r.type, ROPE_LLAMA3);
    assert_true(r.theta == 500000 && r.factor == 8 && r.low_freq_factor == 1 && r.high_freq_factor == 4.5);
    assert_true(r.original_context == 8192);
    r = read_config(&(struct build_options){.rope = yarn}, NULL, NULL).kinds[0].rope;
    assert_int_equal(r.type, ROPE_YARN);
    assert_true(r.theta == 1e6 && r.factor == 4 && r.beta_fast == 32 && r.beta_slow == 1.5);
    assert_true(r.original_context == 4096 && r.attention_factor == 1.25 && r.truncate);
    r = read_config(&(struct build_options){.rope = longrope}, NULL, NULL).kinds[0].rope;
    assert_int_equal(r.type, ROPE_LONG);
    assert_true(r.rotary_dim == 2 && r.original_context == 32 && r.attention_factor == 1.2);
    assert_true(r.short_factors[0] == 1.5 && r.long_factors[0] == 9);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct damage damages[] = {
        {"\"config\":{", "\"konfig\":{", "'konfig' is not known"},
        {"\"config\":{", "\"config\":3,\"x\":{", "'x' is not known"},
        {"\"tokenizer\":{", "\"tokenizer\":3,\"chat_template\":{", "'chat_template' appears twice"},
        {"\"LlamaForCausalLM\"", "\"AVeryLongNameAVeryLongNameAVeryLongNameAVeryLongNameAVeryLongNameF\"",
         "expected at most 63 bytes"},
        {"\"architecture\":\"LlamaForCausalLM\",", "", "'config.architecture' is missing"},
        {"\"silu\"", "\"relu\"", "'config.activation': found 'relu', expected silu"},
        {"\"silu\"", "true", "'config.activation': found a bool, expected a string"},
        {"\"bos\":1", "\"boss\":1", "'config.boss' is not known"},
        {"\"bos\":1,", "\"bos\":1,\"bos\":1,", "key 'bos' appears twice"},
        {"\"n_layers\":2,", "", "'config.n_layers' is missing"},
        {"\"n_layers\":2", "\"n_layers\":0", "'config.n_layers': found 0, expected an integer from 1 to 1024"},
        {"\"n_layers\":2", "\"n_layers\":-2", "'config.n_layers': found -2"},
        {"\"n_layers\":2", "\"n_layers\":2.5", "'config.n_layers': found 2.5, expected an integer"},
        {"\"n_layers\":2", "\"n_layers\":1e300", "'config.n_layers': found 1.0000000000000001e+300, expected an integer"},
        {"\"n_layers\":2", "\"n_layers\":4294967298", "'config.n_layers': found 4294967298"},
        {"\"n_layers\":2", "\"n_layers\":\"2\"", "'config.n_layers': found a string, expected an integer"},
        {"\"n_layers\":2", "\"n_layers\":null", "found null, expected an integer"},
        {"\"hidden_dim\":8", "\"hidden_dim\":0", "'config.hidden_dim'"},
        {"\"hidden_dim\":8", "\"hidden_dim\":2147483648", "'config.hidden_dim'"},
        {"\"ffn_dim\":12", "\"ffn_dim\":0", "'config.ffn_dim'"},
        {"\"n_heads\":4", "\"n_heads\":0", "'config.n_heads'"},
        {"\"n_heads\":4", "\"n_heads\":3", "'config.n_heads': found 3, expected a multiple of n_kv_heads = 2"},
        {"\"n_kv_heads\":2", "\"n_kv_heads\":0", "'config.n_kv_heads'"},
        {"\"n_kv_heads\":2", "\"n_kv_heads\":8", "expected a multiple of n_kv_heads = 8"},
        {"\"head_dim\":4", "\"head_dim\":0", "'config.head_dim'"},
        {"\"head_dim\":4", "\"head_dim\":5", "'config.head_dim': found 5, expected an even number"},
        {"\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":4", "\"n_heads\":16384,\"n_kv_heads\":2,\"head_dim\":4096",
         "'config.n_heads' times 'head_dim': found 67108864"},
        {"\"vocab_size\":11", "\"vocab_size\":0", "'config.vocab_size'"},
        {"\"vocab_size\":11", "\"vocab_size\":10", "'config.eos[1]': expected an id from 0 to 9"},
        {"\"context_length\":64", "\"context_length\":0", "'config.context_length'"},
        {"\"context_length\":64", "\"context_length\":2147483647", "'config.context_length'"},
        {"\"sliding_window\":0", "\"sliding_window\":-1", "'config.sliding_window'"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":0", "'config.norm_eps': found 0"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":-1e-5", "'config.norm_eps': found -1e-05"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":1e-300", "'config.norm_eps': found 1e-300"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":NaN", "no value that JSON has"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":1e999", "too large for a double: norm_eps"},
        {"\"norm_eps\":1e-05", "\"norm_eps\":\"1e-5\"", "'config.norm_eps': found a string, expected a number"},
        {"\"n_experts\":0", "\"n_experts\":4", "'config.n_active_experts': found 0, expected 1 to 4"},
        {"\"bos\":1", "\"qk_norm\":1,\"bos\":1", "'config.qk_norm': found a number, expected a bool"},
        {"\"bos\":1", "\"qkv_bias\":null,\"bos\":1", "'config.qkv_bias': found null, expected a bool"},
        {"\"bos\":1", "\"expert_ffn_dim\":-1,\"bos\":1", "'config.expert_ffn_dim': found -1"},
        {"\"bos\":1", "\"expert_ffn_dim\":1048577,\"bos\":1", "'config.expert_ffn_dim': found 1048577"},
        {"\"bos\":1", "\"expert_ffn_dim\":8,\"bos\":1",
         "'config.expert_ffn_dim', 'raw_expert_weights', 'router_bias' or 'dense_layers': found without"},
        {"\"bos\":1", "\"raw_expert_weights\":true,\"bos\":1", "'dense_layers': found without experts"},
        {"\"bos\":1", "\"router_bias\":true,\"bos\":1", "'dense_layers': found without experts"},
        {"\"bos\":1", "\"sigmoid_router\":true,\"bos\":1", "'shared_ffn_dim': found without experts"},
        {"\"bos\":1", "\"expert_scale\":2,\"bos\":1", "'shared_ffn_dim': found without experts"},
        {"\"bos\":1", "\"shared_ffn_dim\":8,\"bos\":1", "'shared_ffn_dim': found without experts"},
        {"\"bos\":1", "\"expert_scale\":0,\"bos\":1", "'config.expert_scale': found 0, expected a number from 1e-09"},
        {"\"bos\":1", "\"sink_logits\":2,\"bos\":1", "'config.sink_logits': found a number, expected a bool"},
        {"\"bos\":1", "\"dense_layers\":[0],\"bos\":1", "'dense_layers': found without experts"},
        {"\"bos\":1", "\"qk_norm\":true,\"whole_qk_norm\":true,\"bos\":1", "'config.whole_qk_norm': found true beside qk_norm"},
        {"\"bos\":1", "\"norms_after\":\"yes\",\"bos\":1", "'config.norms_after': found a string, expected a bool"},
        {"\"bos\":1", "\"query_growth\":0.1,\"bos\":1", "'config.query_growth': found without 'query_growth_context'"},
        {"\"bos\":1", "\"query_growth_context\":8,\"bos\":1", "'config.query_growth': found without"},
        {"\"bos\":1", "\"query_growth_context\":-8,\"bos\":1", "'config.query_growth_context': found -8"},
        {"\"bos\":1", "\"attention_scale\":0,\"bos\":1", "'config.attention_scale': found 0, expected a number from 1e-09"},
        {"\"bos\":1", "\"embedding_scale\":-1,\"bos\":1", "'config.embedding_scale': found -1"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"cls\",\"end\":-1},\"bos\":1",
         "'config.pooling.by': found 'cls', expected last, mean or first"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"last\",\"end\":1000000},\"bos\":1", "'config.pooling.end'"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"last\"},\"bos\":1", "'config.pooling.end'"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"last\",\"end\":-1,\"matryoshka\":9999},\"bos\":1", "'config.pooling.matryoshka'"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"last\",\"end\":-1,\"dense\":[0]},\"bos\":1",
         "'config.pooling.dense': expected at most 4 integers from 1 to 1048576"},
        {"\"bos\":1", "\"bidirectional\":true,\"bos\":1", "'config.bidirectional': found beside a classifier of its own"},
        {"\"tied_embeddings\":false", "\"tied_embeddings\":true,\"bidirectional\":true,\"logits_softcap\":30",
         "or logits_softcap"},
        {"\"activation\":\"silu\"", "\"activation\":\"xielu\"", "'config.activation': found beside gates or experts, as xielu"},
        {"\"bos\":1", "\"expert_eps\":1e-6,\"bos\":1", "'config.expert_eps': found beside weights that are not divided"},
        {"\"bos\":1", "\"norm_bias\":true,\"bos\":1", "'config.norm_bias': found beside RMSNorm, which has none"},
        {"\"bos\":1", "\"rotated_qk_norm\":true,\"bos\":1", "'config.rotated_qk_norm': found beside shared keys, or without"},
        {"\"bos\":1", "\"layer_norm\":true,\"qk_norm\":true,\"bos\":1", "'config.layer_norm': found beside norms_after"},
        {"\"bos\":1", "\"post_norm\":true,\"bos\":1", "'config.post_norm': found beside logits"},
        {"\"bos\":1", "\"post_norm\":true,\"norms_after\":true,\"bos\":1", "'config.post_norm': found beside norms_after"},
        {"\"bos\":1", "\"layer_norm\":true,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.layer_norm': found beside experts"},
        {"\"bos\":1", "\"learned_positions\":true,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.learned_positions': found beside experts"},
        {"\"bos\":1", "\"post_norm\":true,\"embedding_norm\":true,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.post_norm': found beside experts"},
        {"\"bos\":1", "\"n_token_types\":1,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.n_token_types': found beside experts"},
        {"\"bos\":1", "\"embedding_norm\":true,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.embedding_norm': found beside experts"},
        {"\"bos\":1", "\"bare_first\":true,\"mtp\":{\"normed\":true,\"own_normed\":true},\"bos\":1",
         "'config.bare_first': found beside experts"},
        {"\"activation\":\"silu\"", "\"activation\":\"clamped\",\"ungated\":true",
         "'config.ungated': found beside activation clamped, which adds 1 to what there is none of"},
        {"\"bos\":1", "\"score\":{\"between\":[],\"end\":1},\"bos\":1", "'config.score': found beside attention"},
        {"\"bos\":1", "\"score\":{\"between\":[],\"end\":1},\"pooling\":{\"by\":\"first\",\"end\":2},\"bos\":1",
         "'config.score.end': found 1, expected pooling's, 2"},
        {"\"bos\":1", "\"score\":{\"between\":[1,1,1,1,1],\"end\":1},\"bos\":1", "'config.score.between': expected at most 4"},
        {"\"bos\":1", "\"score\":{\"between\":[],\"end\":1,\"by\":\"best\"},\"bos\":1", "'config.score.by'"},
        {"\"bos\":1", "\"score\":{\"end\":1,\"by\":\"last\"},\"pooling\":{\"by\":\"last\",\"end\":1},\"bos\":1",
         "'config.score': found beside shared keys or, by the last token, pooling"},
        {"\"bos\":1", "\"parallel\":true,\"bos\":1", "'config.parallel': found beside RMSNorm"},
        {"\"bos\":1", "\"classifier_bias\":true,\"bos\":1", "'config.classifier_bias': found beside RMSNorm"},
        {"\"bos\":1", "\"one_norm\":true,\"bos\":1", "'config.one_norm': found beside blocks that come one after the other"},
        {"\"bos\":1", "\"layer_norm\":true,\"parallel\":true,\"one_norm\":true,\"bos\":1",
         "tensor 'layers.0.ffn_norm' has no place"},
        {"\"bos\":1", "\"layer_norm\":true,\"classifier_bias\":true,\"bos\":1", "tensor 'classifier_bias' is missing"},
        {"\"bos\":1", "\"alibi\":true,\"bos\":1", "'config.alibi': found beside fewer KV heads than heads"},
        {"\"bos\":1", "\"learned_positions\":true,\"bos\":1", "tensor 'positions' is missing"},
        {"\"bos\":1", "\"n_token_types\":2,\"bos\":1", "tensor 'token_types' is missing"},
        {"\"bos\":1", "\"embedding_norm\":true,\"bos\":1", "tensor 'embedding_norm' is missing"},
        {"\"bos\":1", "\"layer_norm\":true,\"norm_bias\":true,\"bos\":1", "tensor 'layers.0.attention_norm_bias' is missing"},
        {"\"bos\":1", "\"ungated\":true,\"bos\":1", "tensor 'layers.0.gate' has no place in this architecture"},
        {"\"bos\":1", "\"bare_first\":true,\"bos\":1", "tensor 'layers.0.attention_norm' has no place"},
        {"\"bos\":1", "\"pooling\":{\"by\":\"mean\",\"end\":-1,\"dense\":[7,5]},\"bos\":1", "tensor 'dense.0' is missing"},
        {"\"bos\":1", "\"n_token_types\":300,\"bos\":1", "'config.n_token_types': found 300"},
        {"\"bos\":1", "\"latent\":{\"q_rank\":-1},\"bos\":1", "'config.latent.q_rank': found -1"},
        {"\"bos\":1", "\"pooling\":\"last\",\"bos\":1", "'config.pooling'"},
        {"\"bos\":1", "\"unrotated_layers\":[0,2],\"bos\":1",
         "'config.unrotated_layers': expected layers from 0 to 1, each once"},
        {"\"bos\":1", "\"unrotated_layers\":[0,0],\"bos\":1",
         "'config.unrotated_layers': expected layers from 0 to 1, each once"},
        {"\"bos\":1", "\"dense_layers\":0,\"bos\":1", "'config.dense_layers': found a number, expected an array"},
        {"\"attention_bias\":false", "\"attention_bias\":true,\"qkv_bias\":true", "found true beside attention_bias"},
        {"\"n_active_experts\":0", "\"n_active_experts\":1", "'config.n_active_experts': found 1, expected 0 to 0"},
        {"\"tied_embeddings\":false", "\"tied_embeddings\":0", "'config.tied_embeddings': found a number, expected a bool"},
        {"\"bos\":1", "\"bos\":11", "'config.bos': found 11, expected an integer from -1 to 10"},
        {"\"bos\":1", "\"bos\":-2", "'config.bos': found -2"},
        {"\"eos\":[2,10]", "\"eos\":2", "'config.eos': found a number, expected an array"},
        {"\"eos\":[2,10]", "\"eos\":[2,11]", "'config.eos[1]': expected an id from 0 to 10"},
        {"\"eos\":[2,10]", "\"eos\":[-1]", "'config.eos[0]'"},
        {"\"eos\":[2,10]", "\"eos\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "'config.eos': more than 16 ids"},
    };
    each_refused(NULL, damages, COUNT(damages));
    static const struct damage of_experts[] = {
        {"\"n_active_experts\":2", "\"n_active_experts\":0", "'config.n_active_experts': found 0, expected 1 to 4"},
        {"\"n_active_experts\":2", "\"n_active_experts\":5", "'config.n_active_experts': found 5, expected 1 to 4"},
        {"\"bos\":1", "\"router_bias\":1,\"bos\":1", "'config.router_bias': found a number, expected a bool"},
        {"\"bos\":1", "\"softmax_choice_bias\":true,\"sigmoid_router\":true,\"bos\":1",
         "'config.softmax_choice_bias': found beside sigmoid_router"},
        {"\"bos\":1", "\"softmax_choice_bias\":true,\"expert_eps\":0.5,\"bos\":1",
         "tensor 'layers.0.router_choice_bias' is missing"},
        {"\"bos\":1", "\"softmax_choice_bias\":true,\"bos\":1",
         "'config.softmax_choice_bias': found beside a sum of scores without its least value, expert_eps"},
        {"\"bos\":1", "\"dense_layers\":[2],\"bos\":1", "'config.dense_layers': expected layers from 0 to 1"},
        {"\"bos\":1", "\"dense_layers\":[1,1],\"bos\":1", "'config.dense_layers': expected layers from 0 to 1"},
    };
    each_refused(&(struct build_options){.n_experts = 4}, of_experts, COUNT(of_experts));
}

static void test_rope_refused(void **state)
{
    (void)state;
    static const struct damage damages[] = {
        {"\"rope\":" ROPE_JSON, "\"rope\":null", "'config.rope': found null, expected an object"},
        {ROPE_JSON, "{\"theta\":1e4}", "'config.rope.type' is missing"},
        {ROPE_JSON, "{\"type\":\"dynamic\",\"theta\":1e4}", "'config.rope.type': found 'dynamic', expected default, linear"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":1e4,\"rotary_dim\":3}",
         "'config.rope.rotary_dim': found 3, expected an even number"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":1e4,\"rotary_dim\":6}", "'config.rope.rotary_dim': found 6"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":1e4,\"rotary_dim\":0}", "'config.rope.rotary_dim': found 0"},
        {ROPE_JSON, "{\"type\":\"default\"}", "'config.rope.theta' is missing"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":0}", "'config.rope.theta': found 0"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":-1}", "'config.rope.theta': found -1"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":1e300}", "'config.rope.theta': found 1e+300"},
        {ROPE_JSON, "{\"type\":\"default\",\"theta\":1e4,\"factor\":2}", "'config.rope.factor' is not known"},
        {ROPE_JSON, "{\"type\":\"linear\",\"theta\":1e4}", "'config.rope.factor' is missing"},
        {ROPE_JSON, "{\"type\":\"linear\",\"theta\":1e4,\"factor\":0.5}",
         "'config.rope.factor': found 0.5, expected a number from 1"},
    };
    each_refused(NULL, damages, COUNT(damages));
    static const struct damage of_llama3[] = {
        {"\"low_freq_factor\":1", "\"low_freq_factor\":0", "'config.rope.low_freq_factor': found 0"},
        {"\"high_freq_factor\":4.5", "\"high_freq_factor\":1", "found 1, expected more than low_freq_factor = 1"},
        {"\"original_context\":8192", "\"original_context\":0", "'config.rope.original_context'"},
        {"\"high_freq_factor\":4.5,", "", "'config.rope.high_freq_factor' is missing"},
        {"\"low_freq_factor\"", "\"beta_slow\"", "'config.rope.beta_slow' is not known"},
    };
    each_refused(&(struct build_options){.rope = llama3}, of_llama3, COUNT(of_llama3));
    static const struct damage of_longrope[] = {
        {"\"short_factors\":[1.5]", "\"short_factors\":[]", "'config.rope.short_factors': expected 1 numbers"},
        {"\"short_factors\":[1.5]", "\"short_factors\":[1.5,1]", "'config.rope.short_factors': expected 1 numbers"},
        {"\"long_factors\":[9]", "\"long_factors\":[0]", "'config.rope.long_factors': expected 1 numbers from 1e-09"},
        {"\"long_factors\":[9]", "\"long_factors\":[\"9\"]", "'config.rope.long_factors': expected 1 numbers"},
        {",\"long_factors\":[9]", "", "'config.rope.long_factors' is missing"},
        {"\"attention_factor\":1.2,", "", "'config.rope.attention_factor' is missing"},
    };
    each_refused(&(struct build_options){.rope = longrope}, of_longrope, COUNT(of_longrope));
    static const struct damage of_yarn[] = {
        {"\"theta\":1e6", "\"theta\":1", "'config.rope.theta': found 1, expected more than 1 with yarn"},
        {"\"beta_fast\":32", "\"beta_fast\":0", "'config.rope.beta_fast': found 0"},
        {"\"attention_factor\":1.25", "\"attention_factor\":-1", "'config.rope.attention_factor'"},
        {"\"truncate\":true", "\"truncate\":1", "'config.rope.truncate': found a number, expected a bool"},
        {",\"truncate\":true", "", "'config.rope.truncate' is missing"},
    };
    each_refused(&(struct build_options){.rope = yarn}, of_yarn, COUNT(of_yarn));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_arrives), cmocka_unit_test(test_kinds_of_layers_arrive),
        cmocka_unit_test(test_kinds_refused),       cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_short_convolutions),  cmocka_unit_test(test_scans),
        cmocka_unit_test(test_every_rope_arrives),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rope_refused),        cmocka_unit_test(test_kinds_that_differ),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
