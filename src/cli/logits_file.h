// Logits of a whole text in a file: raw little-endian float32, (n_tokens, n_vocab), row t after the tokens 0 … t.
#pragma once
#include <stdio.h>

#include "cli/options.h"

// Compares a model's logits with those of a file (Kullback-Leibler divergence of the file's distribution from ours).
struct divergence {
    const char *path;  // borrowed
    FILE *file;        // NULL: none
    float *base;       // (n_vocab), owned
    double *kl;        // (n_rows), owned
    int64_t n_rows, n; // expected, seen
    int64_t same_top;
    int64_t n_predicted;         // rows whose next token is known
    double ratio, ratio_squares; // of these: sums of ln p_file − ln p of that token, and of its square
    int n_vocab;
};

// YALM_USAGE where the file's size is not that of (n_rows, n_vocab) floats.
yalm_status divergence_open(struct divergence *divergence, const char *path, int64_t n_rows, int n_vocab, yalm_error *error);
// The next row; next: the token that follows, −1 where it does not count.
yalm_status divergence_add(struct divergence *divergence, const float *logits, int32_t next, yalm_error *error);
// How many times the file's perplexity ours is, and the standard error of that.
double divergence_ratio(const struct divergence *divergence, double *standard_error);
double divergence_mean(const struct divergence *divergence);
double divergence_quantile(struct divergence *divergence, double q); // sorts
void divergence_close(struct divergence *divergence);
