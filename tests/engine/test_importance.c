// What the CPU observes of its matrices' inputs: the sums of the reference in double precision, whatever the architecture; the
// same to the bit on any number of threads; and nothing once it is switched off.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/reference.h"
#include "engine/session.h"

enum { TOKENS = 40, WIDE = 2144, WIDEST = WIDE, PRODUCTS = 736 * WIDE }; // importance_block(WIDE) is 736

#define SHAPE                                                                                                                  \
    .n_layers = 3, .hidden_dim = 32, .ffn_dim = 72, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .vocab_size = 61,           \
    .context_length = 64, .bos = -1
static const struct model_config shapes[] = {
    {SHAPE},
    {SHAPE, .norms_after = true},
    {SHAPE, .n_experts = 4, .n_active_experts = 2, .expert_ffn_dim = 24},
    {SHAPE, .n_experts = 5, .n_active_experts = 1, .expert_ffn_dim = 24, .shared_ffn_dim = 40},
    {.n_layers = 1,
     .hidden_dim = WIDE,
     .ffn_dim = 32,
     .n_heads = 2,
     .n_kv_heads = 1,
     .head_dim = 16,
     .vocab_size = 61,
     .context_length = 64,
     .bos = -1}, // whose products are added up by blocks
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct input_sums *open_sums(const struct model_config *config)
{
    const int n = importance_n_inputs(config);
    struct input_sums *sums = calloc((size_t)n, sizeof *sums);
    float *turned = calloc((size_t)WIDEST * TOKENS, sizeof *turned);
    assert_non_null(turned);
    for (int i = 0; i < n; i++) {
        sums[i].squares = doubles(WIDEST);
        sums[i].turned = turned;
        if (importance_has_products(config, i))
            assert_non_null(sums[i].products = calloc(PRODUCTS, sizeof *sums[i].products));
    }
    return sums;
}

static void close_sums(struct input_sums *sums, const struct model_config *config)
{
    free(sums->turned);
    for (int i = 0; i < importance_n_inputs(config); i++) {
        free(sums[i].squares);
        free(sums[i].products);
    }
    free(sums);
}

static int32_t token_at(int i)
{
    return (int32_t)((i * 37 + i * i) % 61);
}

static void observe_text(const struct random_model *m, int n_threads, int chunk, struct input_sums *sums)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.context = 64;
    options.n_threads = n_threads;
    options.chunk = chunk;
    options.kv = YALM_KV_FP32;
    options.activations = YALM_ACTIVATIONS_FP32;
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    assert_non_null(session);
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = token_at(i);
    session->backend->observe(session->state, sums);
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_NONE, &error), YALM_OK);
    for (int i = 1; i < TOKENS; i += chunk)
        assert_int_equal(yalm_eval(session, tokens + i, TOKENS - i < chunk ? TOKENS - i : chunk, YALM_LOGITS_NONE, &error),
                         YALM_OK);
    session->backend->observe(session->state, NULL);
    assert_int_equal(yalm_eval(session, tokens, 1, YALM_LOGITS_LAST, &error), YALM_OK);
    yalm_session_close(session);
}

// Products of columns, by how large the two are; whether there were any.
static int compare_products(const struct input_sums *expected, const struct input_sums *found, int shape, int input)
{
    const int block = importance_block(expected->cols);
    const double *squares = expected->squares;
    for (int i = 0; i < expected->cols * block && expected->products; i++) {
        const double e = (double)expected->products[i], f = (double)found->products[i];
        const int row = i / block, col = row / block * block + i % block;
        if (!(fabs(f - e) <= 1e-4 * (col <= row ? sqrt(squares[row] * squares[col]) + 1e-3 : 0)))
            fail_msg("shape %d, input %d, columns %d and %d: %g, expected %g", shape, input, row, col, f, e);
    }
    return expected->tokens && expected->products;
}

static void test_sums_are_the_reference_s(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++) {
        struct random_model *m = random_model_make(shapes[s], DTYPE_FP32, 40 + s);
        struct input_sums *expected = open_sums(&shapes[s]), *found = open_sums(&shapes[s]);
        const struct kv_policy kv = kv_policy_make(64, 0, false, 0, 1);
        struct reference r = reference_open(&m->model, &kv, TOKENS);
        r.observed = expected;
        double logits[61];
        for (int i = 0; i < TOKENS; i++)
            reference_token(&r, token_at(i), logits);
        observe_text(m, 2, 16, found);
        int seen = 0, seen_products = 0;
        for (int i = 0; i < importance_n_inputs(&shapes[s]); i++) {
            if (expected[i].tokens != found[i].tokens)
                fail_msg("shape %d, input %d: %d tokens, expected %d", s, i, (int)found[i].tokens, (int)expected[i].tokens);
            seen += found[i].tokens > 0;
            for (int c = 0; c < WIDEST; c++)
                if (!(fabs(found[i].squares[c] - expected[i].squares[c]) <= 1e-4 * (expected[i].squares[c] + 1e-3)))
                    fail_msg("shape %d, input %d, column %d: %g, expected %g", s, i, c, found[i].squares[c],
                             expected[i].squares[c]);
            seen_products += compare_products(&expected[i], &found[i], s, i);
        }
        assert_true(seen > shapes[s].n_layers * (shapes[s].n_experts ? 3 : 4));
        assert_int_equal(seen_products, shapes[s].n_layers * (shapes[s].n_experts && !shapes[s].shared_ffn_dim ? 2 : 4) + 1);
        reference_close(&r);
        close_sums(expected, &shapes[s]);
        close_sums(found, &shapes[s]);
        random_model_free(m);
    }
}

static void test_threads_do_not_show(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++) {
        struct random_model *m = random_model_make(shapes[s], DTYPE_FP32, 70 + s);
        struct input_sums *one = open_sums(&shapes[s]), *many = open_sums(&shapes[s]);
        observe_text(m, 1, 16, one);
        observe_text(m, 3, 16, many);
        for (int i = 0; i < importance_n_inputs(&shapes[s]); i++) {
            assert_memory_equal(one[i].squares, many[i].squares, sizeof(double) * WIDEST);
            if (one[i].products)
                assert_memory_equal(one[i].products, many[i].products, sizeof(float) * PRODUCTS);
        }
        close_sums(one, &shapes[s]);
        close_sums(many, &shapes[s]);
        random_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_the_reference_s),
        cmocka_unit_test(test_threads_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
