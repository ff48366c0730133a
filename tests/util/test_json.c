// The one scanner of JSON, part by part; its numbers, and what strings stand for. tests/model/test_json.c has what is refused.

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
// clang-format on
#include "util/json_read.h"

// The parts of a text, one character each, with their texts.
static void scan(const char *text, int max_depth, size_t max_values, char *out)
{
    struct json_scan s = {.text = text, .length = strlen(text), .max_depth = max_depth, .max_values = max_values};
    enum json_part part;
    *out = 0;
    while ((part = json_next(&s)) != JSON_END && part != JSON_WRONG)
        out += sprintf(out, "%c%.*s ", "?.oCKSNW"[part], (int)s.n, s.part);
    if (part == JSON_WRONG)
        sprintf(out, "%s at %zu", s.wrong, s.at);
}

static void test_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *parts;
    } texts[] = {
        {" {\"a\" : [1, -2.5e3,{ }], \"b\":\"x\\n\"} ", "o{ Ka o[ N1 N-2.5e3 o{ C} C] Kb Sx\\n C} "},
        {"[true,false,null,[]]", "o[ Wtrue Wfalse Wnull o[ C] C] "},
        {"\"alone\"", "Salone "},
        {"12 ", "N12 "},
        {"[1,]", "o[ N1 no value that JSON has at 3"},
        {"{\"a\":1,}", "o{ Ka N1 no string where one must stand at 7"},
        {"{\"a\":1]", "o{ Ka N1 neither ',' nor the end of a list or an object at 6"},
        {"[1", "o[ N1 an early end at 2"},
        {"\"\\u0000\"", "S\\u0000 "}, // only some readers refuse it
        {"1 2", "N1 bytes after the value at 2"},
        {"[[[[1]]]]", "o[ o[ o[ nesting too deep at 3"},
        {"[1,2,3,4,5,6,7]", "o[ N1 N2 N3 N4 N5 N6 too many values at 13"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char found[200];
        scan(texts[i].text, 3, 7, found);
        assert_string_equal(found, texts[i].parts);
    }
}

static void test_unescape(void **state)
{
    (void)state;
    static const char part[] = "a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83d\\uDe00\\u0000z";
    static const char wanted[] = "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\0z";
    char found[sizeof part];
    assert_int_equal(json_unescape(found, part, strlen(part)), sizeof wanted - 1);
    assert_memory_equal(found, wanted, sizeof wanted - 1);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } texts[] = {{"0", 1},  {"-0.50x", 5}, {"1e+9,", 4}, {"1E5", 3}, {"007", 0}, {"-", 0},
                 {"1.", 0}, {"1e", 0},     {".5", 0},    {"+1", 0},  {"", 0},    {"2026-11-29", 4}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(json_number_length(texts[i].text, strlen(texts[i].text)), texts[i].n);
}

static void test_tree(void **state)
{
    (void)state;
    struct json_fault fault;
    cJSON *tree = json_tree("[1]", 3, 1, 2, &fault);
    assert_non_null(tree);
    assert_null(fault.what);
    cJSON_Delete(tree);
    assert_null(json_tree("\"\\u0000\"", 8, 1, 0, &fault));
    assert_string_equal(fault.what, "an escaped NUL in a string");
    char digits[] = "1000000000000000000000000000000000000000000000000000000000000"; // 61
    assert_null(json_tree(digits, 61, 1, 0, &fault));
    assert_string_equal(fault.what, "a number of too many digits");
    tree = json_tree(digits, 60, 1, 0, &fault);
    assert_true(tree && tree->valuedouble == 1e59);
    cJSON_Delete(tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
