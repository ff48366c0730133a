// A pass of the team through a recipe, and what it does at a step. Which steps these are, and all that concerns every one
// alike, is run.c's.
#pragma once
#include "cpu/state.h"

struct pass {
    struct cpu_state *state;
    int64_t run; // its number
    struct batch batch;
    struct input_sums *observed; // NULL: what matrices read is not observed
    int n_turns;                 // 0: the batch is of the state's own session; else its tokens are apart
    struct turn turns[MOST_TURNS];
};

// One member's way through a pass.
struct walk {
    struct cpu_state *s;
    struct member *me;
    const struct pass *pass;
    struct batch batch; // the pass's, or its last token alone
    int narrow, end;    // the first step of the last token alone; the first that is not done
    const float *norm;  // s->h is rmsnorm(x) by this; NULL: it is something else
};

// The rows of a step's buffer.
float *walk_buffer(const struct walk *walk, enum recipe_buffer which);

// One step's op: steps of a run (team.h). x: what it reads.
void walk_perform(const struct walk *walk, const struct step *step, const float *x);
