// A model: the mapped file, and all that is read from it when it is opened. Immutable from then on.
#pragma once
#include "engine/backend.h"
#include "model/share.h"
#include "text/tokenizer.h"

struct chat;

struct yalm_model {
    struct container container;
    struct model_config config;
    struct model_weights weights;
    struct model_config mtp_config; // of the head that guesses, where config.mtp.there (model/mtp.h)
    struct model_weights mtp_weights;
    struct tokenizer *tokenizer; // NULL: token ids only
    struct chat *chat;
    yalm_model_info info;
    char *codebooks_path;                         // codebook_default_path()
    struct shared weights_copy, mtp_copy, of_cpu; // all that ever changes

    yalm_group *group;        // NULL: this process computes all of it
    struct model_share share; // what it computes of a group's model
};

// Whether n ranks can share it: YALM_USAGE, with how many could, where a rank would have nothing to do. Reads no weight.
yalm_status share_check(const struct model_config *config, const struct model_weights *weights, int n_ranks, yalm_error *error);

// A rank's share of the model, that of the group it was opened with. Rank 0 sees to it that the others take theirs of the same
// model.
yalm_status model_take_share(yalm_model *model, yalm_error *error);
yalm_status model_share_out(yalm_model *model, yalm_error *error);
