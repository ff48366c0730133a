// One token's step as one kernel (step.cuh): what makes its phases (plan.cu, phases.cu), and what takes memory and
// launches it (step.cu).
#pragma once
#include "cuda/state.h"
#include "cuda/step/step.cuh"

// The kernel in one of its two forms.
struct step_form {
    // How many blocks a multiprocessor has room for.
    yalm_status (*fits)(size_t shared_bytes, int *blocks, yalm_error *error);
    yalm_status (*start)(const struct step_launch *launch, const struct step_now *now, int n_blocks, size_t shared_bytes,
                         cudaStream_t stream, yalm_error *error);
};
// For what a Llama's steps need, which leaves them the more registers; and for all that phases.cu knows.
extern const struct step_form step_plain, step_whole;

// What a launch is of.
struct step_plan {
    struct step_launch launch; // but for its ring
    struct step_phase *phases; // (n); NULL: they are only counted
    int n;
    size_t n_words;     // what phases hand each other
    size_t layer_bytes; // of the first layer's weights
    int slot_bytes;
    struct query_scale query;
    bool fits; // whether all matrices are such that the kernel multiplies them
};

// Whether the kernel knows all that a recipe does; and whether its plain form does.
bool step_knows(const struct recipe *recipe, bool plain);
// The recipe's steps as phases, to plan->phases where there are such, with their words in `words`. What is counted does not
// depend on types of matrices or addresses.
void step_write_phases(struct step_plan *plan, const struct cuda_state *s, float *words);
// At least as many as a recipe's steps become.
int step_most_phases(const struct recipe *recipe);
