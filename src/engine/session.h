// A session, as the files of this room know it.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"
#include "engine/mtp.h"
#include "text/sampler.h"

enum { MOST_AHEAD = 15 }; // tokens

struct yalm_session {
    const yalm_model *model;
    yalm_session_options options;          // resolved
    struct kv_policy kv[CONFIG_MAX_KINDS]; // of each kind of layer
    yalm_memory memory;
    atomic_bool cancel;

    const struct backend *backend;
    void *state;
    bool warned;         // by warn_of_cut()
    char machine[768];   // what it runs on, and why not on another device
    char products[2048]; // who multiplies, and the recipe

    int64_t position;   // tokens so far
    int64_t high_water; // positions below it have been written at some time
    int64_t
        floor; // but for 0, positions below it cannot be gone back to: rings were given what the one there sees, and no more
    int64_t settled;  // with options.exact: positions below it are a prompt's
    int32_t *history; // (context): the token at position p is at p % context
    int32_t *recent;  // (context): scratch for the sampler's penalties, oldest first

    float *last_logits; // (vocab_size)
    float *all_logits;  // (all_capacity, vocab_size), taken when first wanted
    size_t all_capacity;
    int n_logits;        // valid after the last evaluation
    const float *logits; // one of the two
    struct sampler sampler;

    // What the caller expects (ahead.c), and what of it has been evaluated: logits + i * vocab_size are those after the i-th of
    // `ahead`, counted from 1.
    int32_t expected[MOST_AHEAD], ahead[MOST_AHEAD];
    int n_expected, n_ahead;
    int row;             // of ahead_logits that the session stands at
    float *ahead_logits; // (MOST_AHEAD + 1, vocab_size), taken when first wanted

    struct mtp *mtp;             // the head that guesses; NULL: none
    struct embedding *embedding; // of yalm_embed(), while it runs: takes the hidden states; else NULL
};

// exact.c. Refuses what has no exact bits.
yalm_status exact_check(const yalm_session_options *options, yalm_error *error);
// Whether the last of the tokens to be evaluated goes alone.
bool exact_alone(const yalm_session *s, yalm_logits_of which);
// Before the session goes on by n tokens of a prompt; and: it goes back to `position`.
void exact_settle(yalm_session *s, int n);
void exact_go_back(yalm_session *s, int64_t position);

// embed.c. Where a batch's hidden states go, and what becomes of them.
float *embed_rows(struct embedding *embedding);
void embed_take(struct embedding *embedding, int n);

// warn.c. Behind each evaluation: tells once where the cache has cut a key or a value.
void warn_of_cut(yalm_session *s);

// ahead.c. Whether the token has been evaluated ahead; where it has been, the session comes to stand behind it.
bool ahead_is(const yalm_session *s, int32_t token);
bool ahead_take(yalm_session *s, int32_t token);
bool ahead_has_logits(const yalm_session *s); // s->logits are of its ahead_logits, those of `row`
// The batch of the token and of those that are expected after it, which come to lie in `tokens`; of one token where nothing is
// expected.
struct batch ahead_batch(const yalm_session *s, int32_t token, int32_t tokens[MOST_AHEAD + 1]);
// Once that has been evaluated, and the session stands behind its first token.
void ahead_keep(yalm_session *s, const struct batch *batch);
void ahead_forget(yalm_session *s);
