// Items of OpenAI's responses, and their tools, as its conversations have them.
#pragma once
#include "serve/request.h"

// Writes the body's "messages". False where the request has been refused.
bool items_to_messages(struct request *request, const cJSON *items, const char *instructions);
// Writes the body's "tools". What a server of OpenAI's would run is left out, and named in the warning.
void items_to_tools(struct request *request, const cJSON *given);
// Whether the tool of this name takes a text in the place of arguments.
bool items_are_custom(const cJSON *tools, const char *name);
