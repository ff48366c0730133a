// The suffix automaton beside a search through the whole text.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "speculate/suffix.h"

enum { MOST = 700, BREAK = -1 };

struct text {
    int32_t tokens[MOST];
    size_t n;
};

// The longest end of the text that occurs in it before, too, with no break inside.
static size_t longest(const struct text *t)
{
    size_t best = 0;
    for (size_t end = 1; end < t->n; end++) { // the earlier place's
        size_t length = 0;
        while (length < end && t->tokens[end - 1 - length] == t->tokens[t->n - 1 - length] &&
               t->tokens[end - 1 - length] != BREAK)
            length++;
        best = length > best ? length : best;
    }
    return best;
}

// Whether `next` (n) stands in the text behind an earlier occurrence of its last `length` tokens.
static bool follows(const struct text *t, size_t length, const int32_t *next, size_t n)
{
    for (size_t end = length; end + n <= t->n; end++)
        if (end < t->n && !memcmp(t->tokens + end - length, t->tokens + t->n - length, length * sizeof *next) &&
            !memcmp(t->tokens + end, next, n * sizeof *next))
            return true;
    return false;
}

static void check(const struct suffix *suffix, const struct text *t)
{
    const int32_t *next;
    size_t n = 5;
    const size_t length = suffix_match(suffix, &next, &n);
    assert_int_equal(length, longest(t));
    assert_true(n <= 5);
    for (size_t i = 0; i < n; i++)
        assert_true(next[i] >= 0);
    if (length > 0)
        assert_true(follows(t, length, next, n));
    if (length > 0 && n == 0) // nothing is known only where a break stands behind it
        assert_true(memchr(t->tokens, 0xff, t->n * sizeof *t->tokens) != NULL);
}

static void test_matches_are_the_longest(void **state)
{
    (void)state;
    static const int alphabets[] = {1, 2, 3, 7, 60};
    for (size_t a = 0; a < sizeof alphabets / sizeof *alphabets; a++)
        for (int with_breaks = 0; with_breaks < 2; with_breaks++) {
            struct suffix *suffix = suffix_open(1 << 20);
            struct text text = {.n = 0};
            uint32_t random = 7;
            while (text.n < MOST) {
                random = random * 1664525u + 1013904223u;
                const bool copies = text.n > 40 && random >> 28 < 4; // a piece of what was there
                const size_t from = (random >> 8) % (text.n + 1), n = copies ? 12 : 1;
                for (size_t i = 0; i < n && text.n < MOST; i++) {
                    int32_t token = copies ? text.tokens[(from + i) % text.n] : (int32_t)((random >> 16) % alphabets[a]);
                    if (token == BREAK || (with_breaks && text.n % 97 == 96)) {
                        assert_true(suffix_break(suffix));
                        token = BREAK;
                    } else
                        assert_true(suffix_add(suffix, token));
                    text.tokens[text.n++] = token;
                    check(suffix, &text);
                }
            }
            suffix_close(suffix);
        }
}

static void test_the_latest_place_counts(void **state)
{
    (void)state;
    struct suffix *suffix = suffix_open(100);
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 4, 9, 1, 2};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        suffix_add(suffix, text[i]);
    const int32_t *next;
    size_t n = 2;
    assert_int_equal(suffix_match(suffix, &next, &n), 3);
    assert_int_equal(n, 2);
    assert_int_equal(next[0], 4);
    suffix_close(suffix);
}

// Once it is full it begins anew, and its memory does not grow.
static void test_it_forgets_when_it_is_full(void **state)
{
    (void)state;
    struct suffix *suffix = suffix_open(50);
    const int32_t *next;
    for (int i = 0; i < 10000; i++) {
        assert_true(suffix_add(suffix, i % 10));
        size_t n = 3;
        const size_t length = suffix_match(suffix, &next, &n);
        assert_int_equal(length, i % 50 < 10 ? 0 : i % 50 - 9);
    }
    suffix_forget(suffix);
    size_t n = 3;
    assert_int_equal(suffix_match(suffix, &next, &n), 0);
    suffix_close(suffix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches_are_the_longest),
        cmocka_unit_test(test_the_latest_place_counts),
        cmocka_unit_test(test_it_forgets_when_it_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
