// A dialogue, as the APIs send it, for the model's chat template.
#pragma once
#include "serve/generation.h"

enum { MAX_MESSAGES = 10000, MAX_TOOLS = 1024 };

enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED };

struct dialogue {
    cJSON *variables;   // of the template, owned
    unsigned forms;     // of marks of parts that may come (speech.h); 0: none
    const cJSON *tools; // the functions that may be called, of `variables` or `allowed`; NULL: none
    cJSON *allowed;     // some of those that the template shows, owned; NULL: all are
    enum tool_choice choice;
    const char *chosen; // the one tool that is to be called, or NULL
    bool cuts;          // the prompt ends where the last message's text does, as the template renders it
    bool goes_on;       // the last message, where it is the assistant's, is the beginning of the answer
};

// Read the request's messages and tools; `to_show`: for a prompt that nobody will answer, so calls need no form that is read.
// False where the request has been refused. dialogue_free() in any case.
bool dialogue_read_openai(struct request *request, struct dialogue *dialogue, bool to_show);
bool dialogue_read_anthropic(struct request *request, struct dialogue *dialogue);
void dialogue_free(struct dialogue *dialogue);

// Renders the template; *text is the caller's to free().
bool dialogue_render(struct request *request, struct dialogue *dialogue, char **text, size_t *length);
// And makes it the prompt of request->how, which gets the form that the answer must have: where the request wants a call, of
// that alone; else what the request asks for, and calls that the model begins are held to the tools' schemas.
bool dialogue_prompt(struct request *request, struct dialogue *dialogue);
bool dialogue_hold_calls(struct request *request, const struct dialogue *dialogue); // for dialogue_prompt(): hold_calls.c
