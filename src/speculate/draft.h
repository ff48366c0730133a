// A smaller model with the same vocabulary, which guesses how a text goes on.
#pragma once
#include "yalm.h"

struct draft;

// YALM_USAGE in *error where the two models' tokens are not the same: one line that says which differs. Rows of an embedding
// beyond the tokenizer's pieces, by which sizes of one family differ, do not count.
yalm_status draft_check(const yalm_model *draft, const yalm_model *model, yalm_error *error);
// YALM_USAGE where the session evaluates tokens one by one, so that no guess would help.
yalm_status draft_check_session(yalm_session *session, yalm_error *error);

// A session of its own on the smaller model, which must outlive it; with the options, but for activations. NULL on failure.
struct draft *draft_open(const yalm_model *model, const yalm_session_options *options, yalm_error *error);
void draft_close(struct draft *draft); // NULL is welcome

// What it thinks likeliest, token after token, behind all that the session has evaluated and `token`. Returns how many of n
// it has: fewer where its context ends or it fails, which harms nobody.
int draft_guess(struct draft *draft, const yalm_session *session, int32_t token, int32_t *guesses, int n);

double draft_seconds(const struct draft *draft); // that a guess takes, on average of late; 0: none was made yet
