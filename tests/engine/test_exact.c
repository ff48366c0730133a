// Exact bits: sessions read texts with common beginnings in pieces, are cancelled, go back, take pages from each other, guess
// ahead and go on together. Each token's logits are those of a new session that reads the prompt at once, and then token by
// token.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/kinds.h"
#include "engine/random_model.h"
#include "engine/testing_devices.h"
#include "thorough.h"

enum { VOCAB = 61, CONTEXT = 320, SESSIONS = 3, TEXTS = 4, MOST_DRAWN = 5, PAGE = 16, MOST_PAGES = CONTEXT / PAGE };

struct kind_of_model {
    enum dtype dtype;
    yalm_kv kv;
    yalm_activations activations;
    enum { PLAIN, WINDOW, EXPERTS, KINDS, RECURRENT, SCAN, BESIDE, CONVOLVES, SINKS, CAPPED, WIDE, LATENTS, KDA } shape;
};

static const struct kind_of_model kinds[] = {
    {DTYPE_FP32, YALM_KV_FP32, YALM_ACTIVATIONS_INT16, PLAIN},   {DTYPE_FP16, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, WINDOW},
    {DTYPE_BF16, YALM_KV_INT8, YALM_ACTIVATIONS_INT16, WIDE},    {DTYPE_FP8, YALM_KV_INT8, YALM_ACTIVATIONS_FP32, PLAIN},
    {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, PLAIN},     {DTYPE_Q8, YALM_KV_INT8, YALM_ACTIVATIONS_INT8, WINDOW},
    {DTYPE_Q4, YALM_KV_FP16, YALM_ACTIVATIONS_INT8, EXPERTS},    {DTYPE_Q4N, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, CAPPED},
    {DTYPE_Q4K, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, WIDE},     {DTYPE_Q5, YALM_KV_FP32, YALM_ACTIVATIONS_INT16, SINKS},
    {DTYPE_FP16, YALM_KV_FP16, YALM_ACTIVATIONS_FP32, EXPERTS},  {DTYPE_BF16, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, KINDS},
    {DTYPE_FP32, YALM_KV_FP16, YALM_ACTIVATIONS_FP32, KINDS},    {DTYPE_FP32, YALM_KV_FP32, YALM_ACTIVATIONS_FP32, RECURRENT},
    {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, RECURRENT}, {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, LATENTS},
    {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, SCAN},      {DTYPE_FP32, YALM_KV_FP32, YALM_ACTIVATIONS_FP32, BESIDE},
    {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, CONVOLVES}, {DTYPE_Q8, YALM_KV_FP16, YALM_ACTIVATIONS_INT16, KDA}};

static struct random_model *model_of(const struct kind_of_model *kind)
{
    struct model_config c = {.n_layers = 2,
                             .hidden_dim = 160,
                             .ffn_dim = 176,
                             .n_heads = 6,
                             .n_kv_heads = 2,
                             .head_dim = 16,
                             .vocab_size = VOCAB,
                             .context_length = CONTEXT,
                             .bos = -1};
    switch (kind->shape) {
    case PLAIN:
        break;
    case WINDOW:
        c.n_more_kinds = 1;
        c.kind_of_layer[0] = 1;
        c.kinds[1].sliding_window = 71;
        break;
    case EXPERTS:
        c.n_experts = 5;
        c.n_active_experts = 2;
        break;
    case KINDS:
        give_kinds(&c);
        break;
    case LATENTS:
        give_latents(&c);
        break;
    case KDA:
        give_kda(&c, 4);
        break;
    case SCAN:
    case BESIDE:
        give_scan(&c, kind->shape == BESIDE, 4);
        break;
    case CONVOLVES:
        c.n_more_kinds = 1;
        c.kind_of_layer[0] = 1;
        c.kinds[1].delta = (struct delta_config){.conv_width = 3, .conv_dim = c.hidden_dim};
        break;
    case RECURRENT:
        c.n_more_kinds = 1;
        c.kind_of_layer[0] = 1;
        c.kinds[1].delta =
            (struct delta_config){.n_key_heads = 2, .n_value_heads = 4, .key_dim = 20, .value_dim = 36, .conv_width = 4};
        break;
    case SINKS:
        c.sink_logits = true;
        c.kinds[0].sliding_window = 50;
        break;
    case CAPPED:
        c.attention_softcap = 2;
        break;
    case WIDE:
        c.hidden_dim = c.ffn_dim = 256;
        c.n_heads = 4;
        c.n_kv_heads = 1;
        c.head_dim = 64;
        break;
    }
    return random_model_make(c, kind->dtype, 11);
}

// ------------------------------------------------------------------------------------------ sessions

static uint32_t seed;
static int below(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static yalm_session *open_session(const struct random_model *m, const struct kind_of_model *kind, const char *isa,
                                  int n_threads, int chunk)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = device;
    options.isa = isa;
    options.several = options.exact = true;
    options.n_threads = n_threads;
    options.context = CONTEXT;
    options.chunk = chunk;
    options.kv = kind->kv;
    options.activations = kind->activations;
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session && !strstr(error.text, "activations")) // which these weights may not have
        fail_msg("%s", error.text);
    return session;
}

// Texts begin alike, each for longer with the one before.
static int32_t token_of(int text, int i)
{
    const int own = i < 90 * text ? 0 : text;
    return (int32_t)((i * 37 + own * 11 + i * i) % VOCAB);
}

static void tokens_of(int32_t *tokens, int text, int first, int n)
{
    for (int i = 0; i < n; i++)
        tokens[i] = token_of(text, first + i);
}

// Logits after the prompt, and after each of the tokens that follow.
struct answer {
    int n_prompt;
    float logits[MOST_DRAWN + 1][VOCAB];
};

static void eval(yalm_session *s, const int32_t *tokens, int n, yalm_logits_of which)
{
    yalm_error error = {0};
    if (yalm_eval(s, tokens, n, which, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static struct answer answer_at_once(const struct random_model *m, const struct kind_of_model *kind, const char *isa, int text,
                                    int n_prompt)
{
    struct answer answer = {.n_prompt = n_prompt};
    int32_t tokens[CONTEXT];
    tokens_of(tokens, text, 0, CONTEXT);
    yalm_session *s = open_session(m, kind, isa, 1, 160);
    eval(s, tokens, n_prompt, YALM_LOGITS_LAST);
    for (int i = 0; i <= MOST_DRAWN; i++) {
        memcpy(answer.logits[i], yalm_logits(s, 0), sizeof answer.logits[i]);
        if (i < MOST_DRAWN)
            eval(s, tokens + n_prompt + i, 1, YALM_LOGITS_LAST);
    }
    yalm_session_close(s);
    return answer;
}

// ------------------------------------------------------------------------------------------ what goes on

struct pages {
    uint8_t *memory;
    size_t bytes; // of one; 0: the session has none
    int text, n;
};

static void save_pages(struct pages *pages, yalm_session *s, int text)
{
    pages->text = text;
    pages->n = 0;
    while (pages->bytes && pages->n < MOST_PAGES &&
           yalm_page_save(s, pages->n * PAGE, PAGE, pages->memory + (size_t)pages->n * pages->bytes, NULL) == YALM_OK)
        pages->n++;
}

// Pages of the text, if there are any, that end before its last token.
static void load_pages(const struct pages *pages, yalm_session *s, int text, const int32_t *tokens, int n_prompt)
{
    const void *each[MOST_PAGES];
    int n = 0;
    for (; pages->text == text && n < pages->n && (n + 1) * PAGE < n_prompt; n++)
        each[n] = pages->memory + (size_t)n * pages->bytes;
    if (n > 0)
        assert_int_equal(yalm_page_load(s, tokens, PAGE, each, n, NULL, NULL), YALM_OK);
}

// The prompt, from what the session has of it on, in pieces; now and then one is cancelled, and read again.
static void read_prompt(yalm_session *s, const int32_t *tokens, int n_prompt)
{
    int64_t at = (int64_t)yalm_session_common(s, tokens, (size_t)n_prompt);
    at = yalm_rollback_point(s, at < n_prompt ? at : n_prompt - 1);
    assert_int_equal(yalm_rollback(s, at, NULL), YALM_OK);
    const int most = (int[]){1, 4, 17, 70, CONTEXT}[below(5)];
    while (yalm_position(s) < n_prompt) {
        const int from = (int)yalm_position(s), left = n_prompt - from, piece = 1 + below(most < left ? most : left);
        const yalm_logits_of which = piece == left ? YALM_LOGITS_LAST : YALM_LOGITS_NONE;
        if (below(4) == 0) {
            yalm_session_cancel(s);
            assert_int_equal(yalm_eval(s, tokens + from, piece, which, NULL), YALM_INTERRUPTED);
            assert_int_equal(yalm_position(s), from);
        }
        eval(s, tokens + from, piece, which);
    }
}

static void check_logits(const yalm_session *s, const struct answer *answer, int i, const char *isa, int kind)
{
    if (memcmp(yalm_logits(s, 0), answer->logits[i], sizeof answer->logits[i]) != 0)
        fail_msg("%s, model %d: other bits after a prompt of %d and %d drawn", isa, kind, answer->n_prompt, i);
}

// Of some sessions a token each, of one alone, or with a guess of what comes next that is right or not.
static void draw(yalm_session *const *sessions, const int32_t *tokens, int n, int32_t next)
{
    yalm_error error = {0};
    if (n == 1 && below(2)) {
        const int32_t guesses[] = {below(2) ? next : 0, 1};
        yalm_expect(sessions[0], guesses, 2);
    }
    if (yalm_eval_each(sessions, tokens, n, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static void check_round(yalm_session *const *sessions, const struct random_model *m, int kind, const char *isa,
                        struct pages *pages, bool few)
{
    static struct answer answers[SESSIONS];
    int32_t tokens[SESSIONS][CONTEXT];
    int texts[SESSIONS];
    const int n = few ? 1 : 1 + below(SESSIONS);
    for (int i = 0; i < n; i++) {
        const int text = texts[i] = below(TEXTS), n_prompt = 2 + below((few ? 60 : CONTEXT - 8) - 2);
        answers[i] = answer_at_once(m, &kinds[kind], isa, text, n_prompt);
        tokens_of(tokens[i], text, 0, CONTEXT);
        if (below(3) == 0)
            load_pages(pages, sessions[i], text, tokens[i], n_prompt);
        read_prompt(sessions[i], tokens[i], n_prompt);
        check_logits(sessions[i], &answers[i], 0, isa, kind);
        if (below(2))
            save_pages(pages, sessions[i], text);
    }
    for (int step = 0; step < MOST_DRAWN; step++) {
        int32_t drawn[SESSIONS];
        for (int i = 0; i < n; i++)
            drawn[i] = tokens[i][answers[i].n_prompt + step];
        draw(sessions, drawn, n, tokens[0][answers[0].n_prompt + step + 1]);
        for (int i = 0; i < n; i++)
            check_logits(sessions[i], &answers[i], step + 1, isa, kind);
    }
    if (below(3) == 0) {
        save_pages(pages, sessions[0], texts[0]);
        assert_true(pages->n * PAGE < answers[0].n_prompt); // none of what was drawn
    }
}

static void check_model(const struct random_model *m, int kind, const char *isa)
{
    const bool few = strcmp(isa, "scalar") == 0; // and slow
    static const int chunks[SESSIONS] = {160, 23, 5};
    yalm_session *sessions[SESSIONS];
    for (int i = 0; i < SESSIONS; i++)
        if (!(sessions[i] = open_session(m, &kinds[kind], isa, 2, chunks[i])))
            return;
    struct pages pages = {.bytes = yalm_state_bytes(sessions[0]) ? 0 : yalm_page_bytes(sessions[0], PAGE)};
    pages.memory = malloc(pages.bytes * MOST_PAGES + 1);
    for (int round = 0; round < (few ? 3 : 7); round++)
        check_round(sessions, m, kind, isa, &pages, few);
    free(pages.memory);
    for (int i = 0; i < SESSIONS; i++)
        yalm_session_close(sessions[i]);
}

static void test_whatever_went_before(void **state)
{
    (void)state;
    for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
        struct random_model *m = model_of(&kinds[kind]);
        for (int isa = 0; isa_to_test(isa); isa++) {
            if (!thorough() && isa_to_test(1) && (kind + isa) % 2) // in `make test` by turns
                continue;
            seed = (uint32_t)(kind * 100 + isa);
            check_model(m, kind, isa_to_test(isa));
        }
        random_model_free(m);
    }
}

// More members than cores: some are late by whole steps, and look at what others write already (ThreadSanitizer sees it).
static void test_late_members(void **state)
{
    (void)state;
    enum { KIND = 6, N = 12 };
    assert_int_equal(kinds[KIND].shape, EXPERTS);
    int32_t tokens[N];
    tokens_of(tokens, 0, 0, N);
    struct random_model *m = model_of(&kinds[KIND]);
    const struct answer answer = answer_at_once(m, &kinds[KIND], "auto", 0, N);
    yalm_session *s = open_session(m, &kinds[KIND], "auto", 6, 160);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(yalm_rollback(s, 0, NULL), YALM_OK);
        eval(s, tokens, N, YALM_LOGITS_LAST);
        check_logits(s, &answer, 0, "auto", KIND);
    }
    yalm_session_close(s);
    random_model_free(m);
}

// All logits are those of a prompt's tokens, also the last.
static void test_all_logits(void **state)
{
    (void)state;
    enum { N = 40 };
    int32_t tokens[N];
    tokens_of(tokens, 0, 0, N);
    struct random_model *m = model_of(&kinds[1]);
    yalm_session *at_once = open_session(m, &kinds[1], "auto", 1, 160), *pieces = open_session(m, &kinds[1], "auto", 2, 7);
    eval(at_once, tokens, N, YALM_LOGITS_ALL);
    eval(pieces, tokens, 13, YALM_LOGITS_NONE);
    for (int i = 13, n = 1; i < N; i += n, n = 2 * n < N - i ? 2 * n : N - i) {
        eval(pieces, tokens + i, n, YALM_LOGITS_ALL);
        for (int j = 0; j < n; j++)
            assert_memory_equal(yalm_logits(pieces, j), yalm_logits(at_once, i + j), sizeof(float) * VOCAB);
    }
    assert_int_equal(yalm_session_settled(pieces), N);
    yalm_session_close(at_once);
    yalm_session_close(pieces);
    random_model_free(m);
}

// What is settled ends before the first token that went alone.
static void test_settled(void **state)
{
    (void)state;
    int32_t tokens[40];
    tokens_of(tokens, 0, 0, 40);
    struct random_model *m = model_of(&kinds[0]);
    yalm_session *s = open_session(m, &kinds[0], "auto", 1, 160);
    eval(s, tokens, 20, YALM_LOGITS_LAST);
    eval(s, tokens + 20, 5, YALM_LOGITS_NONE);
    assert_int_equal(yalm_session_settled(s), 19);
    assert_int_equal(yalm_session_common(s, tokens, 40), 19);
    assert_int_equal(yalm_rollback(s, 22, NULL), YALM_OK);
    assert_int_equal(yalm_session_settled(s), 19);
    assert_int_equal(yalm_rollback(s, 19, NULL), YALM_OK);
    eval(s, tokens + 19, 1, YALM_LOGITS_NONE);
    assert_int_equal(yalm_session_settled(s), 20);
    assert_int_equal(yalm_rollback(s, 7, NULL), YALM_OK);
    assert_int_equal(yalm_session_settled(s), 7);
    yalm_session_close(s);
    random_model_free(m);
}

static void test_what_has_no_exact_bits_is_refused(void **state)
{
    (void)state;
    struct random_model *m = model_of(&kinds[0]);
    yalm_session_options options = yalm_session_defaults();
    yalm_error error;
    options.device = "cpu";
    options.exact = options.endless = true;
    assert_null(yalm_session_open(&m->model, &options, &error));
    assert_string_equal(error.text, "exact bits: found an endless session, expected one that ends with its context");
    options.endless = false;
    options.attention = "sparq";
    assert_null(yalm_session_open(&m->model, &options, &error));
    assert_string_equal(error.text, "exact bits: found attention sparq, expected dense");
    assert_int_equal(error.status, YALM_USAGE);
    random_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_went_before),
        cmocka_unit_test(test_late_members),
        cmocka_unit_test(test_all_logits),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_what_has_no_exact_bits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
