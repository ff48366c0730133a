// The model's own head: whatever it guesses, whenever it is asked and wherever the session goes, the model's logits keep their
// bits. (What it guesses, tests/parity/test_mtp.py compares with torch.)

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#include "engine/kinds.h"
#include "engine/random_model.h"
#include "engine/session.h"
#include "engine/testing_devices.h"
#include "thorough.h"

enum { VOCAB = 67, MANY = 2 * MTP_ROWS + 77, STEPS = 60, STEPS_ON_GPU = 17, MOST = 3 };

static const struct kind_of_model {
    enum dtype dtype;
    int n_experts, window, recurrent, context, chunk, n_prompt;
    bool endless, latents;
    yalm_kv kv;
    int vocab; // 0: VOCAB
} kinds[] = {
    {.dtype = DTYPE_FP16, .context = 200, .n_prompt = 90, .chunk = 32},
    {.dtype = DTYPE_FP32, .context = 110, .n_prompt = 40, .kv = YALM_KV_FP32}, // ends within the steps
    {.dtype = DTYPE_Q4, .n_experts = 5, .context = 200, .n_prompt = 9, .kv = YALM_KV_INT8},
    {.dtype = DTYPE_Q8, .recurrent = 4, .context = 200, .n_prompt = 70, .chunk = 64},
    {.dtype = DTYPE_BF16, .recurrent = 3, .n_experts = 5, .context = 40, .n_prompt = 9, .chunk = 5, .endless = true},
    {.dtype = DTYPE_FP16, .window = 12, .context = 200, .n_prompt = 50, .chunk = 7},
    {.dtype = DTYPE_FP16, .context = 30, .n_prompt = 5, .chunk = 4, .endless = true},
    {.dtype = DTYPE_Q8, .latents = true, .context = 200, .n_prompt = 90, .chunk = 32},
    {.dtype = DTYPE_Q4, .vocab = MANY, .context = 200, .n_prompt = 50},
};

static struct random_model *model_of(const struct kind_of_model *kind)
{
    struct model_config config = {.n_layers = 3,
                                  .hidden_dim = 96,
                                  .ffn_dim = 160,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .head_dim = 24,
                                  .vocab_size = kind->vocab ? kind->vocab : VOCAB,
                                  .context_length = 512,
                                  .n_experts = kind->n_experts,
                                  .n_active_experts = kind->n_experts ? 2 : 0,
                                  .n_dense_layers = kind->n_experts > 0,
                                  .dense_layer = {kind->n_experts > 0},
                                  .kinds = {{.sliding_window = kind->window}},
                                  .mtp = {.there = true, .normed = true, .own_normed = kind->recurrent > 0},
                                  .bos = -1};
    if (kind->recurrent) {
        config.n_more_kinds = 1;
        config.kind_of_layer[0] = config.kind_of_layer[1] = 1;
        config.kinds[1].delta = (struct delta_config){
            .n_key_heads = 2, .n_value_heads = 4, .key_dim = 20, .value_dim = 36, .conv_width = kind->recurrent};
        config.output_gate = config.qk_norm = true;
    }
    if (kind->latents)
        give_latents(&config);
    return random_model_make(config, kind->dtype, 11);
}

static yalm_session_options options_of(const struct kind_of_model *kind, yalm_mtp mtp)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = device;
    options.n_threads = 2;
    options.several = true;
    options.context = kind->context;
    options.chunk = kind->chunk;
    options.endless = kind->endless;
    options.kv = kind->kv;
    options.mtp = mtp;
    return options;
}

static yalm_session *open_session(const struct random_model *m, const struct kind_of_model *kind, yalm_mtp mtp)
{
    const yalm_session_options options = options_of(kind, mtp);
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    if (!session)
        fail_msg("%s", error.text);
    assert_int_equal(yalm_session_facts(session)->mtp, mtp);
    return session;
}

static int32_t token_at(int i)
{
    return (int32_t)((i * 37 + i * i) % VOCAB);
}

static void read_text(yalm_session *session, int first, int n)
{
    int32_t tokens[512];
    for (int i = 0; i < n; i++)
        tokens[i] = token_at(first + i);
    assert_int_equal(yalm_eval(session, tokens, n, YALM_LOGITS_LAST, NULL), YALM_OK);
}

static void check_same(yalm_session *plain, yalm_session *guessing, int at)
{
    assert_int_equal(yalm_position(plain), yalm_position(guessing));
    if (memcmp(yalm_logits(plain, 0), yalm_logits(guessing, 0), sizeof(float) * VOCAB) != 0)
        fail_msg("other logits after step %d", at);
}

static void check_guesses(const int32_t *guesses, int n, int vocab)
{
    assert_in_range(n, 0, MOST);
    for (int i = 0; i < n; i++)
        assert_in_range(guesses[i], 0, vocab - 1);
}

// Of three steps two ask the head; what it guesses is expected, comes, or does not.
static void test_logits_keep_their_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (on_gpu() && (kinds[k].vocab || (!thorough() && k != 2 && k != 3)))
            continue; // guesses of the first rows are the CPU's
        struct random_model *m = model_of(&kinds[k]);
        yalm_session *plain = open_session(m, &kinds[k], YALM_MTP_OFF), *guessing = open_session(m, &kinds[k], YALM_MTP_ON);
        read_text(plain, 0, kinds[k].n_prompt);
        read_text(guessing, 0, kinds[k].n_prompt);
        check_same(plain, guessing, -1);
        int asked = 0, had = 0;
        const int steps = on_gpu() && !thorough() ? STEPS_ON_GPU : STEPS;
        for (int i = 0; i < steps; i++) {
            int32_t guesses[MOST + 1] = {0}, token = token_at(7 * i + 1);
            const bool ask = i % 3 && guessing->n_ahead == 0; // what is ahead comes first
            const int n = i % 3 ? yalm_guess(guessing, token, guesses, MOST) : 0;
            check_guesses(guesses, n, kinds[k].vocab ? MTP_ROWS : VOCAB);
            asked += ask;
            had += n > 0;
            if (i % 4 > 0 && yalm_expect(guessing, guesses, n) != n)
                fail_msg("kind %zu takes no guesses", k);
            guesses[n] = token_at(11 * i);
            for (int j = -1; j < n && j < i % 5 - 1; j++) { // none of them, or some, or all and another one
                const int32_t next = j < 0 ? token : guesses[j];
                assert_int_equal(yalm_eval(plain, &next, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
                assert_int_equal(yalm_eval(guessing, &next, 1, YALM_LOGITS_LAST, NULL), YALM_OK);
                check_same(plain, guessing, i);
            }
            if (i == steps / 2) {
                const int64_t back = yalm_rollback_point(plain, yalm_position(plain) - 3);
                assert_int_equal(yalm_rollback(plain, back, NULL), YALM_OK);
                assert_int_equal(yalm_rollback(guessing, back, NULL), YALM_OK);
                read_text(plain, 400, 30 < kinds[k].context - back ? 30 : 2);
                read_text(guessing, 400, 30 < kinds[k].context - back ? 30 : 2);
                check_same(plain, guessing, i);
            }
            if (!kinds[k].endless && yalm_position(plain) + MOST + 1 > kinds[k].context)
                break;
        }
        assert_true(asked > 3 && had >= asked - 1);
        yalm_session_close(plain);
        yalm_session_close(guessing);
        random_model_free(m);
    }
}

// Where hidden states are missing the head is silent until the next token, and then begins anew.
static void test_begins_anew(void **state)
{
    (void)state;
    const struct kind_of_model *kind = &kinds[0];
    struct random_model *m = model_of(kind);
    yalm_session *session = open_session(m, kind, YALM_MTP_ON), *other = open_session(m, kind, YALM_MTP_ON);
    int32_t guesses[MOST], token = 5;
    assert_int_equal(yalm_guess(session, token, guesses, MOST), 0); // there is no text
    read_text(session, 0, 20);
    read_text(other, 50, 30);
    assert_int_equal(yalm_guess(session, VOCAB, guesses, MOST), 0);
    assert_int_equal(yalm_guess(session, -1, guesses, MOST), 0);
    assert_int_equal(yalm_guess(session, token, guesses, 0), 0);
    assert_int_equal(yalm_guess(session, token, guesses, MOST), MOST);
    assert_int_equal(yalm_position(session), 20);

    yalm_session *both[] = {session, other};
    const int32_t tokens[] = {3, 4};
    assert_int_equal(yalm_eval_each(both, tokens, 2, NULL), YALM_OK);
    assert_int_equal(yalm_guess(session, token, guesses, MOST), 0);
    read_text(session, 90, 1);
    assert_int_equal(yalm_guess(session, token, guesses, MOST), MOST);

    char path[] = "/tmp/yalm-mtp-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    assert_int_equal(yalm_session_save(session, path, NULL), YALM_OK);
    assert_int_equal(yalm_session_load(other, path, NULL), YALM_OK);
    unlink(path);
    assert_int_equal(yalm_guess(other, token, guesses, MOST), 0);
    read_text(session, 300, 2);
    read_text(other, 300, 2);
    assert_memory_equal(yalm_logits(session, 0), yalm_logits(other, 0), sizeof(float) * VOCAB);
    check_guesses(guesses, yalm_guess(other, token, guesses, MOST), VOCAB);
    assert_int_equal(yalm_guess(other, token, guesses, MOST), MOST);

    yalm_session_cancel(session); // the next evaluation is not done, nor is the head's
    assert_int_equal(yalm_eval(session, &token, 1, YALM_LOGITS_LAST, NULL), YALM_INTERRUPTED);
    read_text(session, 310, 1);
    assert_int_equal(yalm_guess(session, token, guesses, MOST), MOST);
    yalm_session_close(session);
    yalm_session_close(other);
    random_model_free(m);
}

// What it says of a text does not depend on how the text came: in pieces, ahead, or after something else.
static void test_same_guesses(void **state)
{
    (void)state;
    const struct kind_of_model *kind = &kinds[1];
    struct random_model *m = model_of(kind);
    yalm_session *one = open_session(m, kind, YALM_MTP_ON), *other = open_session(m, kind, YALM_MTP_ON);
    int32_t of_one[MOST], of_other[MOST], expected[] = {token_at(41), 9, 9};
    read_text(one, 0, 44);
    read_text(other, 200, 70);
    assert_int_equal(yalm_rollback(other, 0, NULL), YALM_OK);
    read_text(other, 0, 40);
    assert_int_equal(yalm_guess(other, 1, of_other, MOST), MOST);
    assert_int_equal(yalm_expect(other, expected, 3), 3);
    read_text(other, 40, 1);
    assert_int_equal(yalm_guess(other, token_at(41), of_other, MOST), 0); // what is ahead comes first
    for (int i = 41; i < 44; i++)
        read_text(other, i, 1);
    assert_int_equal(yalm_guess(one, token_at(44), of_one, MOST), MOST);
    assert_int_equal(yalm_guess(other, token_at(44), of_other, MOST), MOST);
    assert_memory_equal(of_one, of_other, sizeof of_one);
    float range[2] = {0, 0}, off = 0;
    if (on_gpu()) { // where the head's logits stay
        yalm_session_close(one);
        yalm_session_close(other);
        random_model_free(m);
        return;
    }
    yalm_guess(one, token_at(44), of_one, 1);
    yalm_guess(other, token_at(44), of_other, 1);
    for (int i = 0; i < VOCAB; i++) {
        const float a = one->mtp->logits[i], b = other->mtp->logits[i];
        range[0] = fminf(range[0], a);
        range[1] = fmaxf(range[1], a);
        off = fmaxf(off, fabsf(a - b));
    }
    assert_true(off < 1e-4f * (range[1] - range[0]));
    yalm_session_close(one);
    yalm_session_close(other);
    random_model_free(m);
}

static int32_t likeliest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

// Of a large vocabulary the first rows alone are asked, with the logits that they have among all; but of all where the text has
// too many others, or where that many are not worth it.
static void test_first_rows(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_Q8, DTYPE_Q4, DTYPE_BF16};
    static float first[MTP_ROWS];
    int behind = 0;
    for (size_t k = 0; !on_gpu() && k < sizeof types / sizeof *types; k++) {
        const struct kind_of_model kind = {.dtype = types[k], .vocab = MANY, .context = 400};
        struct random_model *m = model_of(&kind);
        yalm_session *session = open_session(m, &kind, YALM_MTP_ON);
        read_text(session, 0, 50);
        const double misses = session->mtp->misses;
        assert_true(misses > 0.3 && misses < 0.75); // of a model that is mostly its classifier
        int32_t of_first, of_all;
        yalm_guess(session, 0, &of_first, 1); // later ones read two rows, of which the first had this token
        for (int32_t token = 1; token < 9; token++) {
            session->mtp->misses = misses;
            assert_int_equal(yalm_guess(session, token, &of_first, 1), 1);
            memcpy(first, session->mtp->logits, sizeof first);
            assert_int_equal(of_first, likeliest(first, MTP_ROWS));
            session->mtp->misses = -1;
            assert_int_equal(yalm_guess(session, token, &of_all, 1), 1);
            assert_memory_equal(first, session->mtp->logits, sizeof first);
            assert_int_equal(of_all, likeliest(session->mtp->logits, MANY));
            behind += of_all >= MTP_ROWS;
        }
        session->mtp->misses = misses;
        int32_t others[400], guess;
        for (int i = 0; i < 400; i++)
            others[i] = MTP_ROWS + i;
        for (int i = 0, n = 30; i < 2; i++, n = 300) { // of 80 tokens 30 are others, then of 256 all
            assert_int_equal(yalm_eval(session, others + i, n, YALM_LOGITS_LAST, NULL), YALM_OK);
            assert_int_equal(yalm_guess(session, 1, &guess, 1), 1);
            assert_int_equal(session->mtp->n_logits, i ? MANY : MTP_ROWS);
        }
        yalm_session_close(session);
        random_model_free(m);
    }
    assert_true(on_gpu() || behind > 8);
}

static void check_refused(const struct random_model *m, yalm_session_options options, const char *why)
{
    yalm_error error = {0};
    assert_null(yalm_session_open(&m->model, &options, &error));
    assert_int_equal(error.status, YALM_USAGE);
    assert_non_null(strstr(error.text, why));
    options.mtp = YALM_MTP_AUTO;
    yalm_session *session = yalm_session_open(&m->model, &options, &error);
    assert_non_null(session);
    assert_int_equal(yalm_session_facts(session)->mtp, YALM_MTP_OFF);
    int32_t guess;
    assert_int_equal(yalm_guess(session, 1, &guess, 1), 0);
    yalm_session_close(session);
}

static void test_refused(void **state)
{
    (void)state;
    struct random_model *m = model_of(&kinds[0]);
    yalm_session_options options = options_of(&kinds[0], YALM_MTP_ON);
    yalm_memory with, without;
    assert_int_equal(yalm_session_memory(&m->model, &options, &with, NULL), YALM_OK);
    options.mtp = YALM_MTP_OFF;
    assert_int_equal(yalm_session_memory(&m->model, &options, &without, NULL), YALM_OK);
    if (!on_gpu())                                                 // which has blocks of whole granules
        assert_int_equal(with.kv_cache * 3, without.kv_cache * 4); // a fourth layer
    assert_true(with.scratch > without.scratch);
    options.mtp = (yalm_mtp)7;
    yalm_error error = {0};
    assert_int_equal(yalm_session_memory(&m->model, &options, &with, &error), YALM_USAGE);
    assert_string_equal(error.text, "mtp: found 7, expected off, auto or on");
    options.mtp = YALM_MTP_ON;
    options.attention = "sparq";
    check_refused(m, options, "one by one");
    random_model_free(m);
    struct kind_of_model kind = kinds[0];
    m = model_of(&kind);
    m->model.config.mtp.there = false;
    m->model.info.name = "plain";
    check_refused(m, options_of(&kind, YALM_MTP_ON), "plain has no MTP head");
    random_model_free(m);
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_keep_their_bits),
        cmocka_unit_test(test_begins_anew),
        cmocka_unit_test(test_same_guesses),
        cmocka_unit_test(test_first_rows),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
