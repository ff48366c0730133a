// A task: one sequence of tokens that the engine reads and continues. A request has one for each of its prompts and choices.
#pragma once
#include "generate/generator.h"
#include "serve/calls.h"
#include "serve/request.h"

enum { MAX_STOPS = 16, MAX_TOP = 20 };

// What all tasks of a request share.
struct generation {
    struct prompt {
        int32_t *ids; // (n), owned
        size_t n;
    } * prompts; // (n_prompts), owned
    int n_prompts, n_choices;

    struct generator_options options; // its biases are owned; max_tokens is no more than the context holds
    bool fills_context;               // max_tokens is what the context had left
    const char *stops[MAX_STOPS];     // options.stops: texts of the request's JSON
    uint64_t seed;                    // of the first choice; each further one's is one more
    struct grammar *grammar;          // that the texts follow, owned; NULL: none
    const int32_t *marks;             // (n_marks) control tokens that it may be written with
    int n_marks;
    struct speech_calls calls; // options.calls
    struct held_calls held;    // options.held
    struct kept_grammar *kept; // what `held` takes its grammar from, to be released; NULL: none
    int64_t slot;              // that it waits for; -1: any
    bool reuse;                // may begin with what a session holds
};

// The engine's thread alone touches a task between engine_submit() and the last call of progress().
struct task {
    struct request *request;
    int prompt, choice;
    struct task *next_choice; // of the same prompt: begins when this one is over
    struct task *next;        // in the queue

    struct generator generator;
    const char *finish; // "stop", "length"; NULL: goes on
    bool over;          // and progress() knows

    struct sent { // of it to the client
        bool begun;
        size_t text, scores, offset; // bytes, tokens, and the characters that they spell
        struct told told;            // parts of the text
    } sent;
};
