// Calls of tools as a grammar: in the form that the model knows, with the tools' schemas. In forms that are not JSON a text may
// be any: pattern, length and format are not held there.
#pragma once
#include <cjson/cJSON.h>

#include "speech/form.h"
#include "util/buffer.h"
#include "yalm.h"

struct call_wish {
    const char *chosen; // the one tool that may be called; NULL: any
    bool required;      // nothing else may come
    bool several;       // calls may follow each other
    bool begun;         // the prompt has what begins the first one
};

// The grammar's text, which is the caller's to free(). A schema that cannot be held allows any value, and the tool's name is
// appended to *loosened; but a tool that is `strict` where a call must come is an error.
yalm_status call_grammar_write(const struct call_form *form, const cJSON *tools, const struct call_wish *wish,
                               struct buffer *loosened, char **text, size_t *length, yalm_error *error);
