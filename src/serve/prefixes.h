// What sequences have evaluated, kept beyond the sessions: a tree of pages of the KV cache.
//
// A page is of PAGE_TOKENS tokens, and the way to it from the root spells all tokens before it, so sequences share the pages
// of a beginning that they have in common. Where memory is used up, the leaf that was used longest ago goes. The engine's
// thread alone calls these.
#pragma once
#include "yalm.h"

struct prefixes;

enum { PAGE_TOKENS = 16 };

// For sessions like this one, in at most `bytes` of memory. NULL where nothing is to be kept, memory is short, or such
// sessions have no pages; the other functions welcome that.
struct prefixes *prefixes_open(yalm_session *like, uint64_t bytes);
void prefixes_close(struct prefixes *prefixes);

// Keeps the whole pages of the session's tokens. What a window has dropped before is left out, with all behind it.
void prefixes_keep(struct prefixes *prefixes, yalm_session *session);
// The number of pages that are kept of the beginning of tokens[0..n), for yalm_page_load(): *pages is good until the next call.
size_t prefixes_find(struct prefixes *prefixes, const int32_t *tokens, size_t n, const void *const **pages);

uint64_t prefixes_bytes(const struct prefixes *prefixes); // that are taken now
