// Byte-pair encoding of one word: neighbours are merged, the best pair first and the leftmost of equals, until none is
// left (Sennrich et al., 2016). A heap and a linked list: n log n for n symbols, so a word may be a megabyte.
#pragma once
#include "text/vocabulary.h"

enum merge_order {
    MERGE_BY_RANK,  // a list of pairs, best first: what tokenizer.json has
    MERGE_BY_SCORE, // any two neighbours that together are a piece, highest score first: what SentencePiece does
    MERGE_UNIGRAM   // none: the pieces with the greatest sum of scores (unigram.h)
};

struct merge_rule {
    uint32_t left, right; // ids; left EMPTY_RULE: an empty slot
    uint32_t rank;
    int32_t result;
};

struct merges {
    enum merge_order order;
    struct merge_rule *rules; // (mask + 1), a hash table of pairs
    uint32_t mask;
    const float *scores; // (n pieces)
    double least;        // of these
};

// Reads tokenizer.merges or tokenizer.scores; refuses what names absent tokens.
yalm_status merges_open(struct merges *merges, enum merge_order order, const struct vocabulary *vocabulary,
                        const struct container *container, yalm_error *error);
void merges_close(struct merges *merges);

struct ids {       // a growing array
    int32_t *data; // (n)
    size_t n, capacity;
};

bool ids_push(struct ids *ids, int32_t id); // false: no memory

struct merge_work {               // kept from word to word; zero-initialise, end with merge_work_free()
    struct merge_symbol *symbols; // (n_symbols)
    struct merge_candidate *heap; // (n_heap)
    size_t symbol_capacity, heap_capacity;
    size_t n_symbols, n_heap;
};

void merge_work_free(struct merge_work *work);

// Appends the ids of word[0..length). characters: symbols begin as UTF-8 characters (bytes where there is no piece for
// one), else as bytes. False: no memory.
bool merge_word(struct ids *ids, struct merge_work *work, const struct merges *merges, const struct vocabulary *vocabulary,
                bool characters, const uint8_t *word, size_t length);
