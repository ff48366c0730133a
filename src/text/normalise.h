// Normalises a text before it is cut into words, by the steps that the file lists (docs/format.md, "normalizers").
#pragma once
#include "model/json.h"
#include "text/char_map.h"
#include "text/pattern.h"

enum { MAX_NORMALISE_STEPS = 16 };

enum normalise_kind {
    NORMALISE_NFC,
    NORMALISE_NFD,
    NORMALISE_NFKC,
    NORMALISE_NFKD,
    NORMALISE_LOWERCASE,
    NORMALISE_STRIP_ACCENTS,
    NORMALISE_STRIP,
    NORMALISE_PREPEND,
    NORMALISE_REPLACE,
    NORMALISE_MAP,
    NORMALISE_KINDS
};

struct normalise_step {
    enum normalise_kind kind;
    bool left, right;         // of strip
    char *text;               // what is put before the text, or into each match's place
    struct patterns *pattern; // of replace: one
    struct char_map map;
};

struct normaliser {
    struct normalise_step steps[MAX_NORMALISE_STEPS]; // (n)
    int n;
};

struct bytes {
    uint8_t *data; // (n)
    size_t n, capacity;
};

bool bytes_add(struct bytes *bytes, const void *data, size_t n); // false: no memory

// Reads the tokenizer's member `normalizers`; without one there are no steps.
yalm_status normaliser_open(struct normaliser *normaliser, const struct json_object *facts, yalm_error *error);
void normaliser_close(struct normaliser *normaliser);

// text[0..length), any bytes, as the steps make it; *result is the caller's to free. Bytes that are no characters stay as they
// are.
yalm_status normalise(const struct normaliser *normaliser, const uint8_t *text, size_t length, struct bytes *result,
                      yalm_error *error);
