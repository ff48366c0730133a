// What --speculate asks for.
#pragma once
#include "cli/options.h"
#include "speculate/draft.h"
#include "speculate/speculate.h"

struct speculation {
    yalm_model *draft_model; // NULL: none
    struct draft *draft;
    struct speculator *speculator; // NULL: nothing is guessed
};

// YALM_USAGE where the option's value is none.
yalm_status speculation_check(const struct options *options, yalm_error *error);
bool speculation_named(const struct options *options);   // the option is neither auto nor off
yalm_mtp speculation_mtp(const struct options *options); // the model's own head
// The draft model that the option names, its vocabulary compared with the model's; *draft NULL: none is named.
yalm_status speculation_draft_model(const struct options *options, const yalm_model *model, yalm_model **draft,
                                    yalm_error *error);
// For one session on the model.
yalm_status speculation_open(struct speculation *speculation, const struct options *options, const yalm_model *model,
                             yalm_session *session, yalm_error *error);
void speculation_close(struct speculation *speculation);
