// What a model thinks, told from its answer, however the text is cut into pieces.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/reasoning.c"

static char shown[512];

static yalm_status write_shown(const char *bytes, size_t length, yalm_error *error)
{
    (void)error;
    strncat(shown, bytes, length);
    return YALM_OK;
}

static void check(bool hidden, bool coloured, const char *prompt, const char *text, const char *expected)
{
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        struct reasoning r = {.hidden = hidden, .coloured = coloured, .write = write_shown};
        shown[0] = '\0';
        assert_int_equal(reasoning_begin(&r, prompt, strlen(prompt), NULL), YALM_OK);
        for (size_t at = 0; at < strlen(text); at += piece) {
            const size_t left = strlen(text) - at;
            assert_int_equal(reasoning_show(&r, text + at, left < piece ? left : piece, NULL), YALM_OK);
        }
        assert_int_equal(reasoning_end(&r, NULL), YALM_OK);
        assert_string_equal(shown, expected);
    }
}

static void test_shown_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {"",  "plain",   "<think>a</think>b", " \n<think>a", "a <think>b</think>",
                                        "<", "<<think", "<think><</think",   "</think>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        check(false, false, "", texts[i], texts[i]);
        check(false, false, "assistant\n<think>\n", texts[i], texts[i]);
    }
}

static void test_dim(void **state)
{
    (void)state;
    check(false, true, "x", "<think>\na\n</think>\n\nb", "\033[2m<think>\na\n</think>\033[0m\n\nb");
    check(false, true, "x", "b <think>c</think>", "b <think>c</think>"); // no reasoning once the answer has begun
    check(false, true, "<think>\n", "a</think>b", "\033[2ma</think>\033[0mb");
    check(false, true, "<think>", "a", "\033[2ma\033[0m");
}

static void test_hidden(void **state)
{
    (void)state;
    check(true, true, "x", "<think>\na < b\n</think>\n\nanswer\n\nmore", "answer\n\nmore");
    check(true, false, "<think>\n", "a</thin </think>\nb", "b");
    check(true, false, "", "<thinking is hard", "<thinking is hard");
    check(true, false, "", "<think>a", "");
    check(true, false, "", "\n\nb<think>c", "b<think>c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown_as_it_is),
        cmocka_unit_test(test_dim),
        cmocka_unit_test(test_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
