// The text of tokens as they come: whole characters, up to a stop string, to standard output or to whoever wants it.
#pragma once
#include "cli/stop.h"

struct text_out {
    const yalm_model *model;
    struct stop_filter filter; // its `found` says that a stop string has come
    bool special;              // control tokens are spelled
    // Takes the text; NULL: output(). What it returns other than YALM_OK ends the text.
    yalm_status (*take)(void *context, const char *bytes, size_t length, yalm_error *error);
    void *context;

    yalm_stream stream; // `started` in the middle of a text
    bool any;           // text has gone out
    char last_byte;     // of it
};

yalm_status text_out_token(struct text_out *out, int32_t token, yalm_error *error);
// Bytes that are no generated text: stop strings are not looked for.
yalm_status text_out_bytes(struct text_out *out, const char *bytes, size_t length, yalm_error *error);
// What was held back goes out, unless it begins a stop string that was found.
yalm_status text_out_end(struct text_out *out, yalm_error *error);
