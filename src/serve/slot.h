// A slot: a session, and the task that it works on.
#pragma once
#include "serve/prefixes.h"
#include "serve/task.h"
#include "speculate/draft.h"
#include "speculate/speculate.h"

struct slot {
    yalm_session *session;
    struct prefixes *prefixes;      // the engine's
    struct prefix_place kept;       // what these have of the session's tokens
    struct checkpoints {            // of models with recurrent layers (prefixes.h)
        size_t last;                // tokens up to the last one
        size_t next;                // up to where the prompt's next piece ends for one; 0: for none
        struct prefix_place moving; // the answer's, which moves on with it
    } checkpoints;
    struct task *task;             // NULL: free
    bool taken;                    // its session is another thread's for a while: engine_take_slot()
    double used;                   // when it was last
    struct speculator *speculator; // NULL: nothing is guessed. It knows earlier conversations, too
    struct draft *draft;           // NULL: none
};

yalm_status slot_open(struct slot *slot, const yalm_model *model, const yalm_session_options *options, yalm_error *error);
yalm_status slot_speculate(struct slot *slot, const yalm_model *draft, yalm_error *error);
void slot_close(struct slot *slot);

// The free slot that is best for the prompt: the one that can go on from most of its beginning, by itself or with what is kept,
// unless that is little of either; then the one that was used longest ago. NULL where none is free.
struct slot *slot_choose(struct slot *slots, int n_slots, const struct prompt *prompt, bool reuse);
bool slot_is_free(const struct slot *slot);
void slot_begin(struct slot *slot, struct task *task);

// generator_next() of its task, whose `finish` it sets; what is kept of the prompt need not be read.
yalm_status slot_next(struct slot *slot, int piece, yalm_error *error);
// Once what that left pending has been evaluated: pages that are whole now are kept.
void slot_keep(struct slot *slot);
