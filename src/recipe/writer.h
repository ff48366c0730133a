// A recipe while it is written: each step that is put there adds to its costs, types, traits and widths.
#pragma once
#include "recipe/recipe.h"

struct recipe_writer {
    struct recipe *to; // its steps NULL: they are only counted
    const struct model_config *config;
    const struct layer_weights *w; // the layer's
    int layer;
    const float *norm; // the last one that was counted: neighbours share it
};

// The next step; its layer is the writer's.
void put_step(struct recipe_writer *writer, struct step step);

// The step multiplies by w, too, and adds the bias: nothing where the model has no such matrix.
void step_multiply(struct step *step, const struct matrix *w, const float *bias, enum recipe_buffer to);

unsigned step_norm_trait(const struct model_config *c);

// What a block reads is normalised before it, or, with post_norm, behind the block before.
void step_read_norm(struct step *step, const struct model_config *c, const float *weight, const float *bias);

// x += [rmsnorm](w · in + bias)
void put_add(struct recipe_writer *out, const struct matrix *w, const float *bias, enum recipe_buffer in,
             const float *post_norm, int observed, bool ends_block);

// Where the layer's input of this kind (INPUT_…) is counted when importance is observed.
int observed_input(const struct recipe_writer *out, int which);

// How the layer attends.
struct attending attending_of(const struct recipe_writer *out);
