// The strict layer over cJSON.

#include <time.h>

#include "expect.h"
#include "model/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static yalm_status parse(const char *text, size_t length, yalm_error *error)
{
    // A copy of exactly its length, so that AddressSanitizer sees a read past the end.
    char *copy = malloc(length ? length : 1);
    memcpy(copy, text, length);
    cJSON *root = NULL;
    const yalm_status status = json_parse(&root, copy, length, "file", error);
    assert_true((root != NULL) == (status == YALM_OK));
    cJSON_Delete(root);
    free(copy);
    return status;
}

static void test_accepted(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        " \t\r\n{ } \n",
        "{\"a\":[],\"b\":{},\"c\":[{}]}",
        "{\"a\":-0.5e+10,\"b\":0,\"c\":1E-2,\"d\":-0}",
        "{\"a\":[true,false,null,\"\"]}",
        "{\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"}",
        "{\"a\":\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"}",
        "{\"a\":1,\"A\":2}",
        "{\"a\":{\"a\":{\"a\":1}}}",
        "{\"a\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        yalm_error error = {.text = ""};
        if (parse(texts[i], strlen(texts[i]), &error) != YALM_OK)
            fail_msg("%s: %s", texts[i], error.text);
        // No beginning of it is a text of its own, white space aside.
        for (size_t n = 0; n < strlen(texts[i]); n++)
            if (strspn(texts[i] + n, " \t\r\n") != strlen(texts[i] + n))
                assert_int_equal(parse(texts[i], n, &error), YALM_BAD_MODEL);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } texts[] = {
        {"", "an early end, at byte 0"},
        {"[]", "found an array, expected an object"},
        {"\xef\xbb\xbf{}", "no value that JSON has, at byte 0"},
        {"{} x", "bytes after the value, at byte 3"},
        {"{}{}", "bytes after the value"},
        {"{\"a\":1,}", "no string where one must stand"},
        {"{a:1}", "no string where one must stand"},
        {"{\"a\" 1}", "no ':' after a key"},
        {"{\"a\":1 \"b\":2}", "neither ','"},
        {"{\"a\":[1}", "neither ','"},
        {"{\"a\":[1,]}", "no value that JSON has"},
        {"{\"a\":NaN}", "no value that JSON has"},
        {"{\"a\":Infinity}", "no value that JSON has"},
        {"{\"a\":-Infinity}", "a number that JSON does not have"},
        {"{\"a\":+1}", "no value that JSON has"},
        {"{\"a\":01}", "a number that JSON does not have"},
        {"{\"a\":.5}", "no value that JSON has"},
        {"{\"a\":1.}", "a number that JSON does not have"},
        {"{\"a\":1e}", "a number that JSON does not have"},
        {"{\"a\":0x10}", "neither ','"},
        {"{\"a\":tru}", "no value that JSON has"},
        {"{\"a\":1e999}", "a number too large for a double: a"},
        {"{\"a\":[-1e999]}", "a number too large for a double"},
        {"{\"a\":1000000000000000000000000000000000000000000000000000000000000}", "a number of too many digits"},
        {"{\"a\":'b'}", "no value that JSON has"},
        {"{\"a\":\"\t\"}", "a control character in a string"},
        {"{\"a\":\"\\x41\"}", "an escape that JSON does not have"},
        {"{\"a\":\"\\u12g4\"}", "an escape that JSON does not have"},
        {"{\"a\":\"b\\u0000c\"}", "an escaped NUL in a string"},
        {"{\"a\\u0000\":1}", "an escaped NUL in a string"},
        {"{\"a\":\"\\ud83d\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\ud83d\\u0041\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\ude00\"}", "half of a surrogate pair"},
        {"{\"a\":\"\xff\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\x80\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\xc3\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\xc0\xaf\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\xe0\x80\xaf\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\xed\xa0\x80\"}", "a byte that is not UTF-8"},
        {"{\"a\":\"\xf4\x90\x80\x80\"}", "a byte that is not UTF-8"},
        {"{\"caf\xe9\":1}", "a byte that is not UTF-8"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "key 'a' appears twice"},
        {"{\"x\":{\"a\":1,\"\\u0061\":2}}", "key 'a' appears twice"},
        {"{\"x\":[1,{\"b\":[],\"b\":[]}]}", "key 'b' appears twice"},
        {"{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", "nesting too deep"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        yalm_error error = {.text = ""};
        const yalm_status status = parse(texts[i].text, strlen(texts[i].text), &error);
        if (status != YALM_BAD_MODEL || !strstr(error.text, texts[i].words))
            fail_msg("%s: status %d, '%s': expected '%s'", texts[i].text, (int)status, error.text, texts[i].words);
    }
    yalm_error error;
    assert_int_equal(parse("{\"a\":1}\0", 8, &error), YALM_BAD_MODEL); // a NUL is a trailing byte, too
    assert_int_equal(parse("{\"a\":\"b\0c\"}", 11, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "a control character"));
}

// `unit` n times between `before` and `after`; each %zu in the unit is its number.
static char *repeat(const char *before, const char *unit, size_t n, const char *after, size_t *length)
{
    char *text = malloc(strlen(before) + n * (strlen(unit) + 24) + strlen(after) + 1);
    builder_check(text != NULL, "no memory");
    size_t at = (size_t)sprintf(text, "%s", before);
    for (size_t i = 0; i < n; i++)
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        at += (size_t)sprintf(text + at, unit, i);
    at += (size_t)sprintf(text + at, "%s", after);
    *length = at;
    return text;
}

static void test_hostile_sizes_take_linear_time(void **state)
{
    (void)state;
    yalm_error error;
    size_t n;
    const clock_t start = clock();
    char *text = repeat("{", "\"k%zu\":1,", 300000, "\"k7\":1}", &n);
    assert_int_equal(parse(text, n, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "key 'k7' appears twice"));
    free(text);
    text = repeat("{", "\"k%zu\":1,", 300000, "\"z\":1}", &n);
    assert_int_equal(parse(text, n, &error), YALM_OK);
    free(text);
    text = repeat("{\"a\":", "[", 2000000, "", &n); // would overflow a recursive reader's stack
    assert_int_equal(parse(text, n, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "nesting too deep"));
    free(text);
    text = repeat("{\"a\":[", "0,", (4 << 20) + 1, "0]}", &n); // a tree of 400 MB from 8 MB
    assert_int_equal(parse(text, n, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "too many values"));
    free(text);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20); // quadratic: minutes
}

static void test_members(void **state)
{
    (void)state;
    static const char text[] =
        "{\"i\":7,\"half\":7.5,\"big\":9007199254740992,\"e\":7e0,\"b\":true,\"s\":\"x\",\"o\":{\"i\":1},\"a\":[1]}";
    cJSON *root;
    yalm_error error;
    assert_int_equal(json_parse(&root, text, strlen(text), "file", &error), YALM_OK);
    const struct json_object o = {"file", "", root};
    struct json_object inner;
    int64_t i = -1;
    double number;
    bool b = false;
    const char *s;
    assert_int_equal(json_get_integer(&i, &o, "i", 0, 7, &error), YALM_OK);
    assert_int_equal(i, 7);
    assert_int_equal(json_get_integer(&i, &o, "e", 0, 7, &error), YALM_OK);
    i = -1;
    assert_int_equal(json_get_integer(&i, &o, "i", 0, 6, &error), YALM_BAD_MODEL);
    assert_string_equal(error.text, "file: metadata: 'i': found 7, expected an integer from 0 to 6");
    assert_int_equal(json_get_integer(&i, &o, "half", 0, 100, &error), YALM_BAD_MODEL);
    assert_int_equal(json_get_integer(&i, &o, "big", 0, INT64_MAX, &error), YALM_BAD_MODEL);
    assert_int_equal(json_get_integer(&i, &o, "s", 0, 100, &error), YALM_BAD_MODEL);
    assert_int_equal(i, -1);
    assert_int_equal(json_get_number(&number, &o, "half", 0, 10, &error), YALM_OK);
    assert_true(number == 7.5);
    assert_int_equal(json_get_number(&number, &o, "half", 8, 10, &error), YALM_BAD_MODEL);
    assert_int_equal(json_get_bool(&b, &o, "b", &error), YALM_OK);
    assert_true(b);
    assert_int_equal(json_get_bool(&b, &o, "i", &error), YALM_BAD_MODEL);
    assert_int_equal(json_get_string(&s, &o, "s", &error), YALM_OK);
    assert_string_equal(s, "x");
    assert_int_equal(json_get_string(&s, &o, "S", &error), YALM_BAD_MODEL);
    assert_string_equal(error.text, "file: metadata: 'S' is missing");
    assert_int_equal(json_get_object(&inner, &o, "o", "o", &error), YALM_OK);
    assert_int_equal(json_get_integer(&i, &inner, "j", 0, 1, &error), YALM_BAD_MODEL);
    assert_string_equal(error.text, "file: metadata: 'o.j' is missing");
    cJSON_Delete(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile_sizes_take_linear_time),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
