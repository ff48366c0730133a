// The head that guesses one token further, as a model of one layer: it shares the embedding and the classifier, and has a cache
// of its own.
#pragma once
#include "model/weights.h"

struct model_config mtp_config_of(const struct model_config *model);
// Points into the model's.
struct model_weights mtp_weights_of(const struct model_weights *weights, const struct model_config *model);
