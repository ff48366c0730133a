// Text to ids: find the tokens that are spelled in the text, cut what lies between into words, merge each word's symbols.

#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

struct encoder {
    const struct tokenizer *tokenizer;
    struct ids ids;
    struct merge_work work;
    const uint8_t *segment; // what patterns_cut() is cutting
    yalm_error *error;
};

static yalm_status no_memory(yalm_error *error, size_t length)
{
    return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for a text of %zu bytes", length);
}

static yalm_status encode_word(void *context, size_t start, size_t length)
{
    struct encoder *encoder = context;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const uint8_t *word = encoder->segment + start;
    const int32_t whole = tokenizer->ignore_merges ? vocabulary_find(&tokenizer->vocabulary, word, length) : -1;
    const bool done = whole >= 0 ? ids_push(&encoder->ids, whole)
                                 : merge_word(&encoder->ids, &encoder->work, &tokenizer->merges, &tokenizer->vocabulary,
                                              tokenizer->kind == TOKENIZER_SPM, word, length);
    return done ? YALM_OK : no_memory(encoder->error, length);
}

// Patterns look at characters. A byte that belongs to none counts as U+001A, a control character of one byte, so that the
// cuts fall where they would beside any other sign; the bytes that are encoded stay as they are.
static yalm_status encode_bytes(struct encoder *encoder, const uint8_t *text, size_t length)
{
    encoder->segment = text;
    uint8_t *repaired = NULL;
    for (size_t at = 0; at < length;) {
        const int size = utf8_character(text + at, length - at);
        if (size == 0 && !repaired) {
            repaired = malloc(length);
            if (!repaired)
                return no_memory(encoder->error, length);
            memcpy(repaired, text, length);
        }
        if (size == 0)
            repaired[at] = 0x1a;
        at += size ? (size_t)size : 1;
    }
    const yalm_status status = patterns_cut(&encoder->tokenizer->patterns, (const char *)(repaired ? repaired : text), length,
                                            encode_word, encoder, encoder->error);
    free(repaired);
    return status;
}

// SentencePiece knows no spaces: U+2581 stands for them in its vocabulary, and a space for U+2581 in ours. So both are a
// space from here on.
static yalm_status encode_sentence(struct encoder *encoder, const uint8_t *text, size_t length, bool first)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    uint8_t *sentence = malloc(length + 1);
    if (!sentence)
        return no_memory(encoder->error, length);
    size_t n = 1;
    for (size_t at = 0; at < length;) {
        if (length - at >= 3 && !memcmp(text + at, "\xe2\x96\x81", 3)) {
            sentence[n++] = ' ';
            at += 3;
        } else
            sentence[n++] = text[at++];
    }
    sentence[0] = ' ';
    bool prefix = tokenizer->prefix_space == PREFIX_SEGMENTS || (tokenizer->prefix_space == PREFIX_FIRST && first);
    if (tokenizer->prefix_if_missing && sentence[1] == ' ')
        prefix = false;
    yalm_status status = YALM_OK;
    encoder->segment = sentence;
    // Where no piece has a space after the byte before, no merge reaches across: shorter words, and the same ids.
    const bool *joins = tokenizer->vocabulary.before_space;
    for (size_t start = prefix ? 0 : 1, end; start < n && !status; start = end) {
        for (end = start + 1; end < n; end++)
            if (sentence[end] == ' ' && (tokenizer->split_words || !joins[sentence[end - 1]]))
                break;
        status = encode_word(encoder, start, end - start);
    }
    free(sentence);
    return status;
}

static yalm_status encode_segment(struct encoder *encoder, const uint8_t *text, size_t length, bool first)
{
    if (length == 0)
        return YALM_OK;
    return encoder->tokenizer->kind == TOKENIZER_SPM ? encode_sentence(encoder, text, length, first)
                                                     : encode_bytes(encoder, text, length);
}

static yalm_status encode_text(struct encoder *encoder, const uint8_t *text, size_t length, const struct spellings *spellings)
{
    const struct vocabulary *vocabulary = &encoder->tokenizer->vocabulary;
    size_t start = 0;
    yalm_status status = YALM_OK;
    for (size_t at = 0; at < length && spellings->n && !status;) {
        const int32_t id =
            spellings->begins_with[text[at]] ? spellings_match(spellings, vocabulary, text + at, length - at) : -1;
        if (id < 0) {
            at++;
            continue;
        }
        status = encode_segment(encoder, text + start, at - start, start == 0);
        if (!status && !ids_push(&encoder->ids, id))
            status = no_memory(encoder->error, length);
        size_t spelled;
        vocabulary_piece(vocabulary, id, &spelled);
        start = at += spelled;
    }
    return status ? status : encode_segment(encoder, text + start, length - start, start == 0);
}

yalm_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, int flags, int32_t **tokens,
                             size_t *n_tokens, yalm_error *error)
{
    *tokens = NULL;
    *n_tokens = 0;
    if (!tokenizer)
        return error_set(error, YALM_USAGE, "the model has no tokenizer: give token ids instead of text");
    if (length >= INT32_MAX)
        return error_set(error, YALM_USAGE, "a text of %zu bytes: at most %d can be tokenized at once", length, INT32_MAX - 1);
    struct encoder encoder = {.tokenizer = tokenizer, .error = error};
    yalm_status status = YALM_OK;
    if ((flags & YALM_TOKENIZE_BOS) && tokenizer->add_bos && !ids_push(&encoder.ids, tokenizer->bos))
        status = no_memory(error, length);
    if (!status)
        status = encode_text(&encoder, (const uint8_t *)text, length,
                             flags & YALM_TOKENIZE_SPECIAL ? &tokenizer->vocabulary.special : &tokenizer->vocabulary.always);
    // An empty text has a buffer too, so that callers need not ask which NULL it is.
    if (!status && !encoder.ids.data && !(encoder.ids.data = malloc(sizeof *encoder.ids.data)))
        status = no_memory(error, length);
    merge_work_free(&encoder.work);
    if (status) {
        free(encoder.ids.data);
        return status;
    }
    *tokens = encoder.ids.data;
    *n_tokens = encoder.ids.n;
    return YALM_OK;
}

const char *tokenizer_type(const struct tokenizer *tokenizer)
{
    return !tokenizer ? "none" : tokenizer->kind == TOKENIZER_SPM ? "spm" : "bpe";
}

int tokenizer_n_pieces(const struct tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->vocabulary.n : 0;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer && tokenizer->add_bos;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length)
{
    *length = 0;
    if (!tokenizer || token < 0 || token >= tokenizer->vocabulary.n || tokenizer->vocabulary.kinds[token] == PIECE_UNUSED)
        return NULL;
    return (const char *)vocabulary_piece(&tokenizer->vocabulary, token, length);
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token)
{
    if (!tokenizer || token < 0 || token >= tokenizer->vocabulary.n)
        return false;
    const enum piece_kind kind = tokenizer->vocabulary.kinds[token];
    return kind == PIECE_CONTROL || kind == PIECE_UNKNOWN;
}
