// The tree of pages, as the files of its own know it: prefixes.c, and prefixes_file.c, which keeps it beyond the server.
#pragma once
#include <stddef.h>

#include "serve/prefixes.h"

struct page {
    struct page *parent;        // NULL: a sequence begins with it
    struct page *chain;         // the next one in its bucket
    struct page *newer, *older; // of leaves
    uint64_t key;               // of all tokens up to its end
    uint64_t number;            // no other page ever has it; not 0
    uint64_t used;              // when it was, as the last one of its sequence; of a page between, perhaps later
    size_t end;                 // tokens up to its end
    int n_children;
    void *state;    // that stands behind it; NULL: not kept
    uint64_t level; // the tree's when that was used
    bool followed;  // another one that carries a state stands behind it: known while the least worth is looked for
    int32_t tokens[PAGE_TOKENS];
    max_align_t rows[];
};

enum { MOST_STATES = 4096, LAST_COUNTS = 8 }; // see prefixes.h

struct prefixes {
    struct prefixes_of { // whose pages and states fit nowhere else
        uint64_t model_checksum, page_bytes, state_bytes;
        uint32_t page_tokens, kv, activations;
        uint32_t exact; // 0; or, of exact bits, a sum over what else these depend on
    } of;
    size_t page_bytes, state_bytes; // state_bytes 0: no layer is recurrent
    size_t n_pages;
    uint64_t most_bytes;
    struct page *states[MOST_STATES]; // (n_states), of pages that carry one
    size_t n_states, most_states;
    uint64_t level;        // the worth of the state that went last
    struct page **buckets; // (n_buckets), a power of two
    size_t n_buckets;
    struct page *newest, *oldest; // of the leaves
    uint64_t clock;
    const void **found; // (context / PAGE_TOKENS)
    size_t context;
    int32_t *tokens; // (context)
    char *claim;     // a file that is locked while this server may write its own, owned; NULL: none
    int claim_file;
};

// The page at a place; NULL: it is not there any more.
struct page *prefixes_page(const struct prefixes *prefixes, const struct prefix_place *place);
// The page of these tokens behind another, or NULL: behind nothing; NULL: it is not there.
struct page *prefixes_child(const struct prefixes *prefixes, const struct page *behind, const int32_t *tokens);
// Leaves go, the oldest first, until so many bytes more may be taken. False where that would be the page `but`.
bool prefixes_make_room(struct prefixes *prefixes, size_t bytes, const struct page *but);
// Whose rows are there, and which carries no state yet. used: when it was; 0: now.
void prefixes_put(struct prefixes *prefixes, struct page *page, struct page *behind, const int32_t *tokens, uint64_t used);
// Becomes the tree's.
void prefixes_put_state(struct prefixes *prefixes, struct page *page, void *state);
