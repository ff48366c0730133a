// What a model has said, taken apart: its reasoning, the text for the reader, and calls of tools.
//
// The same text, longer, gives the same parts, longer: so what has been sent of each part never needs to be taken back. What may become a mark
// ("<tool_c…") is left out until it is decided.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "serve/buffer.h"

enum { MAX_CALLS = 32 };

// How a model writes calls; its chat template tells.
enum call_form {
    CALLS_HERMES = 1, // <tool_call>{"name": …, "arguments": {…}}</tool_call>: Hermes, Qwen
    CALLS_BARE =
        2, // {"name": …, "parameters" or "arguments": {…}} is all of the text, perhaps behind <|python_tag|>: Llama 3, and small models
    CALLS_MISTRAL = 4, // [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
};

// The forms that a template names: a set of enum call_form.
unsigned speech_forms(const char *chat_template);

struct span {
    const char *at;
    size_t length;
};

struct speech {
    struct span reasoning;
    struct buffer content; // owned
    struct call {
        struct span name, arguments; // the latter: JSON as it was written, so far
        bool whole;
    } calls[MAX_CALLS];
    int n_calls;
};

// Takes text[0..length) apart. reasoning_begun: the prompt has opened the reasoning already. forms: of the calls to look for; 0: none. whole: nothing
// will follow. The spans point into the text.
void speech_read(struct speech *speech, const char *text, size_t length, bool reasoning_begun, unsigned forms, bool whole);
void speech_free(struct speech *speech);
