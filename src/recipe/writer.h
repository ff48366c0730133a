// A recipe while it is written: each step that is put there adds to its costs, types, traits and widths.
#pragma once
#include "recipe/recipe.h"

struct writer {
    struct recipe *to; // its steps NULL: they are only counted
    const struct model_config *config;
    const struct layer_weights *w; // the layer's
    int layer;
    const float *norm; // the last one that was counted: neighbours share it
};

// The next step; its layer is the writer's.
void put_step(struct writer *writer, struct step step);
