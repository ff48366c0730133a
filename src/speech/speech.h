// Splits a model's output, while it is being written, into reasoning, text for the reader, and calls of tools.
//
// The parts only grow: what has been sent of one never needs to be taken back. What may become a mark ("<tool_c…") waits until
// that is decided. A token costs the same however long the text is: only the beginning of a mark is looked at twice.
#pragma once
#include "speech/buffer.h"
#include "speech/spans.h"

enum { MAX_CALLS = 32 }; // what follows them is text

// How a model writes calls, and parts of what it says; its chat template tells.
enum call_form {
    CALLS_HERMES = 1, // <tool_call>{"name": …, "arguments": {…}}</tool_call>: Hermes, Qwen
    // {"name": …, "parameters" or "arguments": {…}} is all of the text, perhaps behind <|python_tag|>: Llama 3, and small
    // models
    CALLS_BARE = 2,
    CALLS_MISTRAL = 4,    // [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
    SPEECH_HARMONY = 8,   // messages with a channel each: harmony.c
    SPEECH_BRACKETS = 16, // [THINK]…[/THINK]
    SPEECH_GEMMA = 32,    // channels and calls of Gemma 4: gemma.c
};

// The forms of calls that a template names: a set of enum call_form.
unsigned speech_forms(const char *chat_template);
// Those that its texts have with tools or without: control tokens spell them.
unsigned speech_marks(const char *chat_template);
// The mark that ends the reasoning which the prompt's end has begun; NULL: it has begun none.
const char *speech_reasoning_end(const char *prompt, size_t length);
// The mark behind which the answer itself begins, where a grammar holds; NULL: nothing comes before it.
const char *speech_answer_mark(unsigned forms, const char *reasoning_end);

struct speech {
    struct buffer reasoning, content;  // owned
    struct call {                      // told of from where its arguments begin; Gemma's when it is whole
        struct buffer name, arguments; // owned; the latter is JSON, as far as it has come
        bool whole;
    } calls[MAX_CALLS];
    int n_calls;

    struct reading {
        unsigned forms;
        const char *reasoning_end; // the mark that ends the reasoning; NULL: none has begun
        // Reads on: returns how many of the text's first bytes are dealt with. 0, and the same stage: it waits for more.
        size_t (*stage)(struct speech *speech, struct span text);
        bool ended;           // nothing will follow
        struct buffer text;   // owned: what has come and is not dealt with
        size_t seen;          // of it, the stage has looked at so much
        struct buffer blanks; // owned: they belong to `part`, unless that has ended
        struct buffer *part;  // that was written to last
        bool skip;            // blanks at its beginning are left out
        bool apart;           // an empty line comes before what is written next
        bool said;            // text has come since the last call

        // Of a call: calls[n_calls], or calls[n_calls - 1] once it is told of.
        enum call_form form;
        bool told, has_name, has_arguments;
        bool is_list;         // Mistral's: more may follow
        bool unsure;          // it may turn out to be text, which is
        struct buffer raw;    // owned
        struct buffer *value; // what is read of it; NULL: nothing that is wanted
        size_t key;           // length of the key that the value will have
        int depth;            // of containers that are open
        bool in_string, escaped;
        uint64_t lists;     // Gemma's: bit d: the container at depth d is a list
        bool is_key;        // likewise: the string or word is one
        struct buffer word; // likewise, owned
    } reading;
};

// reasoning_end: as above. forms: what to look for, calls and marks; 0: nothing.
void speech_begin(struct speech *speech, unsigned forms, const char *reasoning_end);
void speech_add(struct speech *speech, const char *text, size_t length);
void speech_end(struct speech *speech);          // what was held back is text after all
bool speech_failed(const struct speech *speech); // memory ran out
void speech_free(struct speech *speech);

// What of a speech has been passed on; zeros at its beginning.
struct told {
    size_t reasoning, content, arguments; // bytes; the last: of the last call
    int n_calls;
};

struct piece {
    enum part { PART_REASONING, PART_TEXT, PART_CALL, PART_ARGUMENTS } part;
    struct span text; // what is new; of a call its name
    int call;         // its number
};

// The next piece that has not been passed on yet. False where there is none.
bool speech_news(const struct speech *speech, struct told *told, struct piece *piece);
