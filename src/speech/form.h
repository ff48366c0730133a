// How a model writes calls of tools: a frame of literals around the names and the arguments.
//
//     OPENING  BEGIN LEAD name MIDDLE arguments TAIL END  BETWEEN  BEGIN LEAD name … END  CLOSING
//
// LEAD and TAIL are the ends of a JSON object that has both as members; else they are empty. Arguments are a JSON object, or
//
//     members between marks:  KEY_BEGIN key KEY_END text VALUE_END  KEY_BETWEEN  KEY_BEGIN key …
//     members with literals:  key KEY_END literal  KEY_BETWEEN  key KEY_END QUOTE text QUOTE
//
// Nearly every template shows the frame as it renders an assistant's call: form_learn() renders some, and compares.
#pragma once
#include "speech/spans.h"
#include "util/buffer.h"

enum { FORM_MAX_PART = 128, FORM_MAX_KEY = 32 };

enum form_part {
    OPENING,
    BEGIN,
    LEAD,
    MIDDLE,
    TAIL,
    END,
    BETWEEN,
    CLOSING,
    KEY_BEGIN,
    KEY_END,
    VALUE_END,
    KEY_BETWEEN,
    QUOTE,
    N_PARTS
};

// In a part: what differs from call to call.
enum { SLOT_ID = 1, SLOT_NUMBER = 2, SLOT_TYPE = 3 };

struct call_form {
    bool known; // else the model writes no calls, or none that are understood
    enum { ARGUMENTS_JSON, ARGUMENTS_TAGGED, ARGUMENTS_LITERAL } arguments;
    bool is_object;                                           // LEAD begins a JSON object, whose members may come in any order
    bool as_text;                                             // the template takes arguments as a string
    char text_type[16];                                       // what SLOT_TYPE is for a text
    char other_type[16];                                      // and for all else, if the template showed it
    char name_key[FORM_MAX_KEY], arguments_key[FORM_MAX_KEY]; // of the object
    char part[N_PARTS][FORM_MAX_PART];
    char marks[2][FORM_MAX_PART]; // what calls, or one of them, begin with; empty: a call is all of the text
};

// Renders a template with the variables, a JSON object. The text is the caller's to free(); NULL: it refuses them.
typedef char *form_render(void *context, const char *variables);

// Learns the frame from what the template renders, or else, and where `render` is NULL, by what it names.
void form_learn(struct call_form *form, const char *chat_template, form_render *render, void *context);

// Whether a byte may stand in a slot.
static inline bool in_slot(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}
