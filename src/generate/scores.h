// Log probabilities of tokens, among all tokens before sampling changes any.
#pragma once
#include "yalm.h"

struct score {
    int32_t token;         // -1: none, of a list of likeliest ones that is shorter
    float log_probability; // NaN: nothing came before it
};

struct scores {
    struct score *list;   // (n), owned
    struct score *likely; // (n, n_likely), owned: the likeliest tokens in each one's place
    size_t n, room;
};

// Scores `token` by the logits (n_vocab) of its place; NULL: there are none. False where memory ran out.
bool scores_add(struct scores *scores, int n_likely, int32_t token, const float *logits, int n_vocab);
void scores_free(struct scores *scores);
