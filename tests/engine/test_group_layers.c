// Ranks that share layers of several sorts: recurrent ones, gated outputs, heads and inputs of a layer's own; and what they do
// not share.

#include "engine/group_runs.h"

static void test_each_sort_of_layers(void **state)
{
    (void)state;
    struct model_config kinds[N_SHARED_LAYERS];
    shared_layers(kinds);
    for (int i = 0; i < N_SHARED_LAYERS; i++) {
        for (int n = 2; n <= 4; n++)
            check(kinds[i], DTYPE_FP32, n, 1, 1e-5);
        check(kinds[i], DTYPE_Q8, 2, 1, 1e-3);
    }
    check(kinds[1], DTYPE_BF16, 3, 1, 1e-5);
}

// All heads of q normalised as one, where layers have other numbers and widths of them, or others' keys.
static void test_whole_norms(void **state)
{
    (void)state;
    struct model_config kinds[N_SHARED_LAYERS];
    shared_layers(kinds);
    for (int i = 0; i < 4; i++) {
        kinds[i].qk_norm = false;
        kinds[i].whole_qk_norm = true;
        check(kinds[i], DTYPE_FP32, 2, 1, 1e-5);
    }
}

// Methods for long contexts serve each rank's heads of those layers that see the farthest.
static void test_sparse_attention(void **state)
{
    (void)state;
    static const char *const settings[] = {"sparq.from=1", "sparq.k=64"};
    struct model_config kinds[N_SHARED_LAYERS];
    shared_layers(kinds);
    for (int i = 0; i < 4; i++) {
        struct random_model *m = random_model_make(kinds[i], DTYPE_FP32, 6);
        yalm_session_options options = options_of(YALM_KV_FP32, 1);
        options.activations = YALM_ACTIVATIONS_FP32;
        options.attention = "sparq";
        options.settings = settings;
        options.n_settings = 2;
        const double found = run(m, options, 2);
        if (!(found < 1e-4))
            fail_msg("model %d: off by %g of the range", i, found);
        random_model_free(m);
    }
}

// What cannot be cut into so many parts, and what is not shared at all.
static void test_refusals(void **state)
{
    (void)state;
    struct random_model *m;
    yalm_error error = {0};
    struct model_config layers[N_SHARED_LAYERS];
    shared_layers(layers);
    m = random_model_make(layers[0], DTYPE_FP32, 5); // of five KV heads, and four key heads in the recurrent layers
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 5, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found 5, expected at most 4"));
    random_model_free(m);
    m = random_model_make(layers[1], DTYPE_Q8, 5); // whose groups of 32 columns are two heads' of a tile
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 3, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found 3, expected at most 2"));
    random_model_free(m);
    struct model_config normed = plain();
    normed.n_experts = 5;
    normed.n_active_experts = 2;
    normed.shared_ffn_dim = 64;
    normed.norms_around = normed.expert_norms = true;
    m = random_model_make(normed, DTYPE_FP32, 5);
    assert_int_equal(share_check(&m->model.config, &m->model.weights, 2, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "experts with norms of their own, which ranks do not share"));
    random_model_free(m);
}

static void test_a_head_that_guesses(void **state)
{
    (void)state;
    struct model_config config = plain();
    config.mtp.there = true;
    struct random_model *m = random_model_make(config, DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 2, 1, 30);
    assert_int_equal(model_share_out(&ranks.each[0].model, &error), YALM_OK);
    yalm_session_options options = options_of(YALM_KV_FP32, 1);
    options.mtp = YALM_MTP_ON;
    assert_null(yalm_session_open(&ranks.each[0].model, &options, &error));
    assert_int_equal(error.status, YALM_USAGE);
    assert_string_equal(error.text, "mtp: an MTP head does not run on several machines");
    options.mtp = YALM_MTP_AUTO;
    yalm_session_close(open_session(&ranks.each[0].model, &options));
    ranks_end(&ranks);
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sort_of_layers), cmocka_unit_test(test_whole_norms),
        cmocka_unit_test(test_sparse_attention),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_head_that_guesses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
