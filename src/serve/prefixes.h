// What sequences have evaluated, kept beyond the sessions: a tree of pages of the KV cache.
//
// A page is of PAGE_TOKENS tokens, and the way to it from the root spells all tokens before it, so sequences share the pages
// of a beginning that they have in common. Where memory is used up, the leaf that was used longest ago goes. Who goes on with a
// sequence keeps its place in the tree, so that a token costs the same behind a hundred and behind a hundred thousand. The
// engine's thread alone calls these.
//
// Of models with recurrent layers some pages carry a checkpoint: the state that stands behind them. Sequences go on behind
// these alone. A state is as large as keys and values of hundreds or thousands of tokens, so states take at most half of the
// memory. When one more is to be kept, that of least worth goes. Its worth is the number of tokens that it saves: those since
// the checkpoint before it, times LAST_COUNTS for the last one of a conversation, which will go on there. To a state that is
// used the worth of the last one that went is added (GreedyDual: Young, "The k-server dual and loose competitiveness for
// paging", 1994). So states of conversations that are over go, and inside the others what saves little.
#pragma once
#include "yalm.h"

struct prefixes;

enum { PAGE_TOKENS = 16 };

// For sessions like this one, in at most `bytes` of memory. NULL where nothing is to be kept, memory is short, or such
// sessions have no pages; the other functions welcome that.
struct prefixes *prefixes_open(yalm_session *like, uint64_t bytes);
void prefixes_close(struct prefixes *prefixes);
bool prefixes_need_states(const struct prefixes *prefixes); // to go on behind a page

// Where a sequence stands: the last of its pages that are kept. {0}: before all of them.
struct prefix_place {
    uint64_t key, number; // the page's
};

// Keeps the whole pages of the session's tokens, and moves the place there. Up to `same` these are the tokens that they were
// when the place was there last. What a window has dropped before is left out, with all behind it.
void prefixes_keep(struct prefixes *prefixes, struct prefix_place *place, yalm_session *session, int64_t same);
// Makes the place a checkpoint, where the session stands there; in the stead of the one at another place, which is {0} where
// none is to go. True: there is one now.
bool prefixes_keep_state(struct prefixes *prefixes, const struct prefix_place *place, yalm_session *session,
                         const struct prefix_place *instead);
// Whether more of tokens[0..n) may be kept than up to the place.
bool prefixes_has_more(const struct prefixes *prefixes, const struct prefix_place *place, const int32_t *tokens, size_t n);

// What of a text's beginning is kept and can be gone on from, for yalm_page_load(); good until the next call.
struct prefix {
    const void *const *pages; // (n_pages)
    size_t n_pages;
    const void *state; // NULL: none is needed
};
struct prefix prefixes_find(struct prefixes *prefixes, const int32_t *tokens, size_t n);

uint64_t prefixes_bytes(const struct prefixes *prefixes); // that are taken now

// Keeps it all in a file of the folder, whose name says for which model and settings it is; the file appears when all of it is
// written, or not at all. YALM_FAILED where another server has claimed it.
yalm_status prefixes_save(struct prefixes *prefixes, const char *folder, yalm_error *error);
// Claims such a file until prefixes_release(), and takes in what it has, as far as there is memory. YALM_OK also where there is
// no file. YALM_FAILED where it is damaged: what lies before that has been taken in; or where another server has claimed it.
yalm_status prefixes_load(struct prefixes *prefixes, const char *folder, yalm_error *error);
void prefixes_release(struct prefixes *prefixes); // prefixes_close() does it, too
