// Text in the middle of a text (FIM), by the tokens of the model's own vocabulary.
#pragma once
#include "serve/generation.h"

bool fim_is_known(const yalm_model *model);
// Makes a prompt of what stands before and behind the text that is wanted, and of how this begins. extra: files beside it, a
// list of {"filename", "text"}, or NULL. False where the request has been refused.
bool fim_prompt(struct request *request, const char *before, const char *behind, const char *begun, const cJSON *extra);
