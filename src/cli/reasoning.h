// What a model thinks before it answers, between <think> and </think>, told from the answer while it streams.
#pragma once
#include "cli/options.h"

struct reasoning {
    bool hidden, coloured; // how to show it: not at all, or dim; else as it is
    yalm_status (*write)(const char *bytes, size_t length, yalm_error *error);

    enum { REASONING_BEFORE, REASONING_INSIDE, REASONING_AFTER } where;
    bool blank;    // of the answer nothing has been shown, so that blank lines before it are left out
    char held[16]; // what may be the beginning of a tag
    size_t n_held;
};

// At the beginning of an answer, whose prompt ends with `prompt`: some templates open the tag themselves.
yalm_status reasoning_begin(struct reasoning *reasoning, const char *prompt, size_t length, yalm_error *error);
yalm_status reasoning_show(struct reasoning *reasoning, const char *bytes, size_t length, yalm_error *error);
yalm_status reasoning_end(struct reasoning *reasoning, yalm_error *error);
