// Text in the middle of a text (FIM), by the tokens of the model's own vocabulary.
#pragma once
#include "serve/generation.h"

bool fim_is_known(const yalm_model *model);
// Makes a prompt of the text before and behind the wanted one, and of its beginning. extra: files beside it, a
// list of {"filename", "text"}, or NULL. False where the request has been refused.
bool fim_prompt(struct request *request, const char *before, const char *behind, const char *begun, const cJSON *extra);
