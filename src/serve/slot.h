// A slot: a session, the tokens that it holds, and the task that it works on.
#pragma once
#include "serve/prefixes.h"
#include "serve/task.h"
#include "speculate/draft.h"
#include "speculate/speculate.h"

struct slot {
    yalm_session *session;
    int32_t *tokens; // (context), owned: those at the session's positions
    size_t n_tokens;
    struct prefixes *prefixes;     // the engine's
    struct task *task;             // NULL: free
    double used;                   // when it was last
    struct speculator *speculator; // NULL: nothing is guessed. It knows earlier conversations, too
    struct draft *draft;           // NULL: none

    // What the next evaluation appends.
    const int32_t *pending;
    int n_pending;
    yalm_logits_of which;
    int32_t token; // the pending one, where it was drawn
    bool due;      // pending, and not evaluated yet
};

yalm_status slot_open(struct slot *slot, const yalm_model *model, const yalm_session_options *options, yalm_error *error);
yalm_status slot_speculate(struct slot *slot, const yalm_model *draft, yalm_error *error);
void slot_close(struct slot *slot);

// The free slot that is best for the prompt: the one that holds most of its beginning, unless that is little of either; then the one that was used
// longest ago. NULL where none is free.
struct slot *slot_choose(struct slot *slots, int n_slots, const struct prompt *prompt, bool reuse);
// Begins the task: the session goes back to what it has in common with the prompt.
void slot_begin(struct slot *slot, struct task *task);

// Draws the next token from the session's logits, and makes it pending unless the task ends with it.
yalm_status slot_write(struct slot *slot, const yalm_model *model, yalm_error *error);
// Makes at most `piece` tokens of the prompt pending, behind those that are kept already: other slots may have read them meanwhile.
void slot_read(struct slot *slot, int piece);
// After the evaluation of what was pending.
yalm_status slot_evaluated(struct slot *slot, const yalm_model *model, yalm_error *error);
