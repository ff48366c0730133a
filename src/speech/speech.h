// Splits a model's output, while it is being written, into reasoning, text for the reader, and calls of tools.
//
// The parts only grow: what has been sent of one never needs to be taken back. What may become a mark ("<tool_c…") waits until
// that is decided. A token costs the same however long the text is: only the beginning of a mark is looked at twice.
#pragma once
#include <cjson/cJSON.h>

#include "speech/form.h"

enum { MAX_CALLS = 32 }; // what follows them is text

// Marks of the parts that a model tells apart, besides those of its calls; its chat template tells.
enum speech_marks {
    SPEECH_HARMONY = 1,  // messages with a channel each: harmony.c
    SPEECH_BRACKETS = 2, // [THINK]…[/THINK]
    SPEECH_GEMMA = 4,    // channels of Gemma 4: gemma.c
};

// The calls that may come.
struct speech_calls {
    const struct call_form *form;
    const cJSON *tools; // a list as in OpenAI's API: other names are text; NULL: any name will do
    bool begun;         // the prompt's end has begun one: speech_call_begun()
    const char *must;   // NULL: text may come, too; else a call must, of the tool so named, or "": of any
};

// The marks that the template has: a set of enum speech_marks. Control tokens spell them.
unsigned speech_marks(const char *chat_template);
// The mark that ends the reasoning which the prompt's end has begun; NULL: it has begun none.
const char *speech_reasoning_end(const char *prompt, size_t length);
bool speech_call_begun(const struct call_form *form, const char *prompt, size_t length);
// The mark behind which the answer itself begins, where a grammar holds; NULL: nothing comes before it.
const char *speech_answer_mark(unsigned forms, const char *reasoning_end);

struct speech {
    struct buffer reasoning, content;  // owned
    struct call {                      // told of from where its arguments begin, or when it is whole
        struct buffer name, arguments; // owned; the latter is JSON, as far as it has come
        bool whole;
    } calls[MAX_CALLS];
    int n_calls;

    struct reading {
        unsigned forms;
        const char *reasoning_end; // the mark that ends the reasoning; NULL: none has begun
        // Reads on: returns how many of the text's first bytes are dealt with. 0, and the same stage: it waits for more.
        size_t (*stage)(struct speech *speech, struct span text);
        // Stages for a text where all of it may be a call, for text, and for arguments that are no JSON object.
        size_t (*first)(struct speech *speech, struct span text);
        size_t (*rest)(struct speech *speech, struct span text);
        size_t (*members)(struct speech *speech, struct span text);
        bool ended;           // nothing will follow
        struct buffer text;   // owned: what has come and is not dealt with
        size_t seen;          // of it, the stage has looked at so much
        struct buffer blanks; // owned: they belong to `part`, unless that has ended
        struct buffer *part;  // that was written to last
        bool skip;            // blanks at its beginning are left out
        bool apart;           // an empty line comes before what is written next
        bool said;            // text has come since the last call

        const struct speech_calls *calls; // NULL: none may come

        // Of a call: calls[n_calls], or calls[n_calls - 1] once it is told of.
        bool told, whole, has_name, has_arguments;
        bool near, fenced;    // has no mark, or stands behind ```: it must fit the tools
        bool unsure;          // it may turn out to be text, which is
        struct buffer raw;    // owned; or a value between marks, once it is told of
        struct buffer *value; // what is read of it; NULL: nothing that is wanted
        size_t key;           // length of the key that the value will have
        int depth;            // of containers that are open
        bool in_string, escaped;
        char quoted;        // the character that ends the string being read; 1: the form's mark does
        struct buffer word; // owned: a key, or arguments that are not JSON
        // The part of the frame that is read, from where it goes on, and what comes behind; what its last slot has.
        const char *part_begin, *literal;
        size_t (*behind)(struct speech *speech, struct span text);
        char slot[16];
        int slot_length;
    } reading;
};

// reasoning_end: as above. forms: the marks to look for. calls stay the caller's; NULL: none may come.
void speech_begin(struct speech *speech, unsigned forms, const char *reasoning_end, const struct speech_calls *calls);
void speech_add(struct speech *speech, const char *text, size_t length);
// Whether a call has begun with its mark, and may still be none; begun: all that has come of it, in two pieces.
bool speech_call_begins(const struct speech *speech, struct span begun[2]);
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
