// yalm_generate(), and structs of options: what yalm.h promises. The model's weights are random.
// A grammar forces what it writes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chat/chat.h"
#include "engine/random_model.h"
#include "text/small_tokenizer.h"
#include "util/buffer.h"

static struct small_tokenizer small;
static struct random_model *m;
static yalm_session *session;
static yalm_error error;

static int open_model(void **state)
{
    (void)state;
    small_spm(&small, "rank", "never", false, false);
    struct tokenizer *tokenizer;
    if (small_open(&small, &tokenizer, &error) != YALM_OK)
        fail_msg("%s", error.text);
    m = random_model_make((struct model_config){.n_layers = 2,
                                                .hidden_dim = 64,
                                                .ffn_dim = 96,
                                                .n_heads = 4,
                                                .n_kv_heads = 2,
                                                .head_dim = 16,
                                                .vocab_size = small.n_pieces,
                                                .context_length = 256,
                                                .bos = -1,
                                                .n_eos = 1,
                                                .eos = {2}},
                          DTYPE_FP16, 11);
    m->model.tokenizer = tokenizer;
    static struct chat chat; // a template that cannot be rendered: its text alone tells the form of calls
    m->model.chat = &chat;
    yalm_model_info *info = &m->model.info;
    info->vocab_size = info->tokenizer_vocab = small.n_pieces;
    info->tokenizer = "spm";
    info->n_eos = 1;
    info->eos[0] = 2;
    info->bos = -1;
    info->context_length = 256;
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.n_threads = 1;
    session = yalm_session_open(&m->model, &options, &error);
    return session == NULL;
}

static int close_model(void **state)
{
    (void)state;
    yalm_session_close(session);
    tokenizer_close(m->model.tokenizer);
    random_model_free(m);
    return 0;
}

// ---------------------------------------------------------------- what was told

static struct {
    struct buffer parts;
    int n_tokens, most; // most: false from so many tokens on; 0: never
    float sum;
} told;

static bool take(void *context, const yalm_event *event)
{
    static const char names[] = {
        [YALM_EVENT_REASONING] = 'r', [YALM_EVENT_TEXT] = 't', [YALM_EVENT_ARGUMENTS] = 'a', [YALM_EVENT_CALL] = 'c'};
    char *last = context;
    if (event->kind == YALM_EVENT_TOKEN) {
        told.sum += event->log_probability;
        return ++told.n_tokens != told.most;
    }
    if (*last != names[event->kind] || event->kind == YALM_EVENT_CALL)
        buffer_format(&told.parts, "%s%c:", told.parts.length ? "|" : "", names[event->kind]);
    *last = names[event->kind];
    buffer_add(&told.parts, event->text, event->length);
    return true;
}

static const int32_t prompt[] = {40, 50, 60, 70, 80, 90};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

static yalm_generation how_with(const char *grammar)
{
    static char last;
    last = 0;
    buffer_free(&told.parts);
    memset(&told, 0, sizeof told);
    yalm_generation how = yalm_generation_defaults();
    how.grammar = grammar;
    how.take = take;
    how.context = &last;
    return how;
}

static yalm_generated generate(const yalm_generation *how)
{
    yalm_generated result;
    if (yalm_generate(session, prompt, N_PROMPT, how, &result, &error) != YALM_OK)
        fail_msg("%s", error.text);
    return result;
}

static void check(yalm_generated result, yalm_stop why, const char *parts)
{
    assert_int_equal(result.why, why);
    assert_string_equal(told.parts.at ? told.parts.at : "", parts);
}

// ---------------------------------------------------------------- tests

static void test_a_text_of_a_grammar(void **state)
{
    (void)state;
    const yalm_generation how = how_with("root ::= \"a house, and \" \"é\"");
    const yalm_generated result = generate(&how);
    check(result, YALM_STOP_GRAMMAR, "t:a house, and é");
    assert_int_equal(result.n_tokens, told.n_tokens);
    assert_int_equal(result.stop_string, -1);
    assert_true(isnan(told.sum));
    assert_int_equal(yalm_position(session), N_PROMPT + result.n_tokens - 1); // the last token is not evaluated
}

static void test_what_the_session_holds_is_not_read_again(void **state)
{
    (void)state;
    const yalm_generation how = how_with("root ::= \"abc\"");
    yalm_rollback(session, 0, NULL);
    assert_int_equal(generate(&how).n_cached, 0);
    assert_int_equal(generate(&how).n_cached, N_PROMPT - 1);
    assert_int_equal(yalm_session_common(session, prompt, N_PROMPT), N_PROMPT);
    const int32_t other[] = {40, 50, 61};
    assert_int_equal(yalm_session_common(session, other, 3), 2);
    assert_int_equal(yalm_session_common(session, other, 0), 0);
}

static void test_stop_strings(void **state)
{
    (void)state;
    static const char *const stops[] = {"never", "stop", "ends"};
    yalm_generation how = how_with("root ::= \"a stone stop here\"");
    how.stops = stops;
    how.n_stops = 3;
    yalm_generated result = generate(&how);
    check(result, YALM_STOP_STRING, "t:a stone ");
    assert_int_equal(result.stop_string, 1);
    how = how_with("root ::= \"it en\""); // what begins one, at the end, is text
    how.stops = stops;
    how.n_stops = 3;
    check(generate(&how), YALM_STOP_GRAMMAR, "t:it en");
}

static void test_limits(void **state)
{
    (void)state;
    yalm_generation how = how_with(NULL);
    how.ignore_eos = true;
    how.max_tokens = 7;
    yalm_generated result = generate(&how);
    assert_true(result.why == YALM_STOP_LIMIT && result.n_tokens == 7 && told.n_tokens == 7);
    how.max_tokens = 0;
    result = generate(&how);
    assert_true(result.why == YALM_STOP_LIMIT && result.n_tokens == 0);
    how.max_tokens = -1;
    result = generate(&how);
    assert_int_equal(result.why, YALM_STOP_CONTEXT);
    assert_int_equal(result.n_tokens, 256 - N_PROMPT + 1);
    how.take = NULL;
    assert_int_equal(generate(&how).why, YALM_STOP_CONTEXT);
}

static void test_the_end_of_the_text(void **state)
{
    (void)state;
    const yalm_logit_bias end = {2, 1000};
    yalm_sampling sampling = yalm_sampling_defaults();
    sampling.biases = &end;
    sampling.n_biases = 1;
    yalm_generation how = how_with(NULL);
    how.sampling = &sampling;
    yalm_generated result = generate(&how);
    check(result, YALM_STOP_END, "");
    assert_true(result.n_tokens == 1 && told.n_tokens == 0);
    how = how_with("root ::= \"a\"+"); // where a grammar holds, it ends there whatever is to be ignored
    how.sampling = &sampling;
    how.ignore_eos = true;
    check(generate(&how), YALM_STOP_END, "t:a");
}

static void test_the_caller_ends_it(void **state)
{
    (void)state;
    yalm_generation how = how_with(NULL);
    how.ignore_eos = true;
    told.most = 5;
    const yalm_generated result = generate(&how);
    assert_true(result.why == YALM_STOP_CALLER && result.n_tokens == 5);
}

static void test_parts(void **state)
{
    (void)state;
    yalm_generation how = how_with("root ::= \"<think>\\nhm </think> So: <tool_call>{\\\"name\\\": \\\"f\\\", "
                                   "\\\"arguments\\\": {\\\"a\\\": 1}}</tool_call>\"");
    how.parts = true;
    m->model.info.chat_template = "<tool_call>";
    check(generate(&how), YALM_STOP_GRAMMAR, "r:hm|t:So:|c:f|a:{\"a\": 1}");
    m->model.info.chat_template = NULL;
    check(generate(&how), YALM_STOP_GRAMMAR,
          "r:hm|t:So:|c:f|a:{\"a\": 1}|r:hm|t:So: <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>");
}

// Where the prompt has begun the reasoning, it is that to its end, and the grammar holds behind it.
static void test_reasoning_that_the_prompt_begins(void **state)
{
    (void)state;
    int32_t *ids;
    size_t n;
    assert_int_equal(yalm_tokenize(&m->model, "ab<think>", 9, 0, &ids, &n, &error), YALM_OK);
    yalm_generation how = how_with("root ::= \"x\"");
    how.parts = how.ignore_eos = true;
    how.max_tokens = 5;
    yalm_generated result;
    assert_int_equal(yalm_generate(session, ids, n, &how, &result, &error), YALM_OK);
    assert_int_equal(result.why, YALM_STOP_LIMIT);
    assert_true(told.parts.length == 0 || told.parts.at[0] == 'r');
    free(ids);
}

// Guesses change no token, nor does it matter how likely tokens are told to be.
static void test_the_same_text(void **state)
{
    (void)state;
    yalm_generation how = how_with(NULL);
    how.ignore_eos = how.log_probabilities = true;
    how.max_tokens = 120;
    how.speculate = false;
    yalm_seed(session, 5);
    generate(&how);
    char *first = strdup(told.parts.at);
    assert_true(told.sum < 0);
    how = how_with(NULL);
    how.ignore_eos = true;
    how.max_tokens = 120;
    yalm_seed(session, 5);
    generate(&how);
    assert_string_equal(told.parts.at, first);
    free(first);
}

static void check_refusal(yalm_generation how, const int32_t *ids, size_t n, const char *text)
{
    yalm_generated result;
    assert_int_equal(yalm_generate(session, ids, n, &how, &result, &error), YALM_USAGE);
    assert_string_equal(error.text, text);
    assert_int_equal(yalm_generate(session, ids, n, &how, NULL, NULL), YALM_USAGE);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const stops[] = {"a", ""};
    static int32_t many[257];
    yalm_generation how = how_with(NULL);
    check_refusal(how, prompt, 0, "the prompt has no tokens");
    check_refusal(how, many, 257, "the prompt is longer than the context: 257 tokens, and 256 fit");
    how.stops = stops;
    how.n_stops = 2;
    check_refusal(how, prompt, N_PROMPT, "stop string 2 of 2 is empty");
    how = how_with("root ::= x");
    check_refusal(how, prompt, N_PROMPT, "grammar, line 1: rule 'x', named in line 1, is nowhere");
    how = how_with(NULL);
    how.size = 8;
    assert_int_equal(yalm_generate(session, prompt, N_PROMPT, &how, NULL, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "yalm_generation: found size 8"));
    size_t *shorter = malloc(sizeof *shorter); // of which no byte more may be read: AddressSanitizer sees it
    assert_non_null(shorter);
    *shorter = sizeof *shorter;
    assert_int_equal(yalm_generate(session, prompt, N_PROMPT, (const void *)shorter, NULL, &error), YALM_USAGE);
    how = how_with(NULL);
    how.sampling = (const void *)shorter;
    assert_int_equal(yalm_generate(session, prompt, N_PROMPT, &how, NULL, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "yalm_sampling: found size 8"));
    free(shorter);
    const int32_t unknown[] = {40, 100000};
    how = how_with(NULL);
    assert_int_equal(yalm_generate(session, unknown, 2, &how, NULL, &error), YALM_USAGE);
}

// A program that was compiled with another header is told so, by every function that takes options.
static void test_structs_of_another_size(void **state)
{
    (void)state;
    yalm_model_options model = yalm_model_defaults();
    yalm_session_options options = yalm_session_defaults();
    yalm_sampling sampling = yalm_sampling_defaults();
    yalm_calibration calibration = yalm_calibration_defaults();
    yalm_importance importance = yalm_importance_defaults();
    yalm_memory memory;
    model.size = options.size = sampling.size = calibration.size = importance.size = 0;
    assert_null(yalm_model_open("/nowhere", &model, &error));
    assert_non_null(strstr(error.text, "yalm_model_options: found size 0, expected "));
    assert_null(yalm_session_open(&m->model, &options, &error));
    assert_non_null(strstr(error.text, "yalm_session_options: found size 0, expected "));
    assert_int_equal(yalm_session_memory(&m->model, &options, &memory, &error), YALM_USAGE);
    assert_int_equal(yalm_sampling_check(&m->model, &sampling, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "yalm_sampling: found size 0, expected "));
    assert_int_equal(yalm_calibrate(session, prompt, N_PROMPT, &calibration, "/nowhere", NULL, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "yalm_calibration: found size 0, expected "));
    assert_int_equal(yalm_importance_write(session, prompt, N_PROMPT, &importance, "/nowhere", &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "yalm_importance: found size 0, expected "));
}

static bool cancel(void *context, const yalm_event *event)
{
    (void)context;
    told.n_tokens += event->kind == YALM_EVENT_TOKEN;
    if (told.n_tokens == 3)
        yalm_session_cancel(session);
    return true;
}

static void test_cancelled(void **state)
{
    (void)state;
    yalm_generation how = how_with(NULL);
    how.ignore_eos = true;
    how.take = cancel;
    yalm_generated result;
    assert_int_equal(yalm_generate(session, prompt, N_PROMPT, &how, &result, &error), YALM_INTERRUPTED);
    assert_true(result.why == YALM_GOES_ON && result.n_tokens == 3);
    assert_int_equal(generate(&(yalm_generation){.size = sizeof how, .max_tokens = 2}).n_tokens, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_of_a_grammar),
        cmocka_unit_test(test_what_the_session_holds_is_not_read_again),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_the_end_of_the_text),
        cmocka_unit_test(test_the_caller_ends_it),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_reasoning_that_the_prompt_begins),
        cmocka_unit_test(test_the_same_text),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_structs_of_another_size),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
