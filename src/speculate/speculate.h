// Speculation: guesses what a session will be given next, so that several tokens are evaluated for one reading of the
// weights. What comes out is the same to the bit, whatever is guessed: yalm_expect() changes nothing but the time, and the
// caller draws every token as ever.
//
// Guesses are what followed the longest end of the text before (suffix.h); where that promises less, those of a smaller model
// (draft.h), or else of the model's own head, where the session has it open. How many are worth evaluating is decided by what
// is observed: how often matches of such a length went on as before, and what batches of so many tokens took.
#pragma once
#include "yalm.h"

struct speculator;
struct draft;

struct speculation_counts {
    int64_t tokens, evaluations; // appended by speculator_eval(), and what that took: fewer, where guesses came true
    int64_t guessed;             // tokens that were evaluated ahead
};

enum { SPECULATE_TOKENS = 1 << 17 }; // that a speculator knows, some 100 bytes each; then it begins anew

// draft: NULL: none; it stays the caller's. clock: seconds; NULL: the system's. NULL: no memory.
struct speculator *speculator_open(struct draft *draft, double (*clock)(void));
void speculator_close(struct speculator *speculator); // NULL is welcome

// For all of these the speculator may be NULL: then nothing is guessed.

// The session has evaluated these n tokens, with which another text begins, or which continue what has been read.
void speculator_begin(struct speculator *speculator);
void speculator_forget(struct speculator *speculator); // all, as if it were new
void speculator_read(struct speculator *speculator, const int32_t *tokens, size_t n);

// yalm_eval() of one token with logits, faster where the guesses are right.
yalm_status speculator_eval(struct speculator *speculator, yalm_session *session, int32_t token, yalm_error *error);

struct speculation_counts speculator_counts(const struct speculator *speculator);
