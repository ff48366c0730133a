// Tokens that are evaluated ahead because the caller expects them: whether it was right or not, each has the bits that it has
// one by one.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/kinds.h"
#include "engine/random_model.h"
#include "engine/testing_devices.h"
#include "thorough.h"

enum { VOCAB = 67, STEPS = 45, STEPS_ON_GPU = 8, FEW_STEPS = 6, MOST_TOKENS = 700, MOST = 15 };

struct kind_of_model {
    enum dtype dtype;
    int n_experts, window, second_window; // second_window: of every other layer; 0: all are alike
    yalm_kv kv;
    yalm_activations activations;
    int n_prompt, context, chunk; // chunk 0: chosen
    bool endless, sinks;          // sinks: heads have a logit without a key
    bool more;                    // norms of heads and around blocks, soft caps, biases
    int recurrent; // width of the convolution of the first and last layer, which are recurrent; 0: all have attention
    // the delta rule; scans; these in all layers, beside attention; no more; KDA between latents
    enum { DELTA, SCAN, BESIDE, CONVOLUTION, KDA } how;
    const char *attention;
    bool gemma; // layers of four kinds
    bool latents;
    bool seldom; // left out of `make test` on the emulated GPU: other rows have each of its types and kinds of layer
};

static const struct kind_of_model kinds[] = {
    {.dtype = DTYPE_FP32, .kv = YALM_KV_FP32, .n_prompt = 3, .context = 64},
    {.dtype = DTYPE_FP16, .kv = YALM_KV_FP16, .n_prompt = 600, .context = 700}, // several parts of keys
    {.dtype = DTYPE_BF16,
     .kv = YALM_KV_INT8,
     .n_prompt = 250,
     .context = 300,
     .activations = YALM_ACTIVATIONS_FP32,
     .seldom = true},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP16, .n_prompt = 5, .context = 51, .seldom = true},
    {.dtype = DTYPE_Q4, .kv = YALM_KV_INT8, .n_prompt = 1, .context = 64},
    {.dtype = DTYPE_Q4, .kv = YALM_KV_FP16, .n_prompt = 9, .context = 64, .activations = YALM_ACTIVATIONS_INT8},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP32, .n_prompt = 9, .context = 64, .activations = YALM_ACTIVATIONS_INT8},
    {.dtype = DTYPE_FP8, .kv = YALM_KV_FP16, .n_prompt = 30, .context = 128, .window = 20, .second_window = 11},
    {.dtype = DTYPE_FP8_E5M2, .kv = YALM_KV_INT8, .n_prompt = 30, .context = 40, .endless = true, .seldom = true},
    {.dtype = DTYPE_Q4, .n_experts = 5, .kv = YALM_KV_FP16, .n_prompt = 9, .context = 64, .window = 12, .endless = true},
    {.dtype = DTYPE_FP16, .n_experts = 5, .kv = YALM_KV_FP16, .n_prompt = 9, .context = 64, .chunk = 7, .sinks = true},
    {.dtype = DTYPE_FP16, .kv = YALM_KV_FP16, .n_prompt = 20, .context = 300, .attention = "sparq"},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_INT8, .n_prompt = 5, .context = 64, .more = true},
    {.dtype = DTYPE_FP32, .kv = YALM_KV_FP32, .n_prompt = 5, .context = 64, .recurrent = 4},
    {.dtype = DTYPE_Q4, .kv = YALM_KV_FP16, .n_prompt = 150, .context = 200, .recurrent = 2, .seldom = true},
    {.dtype = DTYPE_BF16,
     .kv = YALM_KV_FP16,
     .n_prompt = 1,
     .context = 40,
     .endless = true,
     .chunk = 5,
     .recurrent = 9,
     .seldom = true},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP16, .n_prompt = 150, .context = 200, .recurrent = 4, .how = SCAN},
    {.dtype = DTYPE_FP32, .kv = YALM_KV_FP32, .n_prompt = 5, .context = 64, .recurrent = 3, .how = BESIDE},
    {.dtype = DTYPE_FP32, .kv = YALM_KV_FP32, .n_prompt = 5, .context = 64, .recurrent = 3, .how = CONVOLUTION},
    {.dtype = DTYPE_Q8,
     .kv = YALM_KV_INT8,
     .n_prompt = 150,
     .context = 200,
     .recurrent = 9,
     .how = CONVOLUTION,
     .seldom = true},
    {.dtype = DTYPE_FP32, .kv = YALM_KV_FP32, .n_prompt = 5, .context = 64, .recurrent = 4, .how = KDA},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP16, .n_prompt = 150, .context = 200, .recurrent = 2, .how = KDA, .seldom = true},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP16, .n_prompt = 9, .context = 64, .gemma = true, .seldom = true},
    {.dtype = DTYPE_BF16, .kv = YALM_KV_INT8, .n_prompt = 20, .context = 40, .endless = true, .chunk = 7, .gemma = true},
    {.dtype = DTYPE_Q8, .kv = YALM_KV_FP16, .n_prompt = 300, .context = 350, .latents = true, .seldom = true},
};

static struct random_model *model_of(const struct kind_of_model *kind)
{
    struct model_config config = {.n_layers = 3,
                                  .hidden_dim = 160,
                                  .ffn_dim = 208,
                                  .n_heads = 10, // six tokens' queries fit into a task
                                  .n_kv_heads = 1,
                                  .head_dim = 16,
                                  .vocab_size = VOCAB,
                                  .context_length = MOST_TOKENS,
                                  .n_experts = kind->n_experts,
                                  .n_active_experts = kind->n_experts ? 2 : 0,
                                  .kinds = {{.sliding_window = kind->window}, {.sliding_window = kind->second_window}},
                                  .n_more_kinds = kind->second_window > 0,
                                  .kind_of_layer = {0, kind->second_window > 0, 0},
                                  .sink_logits = kind->sinks,
                                  .qk_norm = kind->more,
                                  .norms_around = kind->more,
                                  .qkv_bias = kind->more,
                                  .mlp_bias = kind->more,
                                  .attention_softcap = kind->more ? 5 : 0,
                                  .logits_softcap = kind->more ? 3 : 0,
                                  .activation = kind->more ? ACTIVATION_GELU : ACTIVATION_SILU,
                                  .bos = -1};
    if (kind->how == SCAN || kind->how == BESIDE)
        give_scan(&config, kind->how == BESIDE, kind->recurrent);
    else if (kind->how == KDA)
        give_kda(&config, kind->recurrent);
    else if (kind->recurrent) {
        config.n_more_kinds = 1;
        config.kind_of_layer[0] = config.kind_of_layer[2] = 1;
        config.kinds[1].delta = (struct delta_config){
            .n_key_heads = 2, .n_value_heads = 6, .key_dim = 20, .value_dim = 36, .conv_width = kind->recurrent};
        config.output_gate = true;
    }
    if (kind->how == CONVOLUTION)
        config.kinds[1].delta =
            (struct delta_config){.conv_width = kind->recurrent, .conv_dim = config.hidden_dim, .conv_bias = true};
    if (kind->gemma)
        give_kinds(&config);
    if (kind->latents)
        give_latents(&config);
    return random_model_make(config, kind->dtype, 11);
}

static yalm_session *open_session(const struct random_model *m, const struct kind_of_model *kind, const char *isa,
                                  int n_threads)
{
    static const char *const settings[] = {"sparq.from=1", "sparq.min_k=4"};
    yalm_session_options options = yalm_session_defaults();
    options.device = device;
    options.isa = isa;
    options.several = true;
    options.n_threads = n_threads;
    options.kv = kind->kv;
    options.activations = on_gpu() || kind->activations == YALM_ACTIVATIONS_AUTO ? YALM_ACTIVATIONS_INT16 : kind->activations;
    options.context = kind->context;
    options.chunk = kind->chunk;
    options.endless = kind->endless;
    if (kind->attention) {
        options.attention = kind->attention;
        options.settings = settings;
        options.n_settings = 2;
    }
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static int32_t token_of(int i)
{
    return (int32_t)((i * 37 + i * i) % VOCAB);
}

// Of every length, mostly right, some wrong from the first on, some from the middle, some with a token that is none.
static int guess(int32_t *tokens, int i, int step)
{
    const int n = step * 7 % (MOST + 3), wrong = step % 3 ? step * 5 % 17 : MOST + 3;
    for (int j = 0; j < n; j++)
        tokens[j] = j == wrong ? (step % 7 ? 1 + token_of(i + j) : VOCAB) % (VOCAB + 1) : token_of(i + j);
    return n;
}

// Drawing looks at the tokens so far and at the random numbers drawn so far.
static int32_t draw(yalm_session *session)
{
    yalm_sampling sampling = yalm_sampling_defaults();
    sampling.repeat_penalty = 1.3f;
    sampling.penalty_last_n = 20;
    return yalm_sample(session, &sampling);
}

static void check(const struct random_model *m, const struct kind_of_model *kind, const char *isa, int n_threads)
{
    yalm_session *one = open_session(m, kind, isa, n_threads), *ahead = open_session(m, kind, isa, n_threads);
    int32_t prompt[MOST_TOKENS], guesses[MOST + 3];
    const int most = kind == &kinds[1] || thorough() ? 200 : 40; // several parts there, too
    const int n_prompt = on_gpu() && kind->n_prompt > most ? most : kind->n_prompt;
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = token_of(i);
    assert_int_equal(yalm_eval(one, prompt, n_prompt, YALM_LOGITS_LAST, NULL), YALM_OK);
    assert_int_equal(yalm_eval(ahead, prompt, n_prompt, YALM_LOGITS_LAST, NULL), YALM_OK);
    int taken = 0;
    for (int step = 0; step < (!on_gpu() ? STEPS : thorough() ? STEPS_ON_GPU : FEW_STEPS); step++) {
        const int i = n_prompt + step;
        const int32_t token = token_of(i);
        yalm_error error = {0};
        taken += yalm_expect(ahead, guesses, guess(guesses, i + 1, step));
        assert_int_equal(yalm_eval(one, &token, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
        if (yalm_eval(ahead, &token, 1, YALM_LOGITS_LAST, &error) != YALM_OK)
            fail_msg("%s", error.text);
        if (memcmp(yalm_logits(one, 0), yalm_logits(ahead, 0), sizeof(float) * VOCAB))
            fail_msg("%s, kind %d, step %d: other bits than one by one", isa, (int)(kind - kinds), step);
        assert_int_equal(yalm_position(one), yalm_position(ahead));
        assert_int_equal(draw(one), draw(ahead));
    }
    assert_int_equal(taken > 0, kind->attention == NULL);
    yalm_session_close(one);
    yalm_session_close(ahead);
}

static bool left_out(size_t k)
{
    return on_gpu() && !thorough() && kinds[k].seldom;
}

static void test_bits_are_those_of_one_by_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (left_out(k))
            continue;
        if (on_gpu() && kinds[k].activations == YALM_ACTIVATIONS_INT8)
            continue; // which are the CPU's
        struct random_model *m = model_of(&kinds[k]);
        for (int i = 0; isa_to_test(i); i++)
            check(m, &kinds[k], isa_to_test(i), 1 + (int)k % 3);
        random_model_free(m);
    }
}

static const struct kind_of_model *looked_at; // by the two tests that follow

static yalm_session *session_after(const struct random_model *m, const int32_t *tokens, int n)
{
    yalm_session *session = open_session(m, looked_at, "auto", 2);
    for (int i = 0; i < n; i++)
        assert_int_equal(yalm_eval(session, &tokens[i], 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    return session;
}

// The session as its caller sees it stands where it would without what lies ahead: for each call that does not take it.
static void check_what_lies_ahead_is_forgotten(void)
{
    struct random_model *m = model_of(looked_at);
    const int32_t text[] = {1, 2, 3, 4, 5, 6}, other[] = {1, 2, 3, 9, 8, 7};
    yalm_session *plain = session_after(m, other, 6), *session = session_after(m, text, 2);
    for (int round = 0; round < 4; round++) {
        assert_int_equal(yalm_expect(session, text + 3, 3), 3);
        assert_int_equal(yalm_eval(session, text + 2, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
        assert_int_equal(yalm_position(session), 3);
        int32_t known[8];
        assert_int_equal(yalm_session_tokens(session, known, 8), 3);
        if (round == 0) { // something else comes: several tokens
            assert_int_equal(yalm_eval(session, other + 3, 3, YALM_LOGITS_LAST, NULL), YALM_OK);
        } else if (round == 1) { // one by one
            for (int i = 3; i < 6; i++)
                assert_int_equal(yalm_eval(session, other + i, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
        } else if (round == 2) { // an interruption, of a token that is there already
            yalm_session_cancel(session);
            assert_int_equal(yalm_eval(session, text + 3, 1, YALM_LOGITS_LAST, NULL), YALM_INTERRUPTED);
            assert_int_equal(yalm_position(session), 3);
            assert_int_equal(yalm_eval(session, text + 3, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
            assert_int_equal(yalm_rollback(session, 3, NULL), YALM_OK);
            for (int i = 3; i < 6; i++)
                assert_int_equal(yalm_eval(session, other + i, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
        } else { // a token that is ahead, with another session's that is not
            yalm_session *second = session_after(m, text, 2);
            assert_int_equal(yalm_eval_each((yalm_session *[]){session, second}, (int32_t[]){4, 3}, 2, NULL), YALM_OK);
            assert_int_equal(yalm_position(session), 4);
            yalm_session *expected = session_after(m, text, 3);
            assert_memory_equal(yalm_logits(second, 0), yalm_logits(expected, 0), sizeof(float) * VOCAB);
            assert_int_equal(yalm_eval(expected, text + 3, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
            assert_memory_equal(yalm_logits(session, 0), yalm_logits(expected, 0), sizeof(float) * VOCAB);
            assert_int_equal(yalm_eval_each((yalm_session *[]){session, second}, (int32_t[]){9, 4}, 2, NULL), YALM_OK);
            assert_memory_equal(yalm_logits(second, 0), yalm_logits(expected, 0), sizeof(float) * VOCAB);
            yalm_session_close(second);
            yalm_session_close(expected);
            continue;
        }
        if (round > 0)
            assert_memory_equal(yalm_logits(session, 0), yalm_logits(plain, 0), sizeof(float) * VOCAB);
        assert_int_equal(yalm_position(session), 6);
        if (yalm_rollback(session, 2, NULL) != YALM_OK) { // with recurrent layers it may be too far back
            assert_true(looked_at->recurrent);
            yalm_session_close(session);
            session = session_after(m, text, 2);
        }
    }
    yalm_session_close(session);
    yalm_session_close(plain);
    random_model_free(m);
}

// On the emulated GPU states of one kind stand for all: what forgets them is the same.
static void test_what_lies_ahead_is_forgotten(void **state)
{
    (void)state;
    const bool all = !on_gpu() || thorough();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (k == 0 || (kinds[k].recurrent && !left_out(k) && (all || kinds[k].how == DELTA))) {
            looked_at = &kinds[k];
            check_what_lies_ahead_is_forgotten();
        }
}

// Up to the context's last position, and no further.
static void test_the_context_ends_where_it_did(void **state)
{
    (void)state;
    struct random_model *m = model_of(&kinds[0]);
    const int context = kinds[0].context;
    yalm_session *session = open_session(m, &kinds[0], "auto", 2);
    int32_t tokens[MOST];
    for (int i = 0; i < MOST; i++)
        tokens[i] = 5;
    for (int i = 0; i < context; i++) {
        assert_int_equal(yalm_expect(session, tokens, MOST), MOST);
        assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
    }
    yalm_error error;
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, &error), YALM_USAGE);
    assert_int_equal(yalm_position(session), context);
    yalm_session_close(session);
    random_model_free(m);
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_one_by_one),
        cmocka_unit_test(test_what_lies_ahead_is_forgotten),
        cmocka_unit_test(test_the_context_ends_where_it_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
