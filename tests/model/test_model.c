// The public API's view of a model file: facts, tensors, verification, and text functions where there is no tokenizer.

#include "expect.h"

static yalm_model *open_built(const struct built *file, bool verify, yalm_error *error)
{
    char path[64];
    const int fd = file_of(file->data, file->size, path);
    yalm_model_options how = yalm_model_defaults();
    how.verify = verify;
    yalm_model *model = yalm_model_open(path, &how, error);
    close(fd);
    return model;
}

static yalm_model *open_valid(const struct built *file)
{
    yalm_error error = {.text = ""};
    yalm_model *model = open_built(file, true, &error);
    if (!model)
        fail_msg("refused: %s", error.text);
    return model;
}

static void test_facts(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.weights = "bf16"});
    edit(&file, "\"sliding_window\":0", "\"sliding_window\":17");
    yalm_model *model = open_valid(&file);
    const yalm_model_info *info = yalm_model_facts(model);
    assert_string_equal(info->name, "tiny");
    assert_string_equal(info->architecture, "LlamaForCausalLM");
    assert_string_equal(info->weight_dtype, "bf16");
    assert_string_equal(info->rope_type, "default");
    assert_string_equal(info->tokenizer, "none");
    assert_string_equal(info->chat_template, "{{ caf\xc3\xa9 }}");
    assert_int_equal(info->n_layers, TINY_LAYERS);
    assert_int_equal(info->hidden_dim, TINY_HIDDEN);
    assert_int_equal(info->ffn_dim, TINY_FFN);
    assert_int_equal(info->n_heads, TINY_HEADS);
    assert_int_equal(info->n_kv_heads, TINY_KV_HEADS);
    assert_int_equal(info->head_dim, TINY_HEAD_DIM);
    assert_int_equal(info->vocab_size, TINY_VOCAB);
    assert_int_equal(info->tokenizer_vocab, 0);
    assert_int_equal(info->context_length, 64);
    assert_int_equal(info->sliding_window, 17);
    assert_int_equal(info->n_experts, 0);
    assert_int_equal(info->n_active_experts, 0);
    assert_int_equal(info->bos, 1);
    assert_false(info->add_bos);
    assert_int_equal(info->n_eos, 2);
    assert_int_equal(info->eos[0], 2);
    assert_int_equal(info->eos[1], 10);
    assert_int_equal(info->file_bytes, file.size);
    assert_int_equal(info->checksum, get_u64(file.data + AT_CHECKSUM));

    int64_t n_params = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < yalm_model_n_tensors(model); i++) {
        const yalm_tensor_info t = yalm_model_tensor(model, i);
        n_params += t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
        bytes += t.bytes;
        assert_int_equal(yalm_model_verify_tensor(model, i, NULL), YALM_OK);
        assert_int_equal(t.checksum, XXH3_64bits(file.data + t.offset, t.bytes));
    }
    assert_int_equal(info->n_params, n_params);
    assert_int_equal(info->weight_bytes, bytes);
    yalm_model_close(model);
    built_free(&file);
}

static void test_tensors(void **state)
{
    (void)state;
    struct built file = build(NULL);
    yalm_model *model = open_valid(&file);
    const yalm_tensor_info t = yalm_model_tensor(model, 2);
    assert_string_equal(t.name, "layers.0.q");
    assert_string_equal(t.dtype, "fp32");
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.shape[0], 16);
    assert_int_equal(t.shape[1], 8);
    assert_int_equal(t.bytes, 512);
    yalm_error error;
    for (int i = -1; i <= yalm_model_n_tensors(model); i += yalm_model_n_tensors(model) + 1) {
        assert_int_equal(yalm_model_tensor(model, i).rank, 0);
        assert_int_equal(yalm_model_verify_tensor(model, i, &error), YALM_USAGE);
    }
    yalm_model_close(model);
    yalm_model_close(NULL);
    built_free(&file);
}

static void test_verify(void **state)
{
    (void)state;
    struct built file = build(NULL);
    file.data[file.size - 1] ^= 1; // in the classifier
    yalm_error error;
    assert_null(open_built(&file, true, &error));
    assert_int_equal(error.status, YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "tensor 'classifier' damaged"));
    yalm_model *model = open_built(&file, false, &error);
    assert_non_null(model);
    const int last = yalm_model_n_tensors(model) - 1;
    assert_int_equal(yalm_model_verify_tensor(model, last, &error), YALM_BAD_MODEL);
    assert_int_equal(yalm_model_verify_tensor(model, last - 1, &error), YALM_OK);
    yalm_model_close(model);
    built_free(&file);
}

static void test_mixed_types_and_kinds(void **state)
{
    (void)state;
    struct built file = build(&(struct build_options){.weights = "fp16", .n_experts = 3});
    edit(&file, "\"layers.1.experts.2.down\",\"dtype\":\"fp16\"", "\"layers.1.experts.2.down\",\"dtype\":\"bf16\"");
    edit(&file, ",\"chat_template\":\"{{ caf\\u00e9 }}\"", "");
    edit(&file, "\"converter\":\"0.1.0\"", "\"converter\":\"0.1.0\",\"revision\":\"abc\"");
    edit(&file, "{\"type\":\"default\",\"theta\":10000.0}", "{\"type\":\"linear\",\"theta\":10000.0,\"factor\":2}");
    yalm_model *model = open_valid(&file);
    assert_string_equal(yalm_model_facts(model)->weight_dtype, "mixed");
    assert_null(yalm_model_facts(model)->chat_template);
    assert_string_equal(yalm_model_facts(model)->rope_type, "linear");
    assert_int_equal(yalm_model_facts(model)->n_experts, 3);
    assert_int_equal(yalm_model_facts(model)->n_active_experts, 2);
    yalm_model_close(model);
    built_free(&file);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct damage damages[] = {
        {"\"name\":\"tiny\",", "", "'source.name' is missing"},
        {"\"name\":\"tiny\"", "\"name\":[]", "'source.name': found an array, expected a string"},
        {"\"converter\":\"0.1.0\"", "\"converter\":1", "'source.converter': found a number"},
        {"\"converter\":\"0.1.0\"", "\"converter\":\"0.1.0\",\"x\":{}", "'source.x' is not a string"},
        {"\"chat_template\":\"{{ caf\\u00e9 }}\"", "\"chat_template\":null", "'chat_template': found null, expected a string"},
        {"\"source\":{", "\"source\":3,\"chat_template\":{", "'chat_template' appears twice"},
        {"\"tokenizer\":{\"type\":\"none\"},", "", "'tokenizer' is missing"},
        {"\"tokenizer\":{\"type\":\"none\"}", "\"tokenizer\":\"none\"", "'tokenizer': found a string, expected an object"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct built file = build(NULL);
        edit(&file, damages[i].from, damages[i].to);
        yalm_error error = {.text = ""};
        assert_null(open_built(&file, false, &error));
        if (error.status != YALM_BAD_MODEL || !strstr(error.text, damages[i].words))
            fail_msg("status %d, '%s': expected '%s'", (int)error.status, error.text, damages[i].words);
        built_free(&file);
    }
    yalm_error error;
    assert_null(yalm_model_open("/nonexistent/model.bin", NULL, &error));
    assert_int_equal(error.status, YALM_FAILED);
    assert_null(yalm_model_open("/nonexistent/model.bin", NULL, NULL));
}

static void test_text_without_a_tokenizer(void **state)
{
    (void)state;
    struct built file = build(NULL);
    yalm_model *model = open_valid(&file);
    int32_t *tokens;
    size_t n = 7;
    yalm_error error;
    assert_int_equal(yalm_tokenize(model, "abc", 3, YALM_TOKENIZE_BOS, &tokens, &n, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "this model has no tokenizer: it takes token ids, not text"));
    assert_null(tokens);
    assert_int_equal(n, 0);
    assert_null(yalm_piece(model, 3, &n));
    assert_false(yalm_is_control(model, 3));
    assert_true(yalm_is_eos(model, 2) && yalm_is_eos(model, 10));
    assert_false(yalm_is_eos(model, 1) || yalm_is_eos(model, -1) || yalm_is_eos(model, 0));
    yalm_stream stream = {.n_pending = 0};
    char out[YALM_MAX_PIECE + 8];
    assert_int_equal(yalm_stream_token(model, &stream, 3, true, out), 0);
    yalm_model_close(model);
    built_free(&file);
}

static void test_stream_end_gives_what_is_pending(void **state)
{
    (void)state;
    yalm_stream stream = {.pending = {0xe2, 0x82}, .n_pending = 2, .started = true};
    char out[8];
    assert_int_equal(yalm_stream_end(&stream, out), 2);
    assert_memory_equal(out, "\xe2\x82", 2);
    assert_int_equal(yalm_stream_end(&stream, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_mixed_types_and_kinds),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_text_without_a_tokenizer),
        cmocka_unit_test(test_stream_end_gives_what_is_pending),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
