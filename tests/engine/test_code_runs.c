// Codes in runs, in sessions: they are those of the keys, however these came and were taken back; scores are those of the
// formula in double precision, from the sub-quantisers that move them most.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/long/method.h"
#include "engine/session.h"
#include "engine/sessions.h"
#include "settings_testing.h"

enum { LAYERS = 2, GROUP = HEADS / KV_HEADS, DIM = 40, CONTEXT = 700, D_SUBS = 3 };

static char book_paths[D_SUBS][64];
static const int d_subs[D_SUBS] = {1, 2, 4};

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(LAYERS, DIM, CONTEXT);
    if (make_directory())
        return 1;
    for (int i = 0; i < D_SUBS; i++) {
        snprintf(book_paths[i], sizeof book_paths[i], "%s/%d.nomad", directory, d_subs[i]);
        calibrate(CONTEXT, d_subs[i], book_paths[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < D_SUBS; i++)
        unlink(book_paths[i]);
    return end_sessions();
}

static yalm_session_options options_of(int book, const char *attention)
{
    yalm_session_options options = small_options(attention, CONTEXT);
    options.chunk = 50;
    options.codebooks = book_paths[book];
    SET_NONE(options);
    SET(options, hybrid.from, 1);
    return options;
}

static struct cpu_state *state_of(yalm_session *session)
{
    return session->state;
}

// n tokens of a text that `seed` says, `by` at a time.
static void feed(yalm_session *session, int seed, int n, int by)
{
    yalm_error error = {0};
    int32_t tokens[CONTEXT];
    for (int done = 0, piece; done < n; done += piece) {
        piece = n - done < by ? n - done : by;
        for (int i = 0; i < piece; i++)
            tokens[i] = (seed + (done + i) * (done + i + 7 * seed)) % VOCAB;
        if (yalm_eval(session, tokens, piece, YALM_LOGITS_LAST, &error) != YALM_OK)
            fail_msg("%s", error.text);
    }
}

// A key's codes by the reference, which is slow: those of the key that was last at its place are kept.
static const uint8_t *reference_codes(const struct nomad_book *book, int layer, int h, int64_t at, const float *key)
{
    static struct {
        int d_sub; // of the book; 0: nothing is known
        float key[DIM];
        uint8_t codes[DIM];
    } known[LAYERS][KV_HEADS][CONTEXT], *here;
    here = &known[layer][h][at % CONTEXT];
    if (here->d_sub != book->d_sub || memcmp(here->key, key, sizeof here->key)) {
        nomad_kernels_scalar.encode(here->codes, key, book);
        memcpy(here->key, key, sizeof here->key);
        here->d_sub = book->d_sub;
    }
    return here->codes;
}

// The keys that the newest token sees have their codes.
static void assert_codes(yalm_session *session)
{
    struct cpu_state *s = state_of(session);
    const int64_t newest = yalm_position(session) - 1;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int h = 0; h < KV_HEADS; h++) {
            const struct nomad_book book = {codebook_of(&s->method->nomad.book, s->config, layer, h), s->method->nomad.n_sub,
                                            s->method->nomad.book.d_sub};
            for (int64_t at = kv_first_visible(s->kv, newest); at <= newest; at++) {
                const int slot = kv_slot(s->kv, at);
                float key[DIM];
                cpu_load_key(s, layer, h, slot, key);
                const uint8_t *codes = reference_codes(&book, layer, h, at, key);
                for (int i = 0; i < book.n_sub; i++)
                    if (code_runs_code(s, layer, h, kv_slot(s->kv, newest), slot, i) != codes[i])
                        fail_msg(
                            "layer %d, KV head %d, position %d, slot %d, newest %d, sub-quantiser %d: code %d, expected %d",
                            layer, h, (int)at, slot, (int)newest, i,
                            code_runs_code(s, layer, h, kv_slot(s->kv, newest), slot, i), codes[i]);
            }
        }
}

static void test_codes_are_those_of_the_keys(void **state)
{
    (void)state;
    yalm_error error = {0};
    for (int book = 0; book < D_SUBS; book++) {
        yalm_session *session = open_with(options_of(book, "hybrid"));
        static const int pieces[][2] = {{1, 1}, {30, 1},  {1, 1}, {1, 1},    {100, 50},
                                        {3, 1}, {61, 61}, {1, 1}, {128, 37}, {70, 1}};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            feed(session, (int)i, pieces[i][0], pieces[i][1]);
            assert_codes(session);
        }
        static const int backs[] = {390, 384, 383, 379, 350, 320, 321, 130, 128, 127, 5, 0}; // into tiles of all kinds
        for (size_t i = 0; i < sizeof backs / sizeof *backs; i++) {
            feed(session, 9, 396 - (int)yalm_position(session), i % 2 ? 1 : 50);
            assert_int_equal(yalm_rollback(session, backs[i], &error), YALM_OK);
            feed(session, 20 + (int)i, 1, 1);
            assert_codes(session);
            feed(session, 21 + (int)i, 5, 1);
            assert_codes(session);
        }
        yalm_session_close(session);
    }
}

// ------------------------------------------------------------------------------------------ scores

// The sub-quantisers that a score reads, by the formula: those in which no other has more than one of these has.
static void assert_chosen(const struct cpu_state *s, const struct nomad_book *book, int h, const float *q)
{
    const struct code_runs *r = &s->method->code_runs;
    const int *run_of = r->run_of + (size_t)h * r->n_listed;
    double parts[DIM] = {0}, least = INFINITY;
    bool read[DIM] = {false};
    for (int c = 0; c < DIM; c++) {
        const float *x = book->centroids + (size_t)c * NOMAD_CENTROIDS;
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < NOMAD_CENTROIDS; i++) {
            low = fmin(low, (double)x[i]);
            high = fmax(high, (double)x[i]);
        }
        for (int j = 0; j < GROUP; j++)
            parts[c / book->d_sub] += pow((double)q[j * DIM + c] * (high - low), 2);
    }
    int n = 0;
    for (int i = 0; i < r->n_listed; i++) {
        assert_true(i == 0 || run_of[i] >= run_of[i - 1]);
        n += !read[run_of[i]];
        read[run_of[i]] = true;
        least = fmin(least, parts[run_of[i]]);
    }
    assert_int_equal(n, r->n_read);
    for (int i = 0; i < r->n_sub; i++)
        assert_true(read[i] || parts[i] <= least * (1 + 1e-5));
}

// A score in double precision, of the sub-quantisers that are read; *bound: how far rounding may move it.
static double score_of(const struct cpu_state *s, const struct nomad_book *book, int layer, int h, int newest, int slot,
                       const float *q, double step, double *bound)
{
    const struct code_runs *r = &s->method->code_runs;
    const int *run_of = r->run_of + (size_t)h * r->n_listed;
    double score = 0;
    *bound = 1e-5;
    for (int c = 0; c < DIM; c++) {
        const float *x = book->centroids + (size_t)c * NOMAD_CENTROIDS;
        bool read = false;
        for (int i = 0; i < r->n_listed; i++)
            read |= run_of[i] == c / book->d_sub;
        double mean = 0, low = INFINITY, high = -INFINITY;
        for (int i = 0; i < NOMAD_CENTROIDS; i++) {
            mean += (double)x[i] / NOMAD_CENTROIDS;
            low = fmin(low, (double)x[i]);
            high = fmax(high, (double)x[i]);
        }
        const int code = code_runs_code(s, layer, h, newest, slot, c / book->d_sub);
        score += (double)q[c] * (read ? (double)x[code] : mean);
        *bound += read ? fabs((double)q[c]) * (high - low) / 254 / 2 + step / 2 * 127 : 0;
    }
    return score;
}

// Of all slots that have keys: those up to the newest, or all once a ring has gone round.
static void assert_scores(yalm_session *session, int seed)
{
    struct cpu_state *s = state_of(session);
    const int64_t newest = yalm_position(session) - 1;
    const int slot = kv_slot(s->kv, newest), capacity = s->kv->capacity, n_slots = newest < capacity ? slot + 1 : capacity;
    float *scores = malloc(sizeof(float) * (size_t)(GROUP * capacity)), q[GROUP * DIM];
    for (int i = 0; i < GROUP * DIM; i++)
        q[i] = (float)(((i + seed) * 7919 % 1009) / 500.0 - 1) * (i % 3 ? 0.2f : 1.0f);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int h = 0; h < KV_HEADS; h++) {
            const struct nomad_book book = {codebook_of(&s->method->nomad.book, s->config, layer, h), s->method->nomad.n_sub,
                                            s->method->nomad.book.d_sub};
            code_runs_prepare(s, layer, h, q);
            assert_chosen(s, &book, h, q);
            for (int first = 0; first < n_slots; first += 1 + first * 2) { // runs that begin and end anywhere
                const int n = n_slots - first;
                code_runs_score(s, layer, h, newest, first, n, scores, capacity);
                for (int i = 0; i < GROUP; i++)
                    for (int j = 0; j < n; j++) {
                        double bound;
                        const double step = (double)s->method->code_runs.step[h * GROUP + i],
                                     exact = score_of(s, &book, layer, h, slot, first + j, q + i * DIM, step, &bound);
                        if (fabs((double)scores[i * capacity + j] - exact) > bound)
                            fail_msg("layer %d, KV head %d, query %d, slot %d: %.7g, expected %.7g ± %.3g", layer, h, i,
                                     first + j, (double)scores[i * capacity + j], exact, bound);
                    }
            }
        }
    free(scores);
}

static void test_scores(void **state)
{
    (void)state;
    for (int book = 0; book < D_SUBS; book++)
        for (int share = 0; share < 4; share++) {
            yalm_session_options options = options_of(book, "hybrid");
            SET(options, hybrid.codes, share == 0 ? 0 : share == 1 ? 1 : share == 2 ? 0.25f : 0.6f);
            yalm_session *session = open_with(options);
            const struct code_runs *r = &state_of(session)->method->code_runs;
            const int d_sub = d_subs[book], wanted = share == 0 && d_sub == 1 ? 24 : share == 2 ? 16 : share == 3 ? 24 : DIM;
            assert_int_equal(r->n_read * d_sub, wanted);          // whole eights of components
            static const int lengths[] = {1, 20, 30, 7, 96, 130}; // newest slots in all parts of a tile
            for (int i = 0; i < 6; i++) {
                feed(session, i, lengths[i] - 1, 40);
                feed(session, i, 1, 1);
                assert_scores(session, i);
            }
            yalm_session_close(session);
        }
}

// The ring goes round, with slots that are no multiple of anything.
static void test_codes_in_a_ring(void **state)
{
    (void)state;
    for (int sinks = 0; sinks <= 5; sinks += 5) {
        yalm_session_options options = options_of(0, "hybrid");
        options.context = 171;
        options.endless = true;
        options.n_sinks = sinks;
        yalm_session *session = open_with(options);
        for (int i = 0; i < 60; i++) {
            feed(session, i, i % 7 == 3 ? 23 : 9, i % 5 == 2 ? 9 : 1);
            assert_codes(session);
            if (i % 9 == 0 || i > 55)
                assert_scores(session, i);
        }
        yalm_session_close(session);
    }
}

// Fewer codes: other scores, fewer bytes.
static void test_shares(void **state)
{
    (void)state;
    float logits[3][VOCAB];
    double bytes[3];
    static const float shares[] = {1, 0.5f, 0.2f};
    yalm_error error = {0};
    for (int i = 0; i < 3; i++) {
        yalm_session_options options = options_of(0, "hybrid");
        SET(options, hybrid.codes, shares[i]);
        SET(options, hybrid.min_k, 16);
        yalm_session *session = open_with(options);
        assert_int_equal(yalm_fill_random(session, 500, 3, &error), YALM_OK);
        feed(session, 1, 1, 1);
        memcpy(logits[i], yalm_logits(session, 0), sizeof logits[i]);
        bytes[i] = yalm_session_cost(session, 1, 500).bytes;
        yalm_session_close(session);
    }
    assert_memory_not_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_not_equal(logits[1], logits[2], sizeof logits[0]);
    const double each =
        LAYERS * KV_HEADS * 501 / 2.0; // of all keys' codes of a sub-quantiser; whole eights of 40 are read: all, 24, 8
    assert_true(fabs(bytes[0] - bytes[1] - 16 * each) < 1 && fabs(bytes[1] - bytes[2] - 16 * each) < 1);
}

// Queries that are not numbers: scores that are none, in time; whatever is chosen are so many as are wanted.
static void test_no_numbers(void **state)
{
    (void)state;
    yalm_session *session = open_with(options_of(0, "hybrid"));
    feed(session, 1, 200, 50);
    feed(session, 1, 1, 1);
    struct cpu_state *s = state_of(session);
    float q[GROUP * DIM] = {0}, scores[GROUP * 201];
    q[3] = NAN;
    q[DIM + 5] = INFINITY;
    code_runs_prepare(s, 0, 0, q);
    for (int i = 0; i < s->method->code_runs.n_listed; i++)
        assert_true(s->method->code_runs.run_of[i] >= 0 && s->method->code_runs.run_of[i] < DIM);
    code_runs_score(s, 0, 0, 200, 0, 201, scores, 201);
    for (int j = 0; j < 201; j++) {
        assert_false(isfinite(scores[j]));
        assert_false(isfinite(scores[201 + j]));
        assert_true(scores[402 + j] == 0);
    }
    yalm_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_are_those_of_the_keys),
        cmocka_unit_test(test_codes_in_a_ring),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_no_numbers),
    };
    return cmocka_run_group_tests_name("codes in runs", tests, set_up, tear_down);
}
