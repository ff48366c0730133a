// Text to ids: finds the tokens that are spelled in the text, cuts the rest into words, merges each word's symbols.

#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

struct encoder {
    const struct tokenizer *tokenizer;
    struct ids ids;
    struct merge_work work;
    struct unigram_work unigram;
    const uint8_t *segment; // what words are cut from
    bool special;           // control tokens are found as they are spelled
    yalm_error *error;
};

static yalm_status no_memory(yalm_error *error, size_t length)
{
    return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for a text of %zu bytes", length);
}

static yalm_status encode_word(void *context, size_t start, size_t length, bool match)
{
    (void)match;
    struct encoder *encoder = context;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const uint8_t *word = encoder->segment + start;
    if (tokenizer->kind == TOKENIZER_WORDPIECE)
        return wordpiece_word(&encoder->ids, tokenizer, word, length) ? YALM_OK : no_memory(encoder->error, length);
    if (tokenizer->merges.order == MERGE_UNIGRAM)
        return unigram_word(&encoder->ids, &encoder->unigram, &tokenizer->merges, &tokenizer->vocabulary, tokenizer->unknown,
                            word, length)
                   ? YALM_OK
                   : no_memory(encoder->error, length);
    const int32_t whole = tokenizer->ignore_merges ? vocabulary_find(&tokenizer->vocabulary, word, length) : -1;
    const bool done = whole >= 0 ? ids_push(&encoder->ids, whole)
                                 : merge_word(&encoder->ids, &encoder->work, &tokenizer->merges, &tokenizer->vocabulary,
                                              tokenizer->kind == TOKENIZER_SPM, word, length);
    return done ? YALM_OK : no_memory(encoder->error, length);
}

// SentencePiece knows no spaces: U+2581 stands for them in its vocabulary, and a space for U+2581 in ours. So both are a
// space from here on.
static bool add_sentence(struct bytes *sentence, const uint8_t *text, size_t length)
{
    bool done = true;
    for (size_t at = 0, start = 0; at <= length && done;) {
        if (at < length && (length - at < 3 || memcmp(text + at, "\xe2\x96\x81", 3) != 0)) {
            at++;
            continue;
        }
        done = bytes_add(sentence, text + start, at - start) && (at == length || bytes_add(sentence, " ", 1));
        start = at += at < length ? 3 : 1;
    }
    return done;
}

// A prefix that is put before every word that begins a part is a pre-tokenizer's; one that is put before the text, whatever it
// begins with, is a normalizer's.
static bool prefix_is_normal(const struct tokenizer *tokenizer)
{
    return tokenizer->prefix_space != PREFIX_NEVER && !tokenizer->prefix_if_missing;
}

yalm_status tokenizer_normalise(const struct tokenizer *tokenizer, const uint8_t *text, size_t length, bool first,
                                struct bytes *result, yalm_error *error)
{
    yalm_status status = normalise(&tokenizer->normaliser, text, length, result, error);
    if (status || tokenizer->kind != TOKENIZER_SPM)
        return status;
    struct bytes sentence = {0};
    const bool prefix = prefix_is_normal(tokenizer) && result->n > 0 && (first || tokenizer->prefix_space == PREFIX_SEGMENTS);
    const bool done = (!prefix || bytes_add(&sentence, " ", 1)) && add_sentence(&sentence, result->data, result->n);
    free(result->data);
    *result = sentence;
    return done ? YALM_OK : no_memory(error, length);
}

// Encodes a part of a sentence, with spaces for U+2581, word by word.
static yalm_status encode_sentence(struct encoder *encoder, const uint8_t *text, size_t length, bool first)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const bool wanted = tokenizer->prefix_space == PREFIX_SEGMENTS || (tokenizer->prefix_space == PREFIX_FIRST && first);
    struct bytes prefixed = {0};
    if (wanted && tokenizer->prefix_if_missing && text[0] != ' ') {
        if (!bytes_add(&prefixed, " ", 1) || !bytes_add(&prefixed, text, length)) {
            free(prefixed.data);
            return no_memory(encoder->error, length);
        }
        text = prefixed.data;
        length = prefixed.n;
    }
    yalm_status status = YALM_OK;
    encoder->segment = text;
    // Where no piece has a space after the byte before, no merge reaches across: shorter words, and the same ids.
    const bool *joins = tokenizer->vocabulary.before_space;
    for (size_t start = 0, end; start < length && !status; start = end) {
        for (end = start + 1; end < length; end++)
            if (text[end] == ' ' && (tokenizer->split_words || !joins[text[end - 1]]))
                break;
        status = encode_word(encoder, start, end - start, false);
    }
    free(prefixed.data);
    return status;
}

// Encodes normalised text between tokens that are spelled in it.
static yalm_status encode_part(struct encoder *encoder, const uint8_t *text, size_t length, bool first)
{
    if (length == 0)
        return YALM_OK;
    if (encoder->tokenizer->kind == TOKENIZER_SPM)
        return encode_sentence(encoder, text, length, first);
    encoder->segment = text;
    return patterns_cut(&encoder->tokenizer->patterns, text, length, encode_word, encoder, encoder->error);
}

typedef yalm_status part_encoder(struct encoder *encoder, const uint8_t *text, size_t length, bool first);

// Tokens that are spelled in the text become their ids, what lies between them goes to encode(). first: the text is the
// beginning of all.
static yalm_status encode_between(struct encoder *encoder, const struct spellings *spellings, const uint8_t *text,
                                  size_t length, bool first, part_encoder *encode)
{
    const struct vocabulary *vocabulary = &encoder->tokenizer->vocabulary;
    size_t taken = 0, from = 0;
    for (;;) {
        const struct spelled found = spellings_next(spellings, vocabulary, text, length, from, taken, &from);
        if (found.start > taken) {
            const yalm_status status = encode(encoder, text + taken, found.start - taken, first && taken == 0);
            if (status)
                return status;
        }
        if (found.id < 0)
            return YALM_OK;
        if (!ids_push(&encoder->ids, found.id))
            return no_memory(encoder->error, length);
        taken = found.end;
    }
}

static yalm_status encode_segment(struct encoder *encoder, const uint8_t *text, size_t length, bool first)
{
    struct bytes normal;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const struct spellings *spellings = &tokenizer->normalised[encoder->special];
    if (tokenizer->kind != TOKENIZER_SPM && tokenizer->normaliser.n == 0) // a long text need not be copied
        return encode_between(encoder, spellings, text, length, first, encode_part);
    yalm_status status = tokenizer_normalise(tokenizer, text, length, first, &normal, encoder->error);
    if (!status)
        status = encode_between(encoder, spellings, normal.data, normal.n, first, encode_part);
    free(normal.data);
    return status;
}

// Tokens beyond the embedding's rows, which some vocabularies have, are no input for the model.
static yalm_status check_known(const struct encoder *encoder)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    for (size_t i = 0; i < encoder->ids.n; i++) {
        const int32_t id = encoder->ids.data[i];
        size_t length;
        if (id < tokenizer->n_known)
            continue;
        const char *piece = tokenizer_piece(tokenizer, id, &length);
        return error_set(encoder->error, YALM_USAGE,
                         "the text has token %d ('%.*s'), which the model does not know: its embedding ends at %d", id,
                         (int)(length < 64 ? length : 64), piece ? piece : "", tokenizer->n_known - 1);
    }
    return YALM_OK;
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
    struct encoder encoder = {.tokenizer = tokenizer, .special = (flags & YALM_TOKENIZE_SPECIAL) != 0, .error = error};
    yalm_status status = YALM_OK;
    if ((flags & YALM_TOKENIZE_BOS) && tokenizer->add_bos && !ids_push(&encoder.ids, tokenizer->bos))
        status = no_memory(error, length);
    if (!status)
        status = encode_between(&encoder, &tokenizer->as_given[encoder.special], (const uint8_t *)text, length,
                                !(flags & YALM_TOKENIZE_BEHIND), encode_segment);
    if (!status)
        status = check_known(&encoder);
    // An empty text has a buffer too, so that callers need not ask which NULL it is.
    if (!status && !encoder.ids.data && !(encoder.ids.data = malloc(sizeof *encoder.ids.data)))
        status = no_memory(error, length);
    merge_work_free(&encoder.work);
    free(encoder.unigram.nodes);
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
    static const char *const types[] = {"spm", "bpe", "wordpiece"};
    return tokenizer ? types[tokenizer->kind] : "none";
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
