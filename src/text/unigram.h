// Unigram (Kudo, arXiv 1804.10959): a word becomes the pieces whose scores have the greatest sum.
#pragma once
#include "text/merge.h"

struct unigram_work { // kept from word to word; zero-initialise, free the nodes at the end
    struct unigram_node *nodes;
    size_t capacity;
};

// Appends the ids of word[0..length). A character without a piece is `unknown`, and so is a run of them, as one token. False:
// no memory.
bool unigram_word(struct ids *ids, struct unigram_work *work, const struct merges *scores, const struct vocabulary *vocabulary,
                  int32_t unknown, const uint8_t *word, size_t length);
