// A model: the mapped file, and all that is read from it when it is opened. Immutable from then on.
#pragma once
#include "engine/backend.h"
#include "text/tokenizer.h"

struct chat;

struct yalm_model {
    struct container container;
    struct model_config config;
    struct model_weights weights;
    struct tokenizer *tokenizer; // NULL: token ids only
    struct chat *chat;
    yalm_model_info info;
    char *codebooks_path;               // codebook_default_path()
    struct shared weights_copy, of_cpu; // all that ever changes
};
