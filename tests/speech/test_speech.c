// What a model says, split into its parts, in pieces of every size. The forms that need a template's own marks.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "speech/learn.h"
#include "speech/speech.h"

// Forms, by what a template names.
static struct call_form hermes, mistral, bare, gemma, channels, args;

static int learn(void **state)
{
    (void)state;
    form_learn(&hermes, "<tool_call>", NULL, NULL);
    form_learn(&mistral, "[TOOL_CALLS]", NULL, NULL);
    form_learn(&channels, "<|channel|> <|message|>", NULL, NULL);
    bare = (struct call_form){.is_object = true, .name_key = "name", .arguments_key = "parameters"};
    gemma = (struct call_form){.arguments = ARGUMENTS_LITERAL,
                               .part = {[BEGIN] = "<|tool_call>call:",
                                        [MIDDLE] = "{",
                                        [END] = "}<tool_call|>",
                                        [KEY_END] = ":",
                                        [KEY_BETWEEN] = ",",
                                        [QUOTE] = "<|\"|>"}};
    args = (struct call_form){.part = {[BEGIN] = "[TOOL_CALLS]", [MIDDLE] = "[CALL_ID]\1[ARGS]"}};
    form_finish(&bare);
    form_finish(&gemma);
    form_finish(&args);
    return !(hermes.known && mistral.known && bare.known && gemma.known && channels.known && args.known);
}

static void check_text(const char *wanted, const char *found, size_t length)
{
    if (strlen(wanted) != length || memcmp(wanted, found ? found : "", length) != 0)
        fail_msg("found '%.*s', expected '%s'", (int)length, found ? found : "", wanted);
}

// What a reader has passed on, piece by piece.
struct passed {
    struct told told;
    struct buffer reasoning, content, calls; // calls: "name arguments\n" of each
};

static void pass_on(struct passed *passed, const struct speech *speech)
{
    struct piece piece;
    while (speech_news(speech, &passed->told, &piece)) {
        struct buffer *part = piece.part == PART_REASONING ? &passed->reasoning
                              : piece.part == PART_TEXT    ? &passed->content
                                                           : &passed->calls;
        if (piece.part == PART_CALL)
            buffer_text(part, piece.call ? "\n" : "");
        buffer_add(part, piece.text.at, piece.text.length);
        if (piece.part == PART_CALL)
            buffer_text(part, " ");
    }
}

// calls: "name arguments\n" of each.
static void check_pieces(const char *text, size_t size, unsigned forms, const struct call_form *form, const char *reasoning,
                         const char *content, const char *calls)
{
    struct speech speech = {0};
    struct passed passed = {0};
    const size_t length = strlen(text);
    speech_begin(&speech, forms, NULL, form ? &(struct speech_calls){.form = form} : NULL);
    for (size_t at = 0; at < length; at += size) {
        char *piece = strndup(text + at, size); // whose end AddressSanitizer sees
        speech_add(&speech, piece, strlen(piece));
        free(piece);
        pass_on(&passed, &speech);
    }
    speech_end(&speech);
    pass_on(&passed, &speech);
    assert_false(speech_failed(&speech));
    check_text(reasoning, passed.reasoning.at, passed.reasoning.length);
    check_text(content, passed.content.at, passed.content.length);
    buffer_text(&passed.calls, speech.n_calls ? "\n" : "");
    check_text(calls, passed.calls.at, passed.calls.length);
    for (int i = 0; i < speech.n_calls; i++)
        assert_true(speech.calls[i].whole);
    buffer_free(&passed.reasoning);
    buffer_free(&passed.content);
    buffer_free(&passed.calls);
    speech_free(&speech);
}

static void check(const char *text, unsigned forms, const struct call_form *form, const char *reasoning, const char *content,
                  const char *calls)
{
    for (size_t size = 1; size <= strlen(text); size++)
        check_pieces(text, size, forms, form, reasoning, content, calls);
}

static void test_harmony(void **state)
{
    (void)state;
    check("<|channel|>analysis<|message|>Is it?<|end|><|start|>assistant<|channel|>final<|message|>It is.", SPEECH_HARMONY,
          &channels, "Is it?", "It is.", "");
    check("<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>commentary to=functions.first "
          "<|constrain|>json<|message|>{\"a\": 1} <|call|>",
          SPEECH_HARMONY, &channels, "Well.", "", "first {\"a\": 1}\n");
    check(" to=functions.second<|channel|>commentary json<|message|>{\"a\": \"<|\"}", SPEECH_HARMONY, &channels, "", "",
          "second {\"a\": \"<|\"}\n");
    check("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.first<|channel|>commentary "
          "json<|message|>{\"a\":1}<|call|><|start|>assistant to=functions.second<|channel|>commentary<|message|>",
          SPEECH_HARMONY, &channels, "", "I look.", "first {\"a\":1}\nsecond {}\n");
    check("<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>",
          SPEECH_HARMONY, &channels, "One.\n\nTwo.", "", "");
    check("<|channel|>final<|message|>a <|end of b", SPEECH_HARMONY, &channels, "", "a <|end of b", "");
    check("<|channel|>analysis<|message|>cut off <|en", SPEECH_HARMONY, &channels, "cut off <|en", "", "");
    check("<|channel|>ana", SPEECH_HARMONY, &channels, "", "", "");
    check("no header", SPEECH_HARMONY, &channels, "", "no header", "");
}

static void test_gemma(void **state)
{
    (void)state;
    check("<|channel>thought\nIs it?\n<channel|>It is.", SPEECH_GEMMA, &gemma, "Is it?", "It is.", "");
    check("It is.", SPEECH_GEMMA, &gemma, "", "It is.", "");
    check("<|channel>thought\n<channel|>Plain <b>text</b>, a < b.", SPEECH_GEMMA, &gemma, "", "Plain <b>text</b>, a < b.", "");
    check("<|channel>thought\nWell.<channel|><|tool_call>call:first{city:<|\"|>Köln, \"Süd\"<|\"|>,n:-1.5e3,on:true,"
          "list:[1,<|\"|>a<|\"|>,{x:null}],none:None}<tool_call|>",
          SPEECH_GEMMA, &gemma, "Well.", "",
          "first {\"city\": \"Köln, \\\"Süd\\\"\", \"n\": -1.5e3, \"on\": true, \"list\": [1, \"a\", {\"x\": null}], \"none\": "
          "null}\n");
    check("I look. <|tool_call>call:a{}<tool_call|>\n<|tool_call>call:b{k:word}<tool_call|>", SPEECH_GEMMA, &gemma, "",
          "I look.", "a {}\nb {\"k\": \"word\"}\n");
    check("<|tool_call>call:a{\"k\": \"a \\\" }\", \"n\": [1, 2]}<tool_call|>", SPEECH_GEMMA, &gemma, "", "",
          "a {\"k\": \"a \\\" }\", \"n\": [1, 2]}\n");
    check("<|tool_call>call:a{<|\"|>key<|\"|>:<|\"|>}<tool_call|><|\"|>}", SPEECH_GEMMA, &gemma, "", "",
          "a {\"key\": \"}<tool_call|>\"}\n");
    check("<|tool_call>call:a{day:2026-11-28,id:007,n:-0.5E+3,v:1.2.3}<tool_call|>", SPEECH_GEMMA, &gemma, "", "",
          "a {\"day\": \"2026-11-28\", \"id\": \"007\", \"n\": -0.5E+3, \"v\": \"1.2.3\"}\n");
    check("<|tool_call>call:a{k:\"two\nlines\"}<tool_call|>", SPEECH_GEMMA, &gemma, "", "", "a {\"k\": \"two\\nlines\"}\n");
    check("<|tool_call>call:a{k:<|\"|>cut off", SPEECH_GEMMA, &gemma, "", "<|tool_call>call:a{k:<|\"|>cut off", "");
    check("<|tool_call>call a{k:1}", SPEECH_GEMMA, &gemma, "", "<|tool_call>call a{k:1}", "");
    check("<|tool_call>call:a{k 1}<tool_call|>", SPEECH_GEMMA, &gemma, "", "<|tool_call>call:a{k 1}<tool_call|>", "");
    check("<|channel>thought\ncut off <chan", SPEECH_GEMMA, &gemma, "cut off <chan", "", "");
    check("<|channel>thou", SPEECH_GEMMA, &gemma, "thou", "", "");
    check("<|channel>thought\nOne.<channel|>A <|channel>thought\nTwo.<channel|> b", SPEECH_GEMMA, &gemma, "One.\n\nTwo.", "A b",
          "");
}

static void test_brackets(void **state)
{
    (void)state;
    check("[THINK]Is it?[/THINK]It is.", SPEECH_BRACKETS, NULL, "Is it?", "It is.", "");
    check("[THINK]Well[/THINK][TOOL_CALLS]first[CALL_ID]abc[ARGS]{\"a\": 1}", SPEECH_BRACKETS, &args, "Well", "",
          "first {\"a\": 1}\n");
}

// What was told of a call is never taken back: it is one from where its arguments begin, whatever follows.
static void test_calls_that_break_off(void **state)
{
    (void)state;
    check("<tool_call>{\"name\": \"first\", \"arguments\": {\"a\": 1}</tool_call> So.", 0, &hermes, "", " So.",
          "first {\"a\": 1}\n");
    check("{\"name\": \"first\", \"arguments\": {\"a\": 1}, oops", 0, &bare, "", "oops", "first {\"a\": 1}\n");
    check("<tool_call>{\"name\": \"first\"{ no", 0, &hermes, "", "<tool_call>{\"name\": \"first\"{ no", "");
    check("[TOOL_CALLS]first of all", 0, &mistral, "", "[TOOL_CALLS]first of all", "");
    check("[TOOL_CALLS]first of all", 0, &args, "", "[TOOL_CALLS]first of all", "");
    check("[TOOL_CALLS]first[ARGS]{\"a\": 1}[TOOL_CALLS]second{}", 0, &args, "", "", "first {\"a\": 1}\nsecond {}\n");
    check("<tool_call>{\"name\": \"first\", \"arguments\": {\"a\": 1}, \"arguments\": {}, \"name\": \"x\"}</tool_call>", 0,
          &hermes, "", "", "first {\"a\": 1}\n");
    check("<tool_call>no</tool_call> <tool_call>{\"name\": \"first\"}</tool_call>", 0, &hermes, "", "<tool_call>no</tool_call>",
          "first {}\n");
}

// What follows as many calls as there may be is text.
static void test_more_calls_than_are_read(void **state)
{
    (void)state;
    static const struct {
        unsigned marks;
        const struct call_form *form;
        const char *begin, *call, *end;
    } forms[] = {{0, &hermes, "", "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n", ""},
                 {0, &bare, "", "{\"name\": \"a\", \"arguments\": {}}\n", ""},
                 {0, &mistral, "[TOOL_CALLS][", "{\"name\": \"a\", \"arguments\": {}}, ", "]"},
                 {0, &args, "", "[TOOL_CALLS]a[ARGS]{} ", ""},
                 {SPEECH_GEMMA, &gemma, "", "<|tool_call>call:a{}<tool_call|>", ""},
                 {SPEECH_HARMONY, &channels, "", "<|channel|>commentary to=a<|message|>{}<|call|>", ""}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct speech speech = {0};
        speech_begin(&speech, forms[i].marks, NULL, &(struct speech_calls){.form = forms[i].form});
        speech_add(&speech, forms[i].begin, strlen(forms[i].begin));
        for (int n = 0; n < MAX_CALLS + 2; n++)
            speech_add(&speech, forms[i].call, strlen(forms[i].call));
        speech_add(&speech, forms[i].end, strlen(forms[i].end));
        speech_end(&speech);
        assert_int_equal(speech.n_calls, MAX_CALLS);
        assert_true(speech.content.length > 0 && !speech_failed(&speech));
        speech_free(&speech);
    }
}

static double seconds_of(struct speech *speech, const char *token, int n)
{
    const clock_t start = clock();
    for (int i = 0; i < n; i++)
        speech_add(speech, token, strlen(token));
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

// A token costs the same at the beginning of an answer and behind 100,000 others, wherever they lie.
static void test_long_answers(void **state)
{
    (void)state;
    static const struct {
        unsigned marks;
        const struct call_form *form;
        const char *begin, *token;
    } texts[] = {{0, &hermes, "So: ", "word "},
                 {0, &bare, "So: ", "word "},
                 {0, &hermes, "So: ", "\n"},
                 {0, NULL, "<think>", "word \n"},
                 {0, &hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "word\\n"},
                 {0, &hermes, "<tool_call>{\"name\": \"f\", \"", "word"},
                 {0, &mistral, "[TOOL_CALLS][{\"arguments\": [", "[1, 2], "},
                 {0, &args, "[TOOL_CALLS]", "word"},
                 {SPEECH_HARMONY, &channels, "<|channel|>analysis<|message|>", "word "},
                 {SPEECH_HARMONY, &channels, "<|channel|>", "word "},
                 {SPEECH_GEMMA, &gemma, "<|channel>thought\n", "word "},
                 {SPEECH_GEMMA, &gemma, "<|tool_call>call:f{a:<|\"|>", "{word} "},
                 {SPEECH_GEMMA, &gemma, "<|tool_call>call:f{a:[", "word, "}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct speech speech = {0};
        const struct speech_calls calls = {.form = texts[i].form};
        speech_begin(&speech, texts[i].marks, NULL, calls.form ? &calls : NULL);
        speech_add(&speech, texts[i].begin, strlen(texts[i].begin));
        const double first = seconds_of(&speech, texts[i].token, 10000);
        seconds_of(&speech, texts[i].token, 80000);
        const double last = seconds_of(&speech, texts[i].token, 10000);
        if (last > 8 * first + 0.3) // reading all again would take seconds
            fail_msg("text %zu: 10,000 tokens take %.4f s, and behind 90,000 others %.4f s", i, first, last);
        speech_end(&speech);
        assert_false(speech_failed(&speech));
        speech_free(&speech);
    }
}

static void test_forms_of_templates(void **state)
{
    (void)state;
    assert_int_equal(speech_marks("<|start|>assistant<|channel|>final<|message|>"), SPEECH_HARMONY);
    assert_int_equal(speech_marks("[TOOL_CALLS] [THINK]"), SPEECH_BRACKETS);
    assert_int_equal(speech_marks("<think>") | speech_marks(NULL), 0);
    struct call_form none;
    form_learn(&none, "<think>", NULL, NULL);
    assert_false(none.known);
    const char *end = speech_reasoning_end("[user] Hello<think>\n", 20);
    assert_string_equal(end, "</think>");
    assert_string_equal(speech_reasoning_end("x[THINK]", 8), "[/THINK]");
    assert_null(speech_reasoning_end("x", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_brackets),
        cmocka_unit_test(test_calls_that_break_off),
        cmocka_unit_test(test_more_calls_than_are_read),
        cmocka_unit_test(test_long_answers),
        cmocka_unit_test(test_forms_of_templates),
    };
    return cmocka_run_group_tests(tests, learn, NULL);
}
