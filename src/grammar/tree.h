// A vocabulary as trees of bytes, for masks: of the tokens, and of their *tails*, what follows the plain characters that they
// begin with. Within a JSON string all plain characters may come, and lead nowhere else: only the tails are walked, which are
// few.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "grammar/grammar.h"

struct tree_node {
    int32_t child;       // the first of those one byte longer; they stand side by side
    int32_t n_children;  // their bytes differ
    int32_t tokens, end; // the tokens that begin as the node says: from tokens to end - 1 in `tokens`
    int32_t n_tokens;    // the first ones of them, which end here
    uint64_t below[2];   // a bit for each ASCII byte that they have behind it; the last one: for any other byte
    unsigned char byte;  // its last
    bool whole;          // its bytes are plain characters, each of them whole
    bool tails;          // tokens with a tail begin so
};

struct tree {
    struct tree_node *nodes; // (n_nodes) node 0 is the root
    int n_nodes, room;
    int32_t *tokens; // (n_tokens) sorted by their bytes
    int n_tokens;
};

struct token_tree {
    struct tree all, tails;
    // (n_vocab / 64, rounded up) a bit for each token of the trees; of those, for each that begins with a plain character; that
    // has no tail
    uint64_t *known, *begin, *plain;
    int32_t *longest; // (n_longest) tokens of more than TREE_SHORT bytes, the longest first
    int n_longest, n_vocab;
};

enum { TREE_SHORT = GRAMMAR_MANY }; // automaton_near() holds for short tokens
