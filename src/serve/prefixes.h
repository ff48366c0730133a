// What sequences have evaluated, kept beyond the sessions: a tree of pages of the KV cache.
//
// A page is of PAGE_TOKENS tokens, and the way to it from the root spells all tokens before it, so sequences share the pages
// of a beginning that they have in common. Where memory is used up, the leaf that was used longest ago goes. Who goes on with a
// sequence keeps its place in the tree, so that a token costs the same behind a hundred and behind a hundred thousand. The
// engine's thread alone calls these.
#pragma once
#include "yalm.h"

struct prefixes;

enum { PAGE_TOKENS = 16 };

// For sessions like this one, in at most `bytes` of memory. NULL where nothing is to be kept, memory is short, or such
// sessions have no pages; the other functions welcome that.
struct prefixes *prefixes_open(yalm_session *like, uint64_t bytes);
void prefixes_close(struct prefixes *prefixes);

// Where a sequence stands: the last of its pages that are kept. {0}: before all of them.
struct prefix_place {
    uint64_t key, number; // the page's
};

// Keeps the whole pages of the session's tokens, and moves the place there. Up to `same` these are the tokens that they were
// when the place was there last. What a window has dropped before is left out, with all behind it.
void prefixes_keep(struct prefixes *prefixes, struct prefix_place *place, yalm_session *session, int64_t same);
// Whether more of tokens[0..n) may be kept than up to the place.
bool prefixes_has_more(const struct prefixes *prefixes, const struct prefix_place *place, const int32_t *tokens, size_t n);
// The number of pages that are kept of the beginning of tokens[0..n), for yalm_page_load(): *pages is good until the next call.
size_t prefixes_find(struct prefixes *prefixes, const int32_t *tokens, size_t n, const void *const **pages);

uint64_t prefixes_bytes(const struct prefixes *prefixes); // that are taken now
