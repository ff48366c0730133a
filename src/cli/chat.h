// A conversation with a model: what mode chat keeps from turn to turn.
#pragma once
#include "cli/cli.h"
#include "cli/conversation.h"
#include "cli/reasoning.h"
#include "cli/speculation.h"
#include "cli/text_grammar.h"

struct answered {            // what the last answer took
    size_t n_prompt, n_kept; // tokens of the whole conversation, and how many of them the session had evaluated already
    int64_t n_generated;
    double prefill_seconds, decode_seconds;
    const char *why; // it ended
};

struct chat_session {
    const struct options *options;
    const yalm_model *model;
    yalm_session *session; // NULL where it could not be opened again
    uint64_t seed;         // of the next session
    struct conversation conversation;
    struct speculation speculation;
    struct text_grammar grammar; // of the answers
    unsigned forms;              // of what the model writes: speech_marks() of its template
    struct reasoning reasoning;
    struct answered turn;
    bool begun; // the session has read
};

yalm_status chat_open(struct chat_session *chat, yalm_error *error);
void chat_close(struct chat_session *chat);

// Has the model answer the conversation as it is, shows the answer while it comes and adds it. Only what is new since the
// last answer is evaluated. YALM_INTERRUPTED after ^C: what was written until then is kept as the answer. On another error
// the conversation is as it was.
yalm_status chat_answer(struct chat_session *chat, yalm_error *error);
