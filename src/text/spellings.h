// Tokens that are found in a text as they are spelled, before the algorithm sees it: chat markers, and words that somebody
// added.
#pragma once
#include "text/normalise.h"
#include "text/vocabulary.h"

struct spelling {
    const uint8_t *bytes; // (length), the vocabulary's or `made`
    size_t length;
    int32_t id;
};

struct spellings {
    struct spelling *entries; // (n), sorted by their bytes
    int n;
    bool begins_with[256]; // a byte that none begins with needs no search
    uint8_t *made;         // what normalising made of the pieces
    bool written_spaces;   // a blank in the text stands for U+2581, which is no white space
};

// Where one stands in a text, with the white space that it takes.
struct spelled {
    int32_t id; // -1: none
    size_t start, end;
};

// The text by which a normalised token is looked for: its piece, normalised by the tokenizer. *result is the caller's.
typedef yalm_status spelling_maker(const void *context, const uint8_t *text, size_t length, struct bytes *result,
                                   yalm_error *error);

// Collects the pieces of these kinds (bits) that are flagged as normalised, or those that are not. YALM_BAD_MODEL where two of
// the latter are spelled alike.
yalm_status spellings_open(struct spellings *spellings, const struct vocabulary *vocabulary, uint32_t kinds, bool normalised,
                           spelling_maker *make, const void *context, const char *path, yalm_error *error);
void spellings_close(struct spellings *spellings);

// Finds the first in text[from..length), and of those that begin at one byte the longest. Bytes before text + taken belong to
// another token.
struct spelled spellings_next(const struct spellings *spellings, const struct vocabulary *vocabulary, const uint8_t *text,
                              size_t length, size_t from, size_t taken, size_t *search_from);
