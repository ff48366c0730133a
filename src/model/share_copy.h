// Copies of parts of matrices, in every type: see share.h.
#pragma once
#include "model/share.h"

// What a rank has of a matrix's rows, or columns: n spans of the same length, each so much further than the one before.
struct pieces {
    struct share_span span;
    int n, apart;
};

// Copies matrices into `base`; where that is NULL, counts the bytes that they need.
struct copier {
    uint8_t *base;
    size_t used;
    bool mapped; // the file's pages can be given back
};

int pieces_length(struct pieces p);
void *copier_take(struct copier *c, size_t bytes); // at a line of the cache; NULL where bytes are counted
// Pieces of something whose items have `size` bytes; returns where the copy ends.
uint8_t *copy_pieces(uint8_t *to, const uint8_t *from, struct pieces p, size_t size);

// NULL for data where bytes are counted. Columns of bf12 become bf16.
struct matrix copy_rows(struct copier *c, const struct matrix *w, struct pieces rows);
struct matrix copy_cols(struct copier *c, const struct matrix *w, struct pieces cols);
const float *copy_floats(struct copier *c, const float *from, struct pieces pieces); // NULL of NULL
