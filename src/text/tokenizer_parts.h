// The parts of a tokenizer, for the files that implement it.
#pragma once
#include "text/merge.h"
#include "text/normalise.h"
#include "text/pattern.h"
#include "text/spellings.h"
#include "text/tokenizer.h"

enum tokenizer_kind { TOKENIZER_SPM, TOKENIZER_BPE, TOKENIZER_WORDPIECE };

enum { WORDPIECE_CONTINUING = 16 };

// Where a space is put before the text (SentencePiece-style only), so that a word is the same piece at a text's start.
enum prefix_space {
    PREFIX_NEVER,
    PREFIX_FIRST,    // at the start of the whole text
    PREFIX_SEGMENTS, // also after each token that was found as it is spelled
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocabulary vocabulary;
    int n_known;                  // ids below it are rows of the model's embedding
    struct spellings as_given[2]; // looked for in the text as it is; [1]: also control and unknown tokens
    struct normaliser normaliser;
    struct spellings normalised[2]; // looked for in what normalising makes of it, likewise
    struct merges merges;
    struct patterns patterns;
    enum prefix_space prefix_space;
    bool prefix_if_missing; // no space is added where there is one
    bool split_words;       // merges do not cross the beginning of a word, which is each space
    bool ignore_merges;     // a whole word that is a piece is that piece, whatever merging would make of it
    // Of WordPiece: what pieces that go on with a word begin with, the characters of the longest word that is cut, and the
    // token of a word that cannot be.
    char continuing[WORDPIECE_CONTINUING];
    int longest_word;
    int32_t unknown;
    bool add_bos;
    int32_t bos; // -1: none
};

// text[0..length) as the steps make it. In a SentencePiece-style vocabulary it has spaces for U+2581, and the prefix that
// belongs to the text, not to a word. *result is the caller's to free.
yalm_status tokenizer_normalise(const struct tokenizer *tokenizer, const uint8_t *text, size_t length, bool first,
                                struct bytes *result, yalm_error *error);
