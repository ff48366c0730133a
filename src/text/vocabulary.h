// The pieces of a tokenizer: their bytes and kinds, and the way from bytes to an id.
#pragma once
#include "model/container.h"

// As in docs/format.md.
enum piece_kind { PIECE_NORMAL, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_BYTE, PIECE_UNUSED, PIECE_KINDS };

// Flags of tokens that are found as they are spelled: bits of tokenizer.flags.
enum piece_flag {
    PIECE_LSTRIP = 1,      // takes the white space before it
    PIECE_RSTRIP = 2,      // and behind it
    PIECE_SINGLE_WORD = 4, // only where no letter or digit touches it
    PIECE_NORMALISED = 8,  // is looked for in the text that the normalizers have made
    PIECE_FLAGS = 15
};

struct vocabulary {
    int n;
    const uint8_t *bytes;    // (offsets[n])
    const uint32_t *offsets; // (n + 1)
    const uint8_t *kinds;    // (n)
    const uint8_t *flags;    // (n); NULL: none has any
    size_t longest;          // bytes of the longest normal piece
    int32_t *slots;          // (mask + 1), a hash table of the normal pieces; -1: empty
    uint32_t mask;
    bool before_space[256]; // some normal piece has a space after this byte: only there can a merge reach across
    int32_t byte_ids[256];  // the token that stands for each byte; -1: none, in vocabularies of bytes
};

// byte_kind: which kind holds the bytes' tokens. Refuses offsets, kinds and pieces that are out of range or appear twice.
yalm_status vocabulary_open(struct vocabulary *vocabulary, const struct container *container, enum piece_kind byte_kind,
                            yalm_error *error);
void vocabulary_close(struct vocabulary *vocabulary);

static inline const uint8_t *vocabulary_piece(const struct vocabulary *vocabulary, int32_t id, size_t *length)
{
    *length = vocabulary->offsets[id + 1] - vocabulary->offsets[id];
    return vocabulary->bytes + vocabulary->offsets[id];
}

// The normal piece with these bytes; -1: none.
int32_t vocabulary_find(const struct vocabulary *vocabulary, const uint8_t *bytes, size_t length);

static inline int vocabulary_flags(const struct vocabulary *vocabulary, int32_t id)
{
    return vocabulary->flags ? vocabulary->flags[id] : 0;
}

// A tensor that must be there with this type and shape (cols 0: one dimension); NULL with the reason in *error.
const struct tensor *tokenizer_tensor(const struct container *container, const char *name, enum dtype dtype, int64_t rows,
                                      int64_t cols, yalm_error *error);
