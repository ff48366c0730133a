// Slots by chance: conversations that take turns, grow, are edited and broken off, in models of every kind, with memory for all
// and for little. Whatever a slot goes on from, its logits are those of a session that has read the whole text afresh.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sessions.h"
#include "serve/slot.h"

enum { SLOTS = 2, TALKS = 5, CONTEXT = 420, STEPS = 120 };

static struct text {
    int32_t tokens[CONTEXT];
    size_t n;
} talks[TALKS];

static struct running {
    struct task task;
    struct text prompt; // and what was written behind it
    int talk;
    bool answered;
} running[SLOTS];

static struct slot slots[SLOTS];
static struct prefixes *prefixes;
static yalm_session *afresh;
static struct generation how;
static struct request request;
static uint64_t chance;
static size_t n_checked, n_cached;

static int below(int n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((chance >> 33) % (uint64_t)n);
}

static void check(const struct slot *slot, const struct text *text)
{
    yalm_error error = {0};
    assert_int_equal(yalm_position(slot->session), text->n);
    yalm_rollback(afresh, 0, NULL);
    assert_int_equal(yalm_eval(afresh, text->tokens, (int)text->n, YALM_LOGITS_LAST, &error), YALM_OK);
    if (distance(slot->session, afresh) > 1e-4)
        fail_msg("%zu tokens: %g from what a fresh session gives", text->n, distance(slot->session, afresh));
    n_checked++;
}

static void grow(struct text *text, size_t n)
{
    for (; n > 0 && text->n < CONTEXT - 120; n--)
        text->tokens[text->n++] = below(VOCAB);
}

// A conversation goes on, or one of its tokens is another one now, with or without what follows.
static void change(struct text *text)
{
    if (text->n && below(3) == 0) {
        const size_t at = (size_t)below((int)text->n);
        text->tokens[at] = below(VOCAB);
        text->n = below(2) ? at + 1 : text->n;
    }
    grow(text, (size_t)(1 + below(90)));
}

static void begin(void)
{
    const int talk = below(TALKS);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].task && running[i].talk == talk)
            return;
    change(&talks[talk]);
    const struct prompt prompt = {talks[talk].tokens, talks[talk].n};
    struct slot *slot = slot_choose(slots, SLOTS, &prompt, true);
    if (slot == NULL)
        return;
    struct running *r = &running[slot - slots];
    *r = (struct running){.task.request = &request, .prompt = talks[talk], .talk = talk};
    r->task.generator = (struct generator){.how = &how.options, .prompt = r->prompt.tokens, .n_prompt = r->prompt.n};
    slot_begin(slot, &r->task);
}

static void end(struct slot *slot)
{
    static double time;
    slot->task = NULL;
    slot->used = ++time;
}

// A piece of the prompt, which may be interrupted.
static void read_on(struct slot *slot)
{
    struct running *r = &running[slot - slots];
    struct generator *g = &r->task.generator;
    yalm_error error = {0};
    assert_int_equal(slot_next(slot, 1 + below(64), &error), YALM_OK);
    const bool interrupted = below(12) == 0;
    if (interrupted)
        yalm_session_cancel(slot->session);
    assert_int_equal(generator_evaluate(g, &error), interrupted ? YALM_INTERRUPTED : YALM_OK);
    if (interrupted)
        end(slot);
    else
        slot_keep(slot);
    if (!interrupted && !generator_reads(g)) {
        n_cached += g->n_cached;
        check(slot, &r->prompt);
    }
}

// Tokens that are written, some of them guessed before.
static void write_on(struct slot *slot)
{
    struct running *r = &running[slot - slots];
    struct generator *g = &r->task.generator;
    int32_t next[100];
    const int n = 1 + below(80);
    for (int i = 0; i < n; i++)
        next[i] = below(VOCAB);
    for (int i = 0; i < n; i++) {
        yalm_error error = {0};
        if (below(3) == 0) {
            int32_t guessed[6];
            const int right = below(7), left = n - i - 1;
            for (int j = 0; j < 6; j++)
                guessed[j] = j < right && j < left ? next[i + 1 + j] : below(VOCAB);
            yalm_expect(slot->session, guessed, 6);
        }
        g->token = next[i];
        g->pending = &g->token;
        g->n_pending = 1;
        assert_int_equal(generator_evaluate(g, &error), YALM_OK);
        slot_keep(slot);
        r->prompt.tokens[r->prompt.n++] = next[i];
    }
    check(slot, &r->prompt);
    talks[r->talk] = r->prompt;
    talks[r->talk].n -= talks[r->talk].n > CONTEXT - 120 ? 200 : 0;
    r->answered = true;
}

static void step(void)
{
    struct slot *slot = &slots[below(SLOTS)];
    if (slot->task == NULL)
        begin();
    else if (below(40) == 0 || running[slot - slots].answered)
        end(slot);
    else if (generator_reads(&slot->task->generator))
        read_on(slot);
    else
        write_on(slot);
}

static void run(yalm_session_options options, uint64_t bytes, uint64_t seed)
{
    yalm_error error = {0};
    how = (struct generation){.reuse = true, .options.n_likely = -1};
    request.how = &how;
    chance = seed;
    n_cached = n_checked = 0;
    memset(talks, 0, sizeof talks);
    for (int i = 0; i < SLOTS; i++)
        if (slot_open(&slots[i], &the_model->model, &options, &error) != YALM_OK)
            fail_msg("%s", error.text);
    prefixes = prefixes_open(slots[0].session, bytes);
    assert_int_equal(prefixes == NULL, bytes == 0);
    for (int i = 0; i < SLOTS; i++)
        slots[i].prefixes = prefixes;
    afresh = open_with(options);
    for (int i = 0; i < STEPS; i++) {
        step();
        assert_true(prefixes_bytes(prefixes) <= bytes);
    }
    assert_true(n_checked > STEPS / 10);
    assert_true(bytes == 0 || n_cached > n_checked); // there was something to go on from
    for (int i = 0; i < SLOTS; i++)
        slot_close(&slots[i]);
    prefixes_close(prefixes);
    yalm_session_close(afresh);
}

// Memory for all, for some conversations, for parts of one, and for nothing.
static void test_by_chance(void **state)
{
    (void)state;
    yalm_session_options options = small_options("dense", CONTEXT);
    options.chunk = 64;
    options.n_threads = 1;
    yalm_session *like = open_with(options);
    const uint64_t page = yalm_page_bytes(like, PAGE_TOKENS) + 256, carried = yalm_state_bytes(like);
    yalm_session_close(like);
    run(options, 1 << 30, 1);
    run(options, 50 * page + 24 * carried, 2);
    run(options, 9 * page + 6 * carried, 3);
    run(options, 0, 4);
}

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(2, 8, CONTEXT);
    return 0;
}

static int set_up_windows(void **state)
{
    (void)state;
    the_model = model_of_kinds(8, CONTEXT);
    return 0;
}

static int set_up_recurrent(void **state)
{
    (void)state;
    struct model_config config = small_config(3, 8, CONTEXT);
    config.n_more_kinds = 1;
    config.kind_of_layer[0] = config.kind_of_layer[2] = 1;
    config.kinds[1].delta =
        (struct delta_config){.n_key_heads = 2, .n_value_heads = 4, .key_dim = 12, .value_dim = 40, .conv_width = 4};
    config.output_gate = true;
    the_model = random_model_make(config, DTYPE_FP32, 3);
    return 0;
}

static int set_up_convolving(void **state)
{
    (void)state;
    struct model_config config = small_config(3, 8, CONTEXT);
    config.n_more_kinds = 1;
    config.kind_of_layer[0] = config.kind_of_layer[2] = 1;
    config.kinds[1].delta = (struct delta_config){.conv_width = 3, .conv_dim = config.hidden_dim};
    the_model = random_model_make(config, DTYPE_FP32, 3);
    return 0;
}

static int set_up_scan(void **state)
{
    (void)state;
    struct model_config config = small_config(3, 8, CONTEXT);
    give_scan(&config, false, 4);
    the_model = random_model_make(config, DTYPE_FP32, 3);
    return 0;
}

static int set_up_scan_beside(void **state)
{
    (void)state;
    struct model_config config = small_config(2, 8, CONTEXT);
    give_scan(&config, true, 4);
    the_model = random_model_make(config, DTYPE_FP32, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    random_model_free(the_model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_by_chance, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_by_chance, set_up_windows, tear_down),
        cmocka_unit_test_setup_teardown(test_by_chance, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_by_chance, set_up_convolving, tear_down),
        cmocka_unit_test_setup_teardown(test_by_chance, set_up_scan, tear_down),
        cmocka_unit_test_setup_teardown(test_by_chance, set_up_scan_beside, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
