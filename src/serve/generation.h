// What a request says of how its texts are to be made: the fields that all of the APIs share.
#pragma once
#include "serve/server.h"

enum { MAX_CHOICES = 16, MAX_PROMPTS = 128, MAX_BIASES = 4096 };

// Reads sampling, seed, stop strings and the like from the request's JSON into a new request->how, without prompts;
// max_tokens is the context's where the request does not say. `stop` names the field of stop strings. False where it has been
// refused.
bool generation_read(struct request *request, const char *stop);

// The fields of sampling, as they were read or stand by default.
void generation_add_sampling(struct buffer *out, const yalm_sampling *sampling);

// Appends a prompt of text, with yalm_tokenize()'s flags. A text that spells the token that begins one gets no second.
bool generation_add_text(struct request *request, const char *text, size_t length, int flags);
// Appends a prompt of token ids, and takes them.
bool generation_add_prompt(struct request *request, int32_t *ids, size_t n);
// Appends a text's tokens to a sequence, which begins with the model's bos token, and leaves room for `room` more.
bool generation_extend(struct request *request, struct prompt *sequence, const char *text, int flags, size_t room);
// Appends what `prompt` holds: a string, token ids (among which strings may stand), or a list of either.
bool generation_read_prompts(struct request *request);
// Refuses prompts that leave no room in the context. max_tokens becomes what the context holds, where that was left open (-1)
// or is less.
bool generation_fit(struct request *request);

// Reads response_format, json_schema and grammar: at most one of them. A grammar that is there already stays.
bool generation_read_format(struct request *request);
// Takes a grammar in its notation, which it frees.
bool generation_set_grammar(struct request *request, char *text, size_t length);

// Makes the tasks and hands them to the engine. The answer is a stream of events where `stream`.
void generation_start(struct request *request, bool stream);

// The token's own bytes.
const char *token_bytes(const yalm_model *model, int32_t token, size_t *length);
// What a token's text is called where it is told: its bytes, or "bytes:\xe2\x80" where they are no whole characters.
void token_text(struct buffer *out, const yalm_model *model, int32_t token);
