// Lines that break between words: on a terminal of 20 columns.
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/wrap.h"

enum { COLUMNS = 20 };

// What is shown of `text`, which comes in pieces of n bytes; without what the terminal adds to lines' ends.
static void check(const char *text, const char *expected)
{
    for (size_t n = 1; n <= 64; n = n * 2 + 1) {
        int terminal, other, before = dup(STDOUT_FILENO);
        struct winsize size = {.ws_row = 24, .ws_col = COLUMNS};
        assert_int_equal(openpty(&terminal, &other, NULL, NULL, &size), 0);
        fflush(stdout);
        dup2(other, STDOUT_FILENO);
        for (size_t at = 0; at < strlen(text); at += n)
            assert_int_equal(wrap_output(text + at, strlen(text) - at < n ? strlen(text) - at : n, NULL), YALM_OK);
        assert_int_equal(wrap_end(NULL), YALM_OK);
        dup2(before, STDOUT_FILENO);
        close(before);
        close(other);
        char shown[1024], *to = shown;
        for (ssize_t length; (length = read(terminal, to, (size_t)(shown + sizeof shown - 1 - to))) > 0;)
            to += length;
        *to = 0;
        close(terminal);
        for (char *at = to = shown; (*to = *at); at++)
            to += *at != '\r';
        assert_string_equal(shown, expected);
    }
}

static void test_words(void **state)
{
    (void)state;
    check("one two three four five six\n", "one two three four\nfive six\n");
    check("exactly twenty chars then\n", "exactly twenty chars\nthen\n");
    check("  indented, and two  blanks\n\n", "  indented, and two\nblanks\n\n");
    check("end without a line", "end without a line");
    check("a wordthatislongerthanwhatalinecanhold here", "a\nwordthatislongerthanwhatalinecanhold\nhere");
    check("\033[2mdim words take no room\033[0m", "\033[2mdim words take no\nroom\033[0m");
}

static void test_characters(void **state)
{
    (void)state;
    check("größer größer größer über", "größer größer größer\nüber");
    check("两句话两句话两句话两句话", "两句话两句话两句话两\n句话");
    check("broken \xf0\xf0 bytes stay as are", "broken \xf0\xf0 bytes stay\nas are");
}

static void test_code(void **state)
{
    (void)state;
    check("```c\nint a_long_line = of_code(that, stays);\n```\nand words that are after it\n",
          "```c\nint a_long_line = of_code(that, stays);\n```\nand words that are\nafter it\n");
    check("`code` within a line breaks\n", "`code` within a line\nbreaks\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_characters),
                                       cmocka_unit_test(test_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
