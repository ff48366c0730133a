// What a model thinks before it answers, told from the answer while it streams, in whatever form its chat template has (speech/speech.h).
#pragma once
#include "cli/options.h"

struct reasoning {
    bool hidden, coloured; // how to show it: not at all, or dim; else between <think> and </think>
    unsigned forms;        // speech_marks() of the chat template
    yalm_status (*write)(const char *bytes, size_t length, yalm_error *error);

    const char *end;      // the mark that ends what the prompt has begun; NULL: it has begun none
    size_t thought, said; // bytes that were taken of both parts
    bool inside;          // of both, reasoning was shown last
    char last;            // byte that was written; 0: none yet
};

// At the beginning of an answer, whose prompt ends with `prompt`: some templates begin the reasoning themselves.
void reasoning_begin(struct reasoning *reasoning, const char *prompt, size_t length);
// Shows what is new in text (length), which is all of the answer so far. whole: nothing will follow; then it ends with a line.
yalm_status reasoning_show(struct reasoning *reasoning, const char *text, size_t length, bool whole, yalm_error *error);
