// Tokenizers that do not hold together are refused, each with a line that says what is wrong.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include <math.h>

#include "small_tokenizer.h"

static struct small_tokenizer small;

static struct tensor *tensor_named(const char *name)
{
    for (int i = 0; i < small.container.n_tensors; i++)
        if (!strcmp(small.tensors[i].name, name))
            return &small.tensors[i];
    return NULL;
}

static void replace(const char *from, const char *to)
{
    char text[sizeof small.metadata];
    char *at = strstr(small.metadata, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small.metadata), small.metadata, to, at + strlen(from));
    memcpy(small.metadata, text, sizeof text);
}

static void bad_offset_order(void)
{
    small.offsets[270] = small.offsets[271] + 1;
}
static void bad_offset_start(void)
{
    small.offsets[0] = 1;
}
static void bad_offset_end(void)
{
    small.offsets[small.n_pieces]--;
}
static void bad_offset_huge(void)
{
    small.offsets[5] = 0xffffffff;
}
static void bad_kind(void)
{
    small.kinds[7] = 6;
}
static void empty_piece(void)
{
    small.kinds[261] = PIECE_NORMAL;
}
static void missing_byte(void)
{
    small.kinds[3 + 'x'] = PIECE_CONTROL;
}
static void long_byte(void)
{
    small.kinds[1] = PIECE_BYTE;
}
static void two_bytes(void)
{
    small.bytes[small.offsets[4]] = 0;
}
static int known(const char *piece)
{
    const int id = small_id(&small, piece, strlen(piece));
    assert_true(id >= 0 && id < SMALL_PIECES);
    return id;
}

static void twins(void)
{
    memcpy(small.bytes + small.offsets[known("bc")], "ab", 2);
}
static void two_spellings(void)
{
    const int first = known("ab"), second = known("bc");
    twins();
    small.kinds[first % SMALL_PIECES] = small.kinds[second % SMALL_PIECES] = PIECE_CONTROL;
}
static void merge_past_end(void)
{
    small.merges[3][0] = (uint32_t)small.n_pieces;
}
static void merge_of_control(void)
{
    small.merges[3][1] = 1;
}
static void merge_to_nothing(void)
{
    small.merges[3][1] = small.merges[3][0] = (uint32_t)known("abc");
}
static void merge_twice(void)
{
    memcpy(small.merges[3], small.merges[2], sizeof small.merges[2]);
}
static void score_nan(void)
{
    small.scores[9] = NAN;
}
static void bos_out_of_range(void)
{
    small.config.bos = small.n_pieces;
}
static void bos_missing(void)
{
    small.config.bos = -1;
}
static void eos_out_of_range(void)
{
    small.config.eos[0] = small.config.vocab_size;
}
static void wrong_type(void)
{
    tensor_named("tokenizer.kinds")->dtype = DTYPE_U32;
}
static void wrong_shape(void)
{
    tensor_named("tokenizer.kinds")->shape[0]--;
}
static void wrong_rank(void)
{
    tensor_named("tokenizer.merges")->rank = 1;
}
static void wrong_columns(void)
{
    tensor_named("tokenizer.merges")->shape[1] = 3;
}
static void missing_tensor(void)
{
    small.container.n_tensors--; // the last by name
}
static void extra_tensor(void)
{
    tensor_named("tokenizer.kinds")->name = "tokenizer.kind";
}
static void scores_for_rank(void)
{
    replace("\"rank\"", "\"score\"");
}
static void unknown_type(void)
{
    replace("\"spm\"", "\"unigram\"");
}
static void unknown_prefix(void)
{
    replace("\"segments\"", "\"always\"");
}
static void unknown_merge(void)
{
    replace("\"rank\"", "\"dropout\"");
}
static void missing_fact(void)
{
    replace("\"add_bos\": true, ", "");
}
static void extra_fact(void)
{
    replace("\"add_bos\"", "\"nfkc\": true, \"add_bos\"");
}
static void wrong_fact(void)
{
    replace("\"add_bos\": true", "\"add_bos\": 1");
}
static void fractional_count(void)
{
    replace("\"n_pieces\": ", "\"n_pieces\": 0.5, \"n\": ");
}
static void patterns_for_spm(void)
{
    replace("\"add_bos\"", "\"patterns\": [], \"add_bos\"");
}
static void no_facts(void)
{
    strcpy(small.metadata, "{}");
}
static void tensors_for_none(void)
{
    strcpy(small.metadata, "{\"tokenizer\": {\"type\": \"none\"}}");
}

static const struct {
    void (*spoil)(void);
    const char *says;
    bool score;
} cases[] = {
    {bad_offset_order, "offsets of token 270", false},
    {bad_offset_start, "tokenizer.offsets run from 1", false},
    {bad_offset_end, "tokenizer.offsets run from 0", false},
    {bad_offset_huge, "offsets of token 4", false},
    {bad_kind, "kind of token 7: found 6", false},
    {empty_piece, "token 261 is empty", false},
    {missing_byte, "no token for byte 0x78", false},
    {long_byte, "length of the byte of token 1", false},
    {two_bytes, "tokens 3 and 4 are the same byte", false},
    {twins, "have the same bytes", true},
    {two_spellings, "are spelled alike", true},
    {merge_past_end, "merge 3 (tokens", false},
    {merge_of_control, "names an absent token", false},
    {merge_to_nothing, "names an absent token", false},
    {merge_twice, "merges 2 and 3 are the same", false},
    {score_nan, "score of token 9", true},
    {bos_out_of_range, "config.bos", false},
    {bos_missing, "config.bos", false},
    {eos_out_of_range, "config.eos", false},
    {wrong_type, "'tokenizer.kinds' has type u32, expected u8", false},
    {wrong_shape, "'tokenizer.kinds' has 1 dimensions", false},
    {wrong_rank, "'tokenizer.merges' has 1 dimensions", false},
    {wrong_columns, "'tokenizer.merges' has 2 dimensions", false},
    {missing_tensor, "'tokenizer.offsets' is missing", false},
    {missing_tensor, "'tokenizer.scores' is missing", true},
    {extra_tensor, "'tokenizer.kind' is not expected", false},
    {scores_for_rank, "'tokenizer.merges' is not expected", false},
    {unknown_type, "found 'unigram', expected spm, bpe, wordpiece or none", false},
    {unknown_prefix, "found 'always', expected never, first or segments", false},
    {unknown_merge, "found 'dropout', expected rank, score or unigram", false},
    {missing_fact, "add_bos", false},
    {extra_fact, "nfkc", false},
    {wrong_fact, "add_bos", false},
    {fractional_count, "n_pieces", false},
    {patterns_for_spm, "patterns", false},
    {no_facts, "tokenizer", false},
    {tensors_for_none, "is not expected", false},
};

static void assert_refused(const char *says)
{
    struct tokenizer *tokenizer;
    yalm_error error = {0};
    const yalm_status status = small_open(&small, &tokenizer, &error);
    if (status != YALM_BAD_MODEL || !strstr(error.text, says) || !strstr(error.text, "small.bin"))
        fail_msg("expected \"small.bin: … %s …\", found status %d, \"%s\"", says, status, error.text);
    assert_null(tokenizer);
    assert_null(strchr(error.text, '\n'));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_spm(&small, cases[i].score ? "score" : "rank", "segments", false, false);
        cases[i].spoil();
        assert_refused(cases[i].says);
    }
}

static void pieces_have_a_length_limit(void **state)
{
    (void)state;
    static char piece[YALM_MAX_PIECE + 1];
    memset(piece, 'z', sizeof piece);
    for (size_t length = YALM_MAX_PIECE; length <= YALM_MAX_PIECE + 1; length++) {
        small_begin(&small, false);
        small_add(&small, piece, length, PIECE_NORMAL);
        small_merge(&small, "a", "b");
        snprintf(small.metadata, sizeof small.metadata,
                 "{\"tokenizer\": {\"type\": \"bpe\", \"n_pieces\": %d, \"add_bos\": false, \"ignore_merges\": true, "
                 "\"patterns\": []}}",
                 small.n_pieces);
        small_finish(&small, false);
        if (length > YALM_MAX_PIECE) {
            assert_refused("found 1025, expected at most 1024");
            continue;
        }
        struct tokenizer *tokenizer;
        yalm_error error;
        int32_t *ids;
        size_t n;
        assert_int_equal(small_open(&small, &tokenizer, &error), YALM_OK);
        assert_int_equal(tokenizer_encode(tokenizer, piece, length, 0, &ids, &n, &error), YALM_OK);
        assert_int_equal(n, 1);
        free(ids);
        tokenizer_close(tokenizer);
    }
}

static void patterns_must_compile_and_match(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"[\"(\"]", "pattern '('"},
        {"[\"\\\\s*\"]", "can match nothing"},
        {"[\"a|\"]", "can match nothing"},
        {"[\"a\", 1]", "expected strings only"},
        {"[\"\\\\p{Klingon}\"]", "pattern"},
        {"{}", "patterns"},
        {"[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]",
         "more than 16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        small_bpe(&small, bad[i][0], false);
        assert_refused(bad[i][1]);
    }
    small_bpe(&small, "[]", false);
    small.kinds[3] = PIECE_BYTE;
    assert_refused("kind of token 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(pieces_have_a_length_limit),
        cmocka_unit_test(patterns_must_compile_and_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
