// Between the files that learn a form of calls.
#pragma once
#include "speech/form.h"

// The form that a template names without showing it: named_forms.c.
bool form_of_channels(struct call_form *form, const char *chat_template); // gpt-oss: harmony.c reads it
void form_by_name(struct call_form *form, const char *chat_template);
// Makes ids slots, and finds the marks.
void form_finish(struct call_form *form);
