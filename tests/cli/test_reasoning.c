// What a model thinks, told from its answer, however the text is cut into pieces, in each form that templates have.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/reasoning.h"

static char shown[512];

static yalm_status write_shown(const char *bytes, size_t length, yalm_error *error)
{
    (void)error;
    strncat(shown, bytes, length);
    return YALM_OK;
}

static void check_form(unsigned forms, bool hidden, bool coloured, const char *prompt, const char *text, const char *expected)
{
    const size_t length = strlen(text);
    for (size_t piece = 1; piece <= length + 1; piece++) {
        struct reasoning r = {.hidden = hidden, .coloured = coloured, .write = write_shown};
        struct speech speech = {0};
        shown[0] = '\0';
        speech_begin(&speech, forms, speech_reasoning_end(prompt, strlen(prompt)), NULL);
        for (size_t at = 0; at < length; at += piece) {
            speech_add(&speech, text + at, length - at < piece ? length - at : piece);
            assert_int_equal(reasoning_show(&r, &speech, false, NULL), YALM_OK);
            assert_memory_equal(shown, expected, strlen(shown)); // a beginning of it
        }
        speech_end(&speech);
        assert_int_equal(reasoning_show(&r, &speech, true, NULL), YALM_OK);
        assert_string_equal(shown, expected);
        speech_free(&speech);
    }
}

static void check(bool hidden, bool coloured, const char *prompt, const char *text, const char *expected)
{
    check_form(0, hidden, coloured, prompt, text, expected);
}

static void test_shown_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {"plain\n",   " \n two\n\n\nlines\n", "a <think>b</think>\n", "<\n", "<<think\n",
                                        "</think>\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(false, true, "", texts[i], texts[i]);
    check(false, false, "", "", "\n");
    check(false, false, "", "no end", "no end\n");
}

static void test_between_tags(void **state)
{
    (void)state;
    check(false, false, "x", "<think>\na\n</think>\n\nb", "<think>\na\n</think>\n\nb\n");
    check(false, false, "x", " <think>a</think>b\n", "<think>\na\n</think>\n\nb\n");
    check(false, false, "assistant\n<think>\n", "a</think>b", "<think>\na\n</think>\n\nb\n");
    check(false, false, "x", "<think>\n\n</think>\n\nb", "b\n");
    check(false, false, "x", "<think>a\n\n", "<think>\na\n"); // cut off
}

static void test_dim(void **state)
{
    (void)state;
    check(false, true, "x", "<think>\na\n</think>\n\nb", "\033[2m<think>\na\n</think>\033[0m\n\nb\n");
    check(false, true, "x", "b <think>c</think>", "b <think>c</think>\n"); // no reasoning once the answer has begun
    check(false, true, "<think>", "a", "\033[2m<think>\na\033[0m\n");
}

static void test_hidden(void **state)
{
    (void)state;
    check(true, true, "x", "<think>\na < b\n</think>\n\nanswer\n\nmore", "answer\n\nmore\n");
    check(true, false, "<think>\n", "a</thin </think>\nb", "b\n");
    check(true, false, "", "<thinking is hard", "<thinking is hard\n");
    check(true, false, "", "<think>a", "\n");
    check(true, false, "", "\n\nb<think>c", "b<think>c\n");
}

static void test_brackets(void **state)
{
    (void)state;
    check_form(SPEECH_BRACKETS, false, true, "", "[THINK]a[/THINK]b", "\033[2m<think>\na\n</think>\033[0m\n\nb\n");
    check_form(SPEECH_BRACKETS, true, true, "[THINK]", "a[/THINK]b", "b\n");
}

static void test_channels(void **state)
{
    (void)state;
    static const char text[] = "<|channel|>analysis<|message|>Is it?<|end|><|start|>assistant<|channel|>final<|message|>It is.";
    check_form(SPEECH_HARMONY, false, true, "<|start|>assistant", text, "\033[2m<think>\nIs it?\n</think>\033[0m\n\nIt is.\n");
    check_form(SPEECH_HARMONY, true, true, "<|start|>assistant", text, "It is.\n");
    check_form(SPEECH_HARMONY, false, false, "", "no header", "no header\n");
}

// A call by each token: what comes first is shown first.
static void test_thoughts_between_answers(void **state)
{
    (void)state;
    static const char text[] =
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Yes.<|end|><|start|>assistant<|channel|>final<|message|>Is.";
    struct reasoning r = {.write = write_shown};
    struct speech speech = {0};
    shown[0] = '\0';
    speech_begin(&speech, SPEECH_HARMONY, NULL, NULL);
    for (size_t at = 0; at < strlen(text); at++) {
        speech_add(&speech, text + at, 1);
        assert_int_equal(reasoning_show(&r, &speech, false, NULL), YALM_OK);
    }
    speech_end(&speech);
    assert_int_equal(reasoning_show(&r, &speech, true, NULL), YALM_OK);
    speech_free(&speech);
    assert_string_equal(shown, "I look.\n<think>\nHm.\n\nYes.\n</think>\n\n\n\nIs.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown_as_it_is),
        cmocka_unit_test(test_between_tags),
        cmocka_unit_test(test_dim),
        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_brackets),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_thoughts_between_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
