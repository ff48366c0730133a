// What a request says of how its texts are to be made: the fields that all of the APIs share.
#pragma once
#include "serve/server.h"

enum { MAX_CHOICES = 16, MAX_PROMPTS = 128, MAX_BIASES = 4096 };

// Reads sampling, seed, stop strings and the like from the request's JSON into a new request->how, without prompts; max_tokens is the context's where
// the request does not say. False where it has been refused.
bool generation_read(struct request *request);

// Appends a prompt of text: its beginning is marked where the model wants that, and special tokens are read where `special`.
bool generation_add_text(struct request *request, const char *text, size_t length, bool special);
bool generation_add_ids(struct request *request, const cJSON *ids);
// Refuses prompts that leave no room in the context; settles max_tokens where that was left open (-1).
bool generation_fit(struct request *request);

// Makes the tasks and hands them to the engine. The answer is a stream of events where `stream`.
void generation_start(struct request *request, bool stream);

// What a token's text is called where it is told: its bytes, or "bytes:\xe2\x80" where they are no whole characters.
void token_text(struct buffer *out, const yalm_model *model, int32_t token, bool hexadecimal);
