// A vocabulary as a tree of bytes, for masks. Within a JSON string most tokens may come as they are: all that is walked there
// is a second tree, of the others.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// The tree's nodes in the order of a walk: one that leads nowhere is left for the node at `end`.
struct tree_node {
    unsigned char byte;
    uint16_t depth;   // bytes from the root, its own counted
    int32_t end;      // the first node that is not below it
    int32_t tokens;   // the first token that begins as the node says, in `tokens`
    int32_t n_tokens; // that end here
    int32_t twin;     // the node of the same bytes in the other tree; -1: none
};

struct tree {
    struct tree_node *nodes; // (n_nodes)
    int n_nodes, room;
    int32_t *tokens; // (n_tokens) sorted by their bytes
    int n_tokens, depth;
};

struct token_tree {
    struct tree all, odd; // odd: tokens that are not plain
    // Plain ones are at most GRAMMAR_PLAIN whole characters that a JSON string has unescaped.
    uint64_t *plain; // (n_vocab / 64, rounded up) a bit for each token
    bool any_plain;
    int n_vocab;
};
