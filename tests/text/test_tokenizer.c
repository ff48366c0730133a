// The tokenizer on vocabularies small enough to say by hand what must come out.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "small_tokenizer.h"
#include "thorough.h"
#include "util/clock.h"

static struct small_tokenizer small;
static yalm_error error;

static struct tokenizer *open_small(void)
{
    struct tokenizer *tokenizer;
    if (small_open(&small, &tokenizer, &error))
        fail_msg("%s", error.text);
    return tokenizer;
}

// The pieces of a text, each between bars: "| a|b|". Bytes that are not printable stay as they are.
static const char *pieces(const struct tokenizer *tokenizer, const char *text, size_t length, int flags)
{
    static char shown[4096];
    int32_t *ids;
    size_t n, at = 0;
    assert_int_equal(tokenizer_encode(tokenizer, text, length, flags, &ids, &n, &error), YALM_OK);
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *piece = tokenizer_piece(tokenizer, ids[i], &bytes);
        assert_non_null(piece);
        assert_true(at + bytes + 3 < sizeof shown);
        shown[at++] = '|';
        memcpy(shown + at, piece, bytes);
        at += bytes;
    }
    shown[at++] = '|';
    shown[at] = 0;
    free(ids);
    return shown;
}

static const char *pieces_of(const struct tokenizer *tokenizer, const char *text)
{
    return pieces(tokenizer, text, strlen(text), 0);
}

static void assert_comes_back(const struct tokenizer *tokenizer, const char *text, size_t length, int flags)
{
    int32_t *ids;
    size_t n, bytes;
    assert_int_equal(tokenizer_encode(tokenizer, text, length, flags, &ids, &n, &error), YALM_OK);
    char *back = small_decode(tokenizer, ids, n, &bytes);
    assert_int_equal(bytes, length);
    assert_memory_equal(back, text, length);
    free(back);
    free(ids);
}

static void merges_best_first(void **state)
{
    (void)state;
    small_spm(&small, "rank", "never", false, false);
    struct tokenizer *tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "abc"), "|abc|");
    assert_string_equal(pieces_of(tokenizer, "bc"), "|bc|");
    assert_string_equal(pieces_of(tokenizer, "aaa"), "|aa|a|"); // the leftmost of equals
    assert_string_equal(pieces_of(tokenizer, "aaaaa"), "|aaaa|a|");
    assert_string_equal(pieces_of(tokenizer, "aab"), "|a|ab|"); // ab ranks before aa
    assert_string_equal(pieces_of(tokenizer, ""), "|");
    assert_string_equal(tokenizer_type(tokenizer), "spm");
    assert_int_equal(tokenizer_n_pieces(tokenizer), small.n_pieces);
    tokenizer_close(tokenizer);
}

static void bytes_stand_in_for_characters(void **state)
{
    (void)state;
    small_spm(&small, "rank", "never", false, false);
    struct tokenizer *tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "\xe2\x82\xac"), "|\xe2|\x82|\xac|");
    assert_string_equal(pieces_of(tokenizer, "\xc3\xa9x"), "|\xc3\xa9x|");
    assert_string_equal(pieces_of(tokenizer, "\xe2\x82\xac\xe2\x82\xac"), "|\xe2|\x82|\xac|\xe2|\x82|\xac|");
    tokenizer_close(tokenizer);
    // By score any two neighbours that are a piece together merge, be they pieces or not.
    small_spm(&small, "score", "never", false, false);
    tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"),
                        "|\xe2\x82\xac\xe2\x82\xac|\xe2|\x82|\xac|");
    assert_string_equal(pieces_of(tokenizer, "aaaaabc"), "|aaaa|abc|");
    tokenizer_close(tokenizer);
}

static void spaces_before_texts(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        bool if_missing, split;
        const char *text, *expected;
    } cases[] = {
        {"never", false, false, "a  a", "|a| | a|"},
        {"segments", false, false, "a", "| a|"},
        {"segments", false, false, " a", "| | a|"},
        {"segments", false, false, "<s>a<user>", "|<s>| a|<user>|"},
        {"segments", true, false, " a", "| a|"},
        {"segments", true, false,
         "\xe2\x96\x81"
         "a",
         "| a|"},
        {"first", false, false, "a<s>a", "| a|<s>|a|"},
        {"first", false, false, "<s>a", "|<s>|a|"},
        {"segments", false, false, "a<s>a", "| a|<s>| a|"},
        {"segments", false, true, "  a", "| | | a|"},
        {"never", false, true, "a  a ", "|a| | a| |"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_spm(&small, "rank", cases[i].prefix, cases[i].if_missing, cases[i].split);
        struct tokenizer *tokenizer = open_small();
        assert_string_equal(pieces(tokenizer, cases[i].text, strlen(cases[i].text), YALM_TOKENIZE_SPECIAL), cases[i].expected);
        tokenizer_close(tokenizer);
    }
}

static void special_tokens_only_where_allowed(void **state)
{
    (void)state;
    small_bpe(&small, "[]", false);
    struct tokenizer *tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "<s>"), "|<|s|>|");
    assert_string_equal(pieces(tokenizer, "<s>", 3, YALM_TOKENIZE_SPECIAL), "|<s>|");
    assert_string_equal(pieces(tokenizer, "<s>", 3, YALM_TOKENIZE_BOS), "|<s>|<|s|>|");
    assert_string_equal(pieces_of(tokenizer, "x<user>y<user>>"), "|x|<user>|y|<user>>|"); // the longest
    assert_string_equal(pieces_of(tokenizer, "<<user"), "|<|<|u|s|e|r|");
    assert_true(tokenizer_is_control(tokenizer, 256));
    assert_false(tokenizer_is_control(tokenizer, 257));
    assert_false(tokenizer_is_control(tokenizer, -1));
    size_t length;
    assert_null(tokenizer_piece(tokenizer, 259, &length)); // unused
    assert_null(tokenizer_piece(tokenizer, small.n_pieces, &length));
    assert_null(tokenizer_piece(tokenizer, -1, &length));
    assert_true(tokenizer_adds_bos(tokenizer));
    tokenizer_close(tokenizer);
}

static void patterns_cut_words(void **state)
{
    (void)state;
    small_bpe(&small, "[\"'s| ?\\\\p{L}+|\\\\p{N}|\\\\s+(?!\\\\S)|\\\\s+\"]", false);
    struct tokenizer *tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "ab's hou  ou"), "|ab|'s| h|ou| | |ou|");
    assert_string_equal(pieces_of(tokenizer, "12"), "|1|2|"); // merge 12 would cross a cut
    tokenizer_close(tokenizer);

    small_bpe(&small, "[\"\\\\s\", \"b\"]", false); // the second cuts what the first left
    tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "aa abc"), "|aa| |a|b|c|");
    tokenizer_close(tokenizer);

    small_bpe(&small, "[\"[a-c]+\"]", true);
    tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "bcbc bcbcb"), "|bcbc| |bc|bc|b|");
    tokenizer_close(tokenizer);
    small_bpe(&small, "[\"[a-c]+\"]", false);
    tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "bcbc"), "|bc|bc|");
    tokenizer_close(tokenizer);
}

static void invalid_bytes_count_as_signs(void **state)
{
    (void)state;
    small_bpe(&small, "[\"[^\\\\s\\\\p{L}]+| ?\\\\p{L}+\"]", false);
    struct tokenizer *tokenizer = open_small();
    assert_string_equal(pieces_of(tokenizer, "ab\xff\xfe"
                                             "ab"),
                        "|ab|\xff|\xfe|ab|");
    assert_string_equal(pieces_of(tokenizer, "\xc3\xa9\xc3"), "|\xc3\xa9|\xc3|");
    tokenizer_close(tokenizer);
}

// Every byte string of two bytes, and many longer ones made of halves of characters, spaces and special tokens. (Of these the
// short suite gives AddressSanitizer a fifth.)
static void everything_comes_back(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    const int step = thorough() ? 1 : 5;
#else
    const int step = 1;
#endif
    static const char *const parts[] = {"a",        "b",   " ",      "  ", "\xe2\x82\xac", "\xe2",     "\x82",        "\xff",
                                        "\xf0\x9f", "<s>", "<user>", "<",  "\n",           "\xc3\xa9", "\xed\xa0\x80"};
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2)
            small_bpe(&small, "[\"\\\\p{L}+|\\\\s+(?!\\\\S)| ?[^\\\\s\\\\p{L}]+\"]", false);
        else
            small_spm(&small, kind ? "score" : "rank", "segments", false, false);
        struct tokenizer *tokenizer = open_small();
        for (int pair = 0; pair < 65536; pair += step)
            assert_comes_back(tokenizer, (char[]){(char)(pair >> 8), (char)pair}, 2, 0);
        assert_comes_back(tokenizer, "a\0b", 3, 0);
        uint32_t seed = 1;
        for (int i = 0; i < 20000 / step; i++) {
            char text[256];
            size_t n = 0;
            for (int k = 0; k < i % 12; k++) {
                const char *part = parts[(seed = seed * 1664525u + 1013904223u) % 15000 / 1000];
                memcpy(text + n, part, strlen(part));
                n += strlen(part);
            }
            assert_comes_back(tokenizer, text, n, i % 2 ? YALM_TOKENIZE_SPECIAL : 0);
        }
        tokenizer_close(tokenizer);
    }
}

static size_t stream(const struct tokenizer *tokenizer, yalm_stream *s, const char *byte, char *out)
{
    int32_t id = 0;
    size_t length;
    while (memcmp(tokenizer_piece(tokenizer, id, &length), byte, 1) != 0 || length != 1)
        id++;
    const size_t n = tokenizer_stream(tokenizer, s, id, false, out);
    out[n] = 0;
    return n;
}

static void streams_whole_characters(void **state)
{
    (void)state;
    small_bpe(&small, "[]", false);
    struct tokenizer *tokenizer = open_small();
    yalm_stream s = {0};
    char out[YALM_MAX_PIECE + 8];
    assert_int_equal(stream(tokenizer, &s, "\xf0", out), 0);
    assert_int_equal(stream(tokenizer, &s, "\x9f", out), 0);
    assert_int_equal(tokenizer_stream(tokenizer, &s, 256, false, out), 0); // a control token adds nothing and breaks nothing
    assert_int_equal(stream(tokenizer, &s, "\x98", out), 0);
    assert_int_equal(stream(tokenizer, &s, "\x80", out), 4);
    assert_string_equal(out, "\xf0\x9f\x98\x80");
    // What cannot become a character comes out as soon as that is known.
    assert_int_equal(stream(tokenizer, &s, "\xe2", out), 0);
    stream(tokenizer, &s, "x", out);
    assert_string_equal(out, "\xe2x");
    assert_int_equal(stream(tokenizer, &s, "\x80", out), 1);
    assert_int_equal(stream(tokenizer, &s, "\xff", out), 1);
    assert_int_equal(stream(tokenizer, &s, "\xe0", out), 0);
    stream(tokenizer, &s, "\x80", out); // overlong
    assert_string_equal(out, "\xe0\x80");
    assert_int_equal(stream(tokenizer, &s, "\xe2", out), 0);
    assert_int_equal(tokenizer_stream(tokenizer, &s, 256, true, out), 4); // spelled, after what was pending
    assert_memory_equal(out, "\xe2<s>", 4);
    assert_int_equal(s.n_pending, 0);
    assert_int_equal(tokenizer_stream(tokenizer, &s, 99999, true, out), 0);
    tokenizer_close(tokenizer);
}

static void drops_the_added_space_once(void **state)
{
    (void)state;
    char out[YALM_MAX_PIECE + 8];
    small_spm(&small, "rank", "first", false, false);
    struct tokenizer *tokenizer = open_small();
    const int32_t word = small_id(&small, " a", 2), spaces = small_id(&small, "  ", 2);
    yalm_stream s = {0};
    assert_int_equal(tokenizer_stream(tokenizer, &s, 1, false, out), 0); // bos
    assert_int_equal(tokenizer_stream(tokenizer, &s, word, false, out), 1);
    assert_int_equal(tokenizer_stream(tokenizer, &s, word, false, out), 2);
    s = (yalm_stream){0};
    assert_int_equal(tokenizer_stream(tokenizer, &s, spaces, false, out), 1);
    s = (yalm_stream){.started = true}; // goes on after a prompt
    assert_int_equal(tokenizer_stream(tokenizer, &s, word, false, out), 2);
    tokenizer_close(tokenizer);

    small_spm(&small, "rank", "never", false, false);
    tokenizer = open_small();
    s = (yalm_stream){0};
    assert_int_equal(tokenizer_stream(tokenizer, &s, word, false, out), 2);
    tokenizer_close(tokenizer);
}

// Quadratic time would take hours here; the bound is for slow machines under sanitizers.
static void long_words_take_linear_time(void **state)
{
    (void)state;
    const size_t length = 1 << 20;
    char *text = malloc(length);
    const double start = clock_seconds();
    for (int kind = 0; kind < 3; kind++)
        for (const char *letter = "a \n<\xe2"; *letter; letter++) {
            if (kind == 2)
                small_bpe(&small, "[\"\\\\p{L}+|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"]", false);
            else
                small_spm(&small, kind ? "score" : "rank", "segments", false, false);
            struct tokenizer *tokenizer = open_small();
            memset(text, *letter, length);
            int32_t *ids;
            size_t n;
            assert_int_equal(tokenizer_encode(tokenizer, text, length, YALM_TOKENIZE_SPECIAL, &ids, &n, &error), YALM_OK);
            assert_true(n >= length / 4);
            free(ids);
            tokenizer_close(tokenizer);
        }
    assert_true(clock_seconds() - start < 120);
    free(text);
}

static void runaway_patterns_stop(void **state)
{
    (void)state;
    small_bpe(&small, "[\"(?:a|aa|[ab])+[cd]\"]", false);
    struct tokenizer *tokenizer = open_small();
    char text[200];
    memset(text, 'a', sizeof text);
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(tokenizer, text, sizeof text, 0, &ids, &n, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "limit"));
    assert_null(ids);
    tokenizer_close(tokenizer);
}

static void models_without_one(void **state)
{
    (void)state;
    memset(&small, 0, sizeof small);
    small.container.mapping.path = "small.bin";
    strcpy(small.metadata, "{\"tokenizer\": {\"type\": \"none\"}}");
    struct tokenizer *tokenizer;
    assert_int_equal(small_open(&small, &tokenizer, &error), YALM_OK);
    assert_null(tokenizer);
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(NULL, "a", 1, 0, &ids, &n, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "no tokenizer"));
    assert_string_equal(tokenizer_type(NULL), "none");
    assert_int_equal(tokenizer_n_pieces(NULL), 0);
    assert_false(tokenizer_adds_bos(NULL));
    assert_null(tokenizer_piece(NULL, 0, &n));
    tokenizer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_best_first),          cmocka_unit_test(bytes_stand_in_for_characters),
        cmocka_unit_test(spaces_before_texts),        cmocka_unit_test(special_tokens_only_where_allowed),
        cmocka_unit_test(patterns_cut_words),         cmocka_unit_test(invalid_bytes_count_as_signs),
        cmocka_unit_test(everything_comes_back),      cmocka_unit_test(streams_whole_characters),
        cmocka_unit_test(drops_the_added_space_once), cmocka_unit_test(long_words_take_linear_time),
        cmocka_unit_test(runaway_patterns_stop),      cmocka_unit_test(models_without_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
