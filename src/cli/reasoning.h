// What a model thinks before it answers, told from the answer while it streams, in whatever form its chat template has
// (speech/speech.h).
#pragma once
#include "cli/options.h"
#include "speech/speech.h"

struct reasoning {
    bool hidden, coloured; // how to show it: not at all, or dim; else between <think> and </think>
    yalm_status (*write)(const char *bytes, size_t length, yalm_error *error);

    // Zeros at the beginning of an answer.
    struct told told;
    bool inside; // of both, reasoning was shown last
    char last;   // byte that was written; 0: none yet
};

// Shows what is new of the answer. whole: nothing will follow; then it ends with a line.
yalm_status reasoning_show(struct reasoning *reasoning, const struct speech *speech, bool whole, yalm_error *error);
