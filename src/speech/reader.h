// What the readers of all forms share.
//
// A stage reads one thing: a header, a value, blanks. It says which one comes next.
#pragma once
#include "speech/speech.h"

typedef size_t stage(struct speech *speech, struct span text);

// Writes to a part. Blanks at the end of what is written wait for what comes next.
void speech_say(struct speech *speech, struct buffer *part, struct span text);
void speech_keep_blanks(struct speech *speech); // they belong to the part
void speech_drop_blanks(struct speech *speech); // they belong to nobody

// Where the first of the marks begins: wholly (*which is its number), or as far as the text goes (*which is -1). Else the
// text's length, as where nothing will follow that could make it whole.
size_t speech_find(const struct speech *speech, struct span text, const char *const *marks, int n, int *which);

// From here on the text may be a call, or turn out to be none, and be text as it stands.
void speech_begin_call(struct speech *speech, stage *next);
struct call *speech_call(struct speech *speech); // the one that is read
void speech_tell_call(struct speech *speech);    // it is one
size_t speech_no_call(struct speech *speech);    // it is none, and all that follows is text, too

stage harmony_header, gemma_text; // where texts of these forms begin
stage speech_text, speech_first;  // text, and where it may begin with a call that has no mark
