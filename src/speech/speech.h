// What a model has said, taken apart: its reasoning, the text for the reader, and calls of tools.
//
// The same text, longer, gives the same parts, longer: so what has been sent of each part never needs to be taken back. What may become a mark
// ("<tool_c…") is left out until it is decided.
#pragma once
#include "speech/buffer.h"
#include "speech/spans.h"

enum { MAX_CALLS = 32 };

// How a model writes calls, and parts of what it says; its chat template tells.
enum call_form {
    CALLS_HERMES = 1, // <tool_call>{"name": …, "arguments": {…}}</tool_call>: Hermes, Qwen
    CALLS_BARE =
        2, // {"name": …, "parameters" or "arguments": {…}} is all of the text, perhaps behind <|python_tag|>: Llama 3, and small models
    CALLS_MISTRAL = 4,    // [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
    SPEECH_HARMONY = 8,   // messages with a channel each: harmony.h
    SPEECH_BRACKETS = 16, // [THINK]…[/THINK]
    SPEECH_GEMMA = 32,    // channels and calls of Gemma 4: gemma.h
};

// The forms of calls that a template names: a set of enum call_form.
unsigned speech_forms(const char *chat_template);
// Those that its texts have with tools or without: control tokens spell them.
unsigned speech_marks(const char *chat_template);
// The mark that ends the reasoning which the prompt's end has begun; NULL: it has begun none.
const char *speech_reasoning_end(const char *prompt, size_t length);

struct speech {
    struct buffer reasoning, content; // owned
    struct call {
        struct span name, arguments; // the latter: JSON as it was written, so far
        bool whole;
        struct buffer json; // owned: arguments that were written otherwise
    } calls[MAX_CALLS];
    int n_calls;
};

// Takes text[0..length) apart. reasoning_end: as above. forms: what to look for, calls and marks; 0: nothing. whole: nothing will follow. The spans
// point into the text, or into a call's json.
void speech_read(struct speech *speech, const char *text, size_t length, const char *reasoning_end, unsigned forms, bool whole);
void speech_free(struct speech *speech);
