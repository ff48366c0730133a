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

// Reads a part of the frame, leniently in blanks, and goes on with the next stage. Behind a whole call it may be missing.
size_t speech_follow(struct speech *speech, const char *part, stage *next);
size_t speech_end_call(struct speech *speech); // it is whole
// The marks that calls begin with, at most 4, and what comes where one is found.
int speech_marks_of_calls(const struct speech *speech, const char **marks);
size_t speech_begin_marked(struct speech *speech, const char *mark);
void speech_begin_named(struct speech *speech); // the prompt has the mark

stage harmony_header, gemma_text;            // where texts of these forms begin
stage speech_text, speech_first;             // text, and where it may begin with a call that has no mark
stage speech_literal;                        // a part of the frame
stage members_begin;                         // arguments that are no JSON object: members.c
size_t members_break(struct speech *speech); // what cannot be read follows them
// A literal of JSON, Python or Gemma (whose strings stand between marks, `quote`), as JSON; false: it is none.
bool literal_to_json(struct buffer *out, struct span text, const char *quote);
bool ends_quoted(struct span rest); // the single quote there ends a text
// Members without brackets: key:literal, or key=literal.
bool members_to_json(struct buffer *out, struct span text, const char *quote);

// The tools that may be called, a list as OpenAI's API has it; NULL: whatever is named.
bool tools_have(const cJSON *tools, const struct buffer *name);
// Whether arguments are an object that has what the tool requires, and nothing else.
bool tools_fit(const cJSON *tools, const struct buffer *name, const struct buffer *arguments);
// What the tool's schema says of a member; NULL: nothing.
const cJSON *tools_member(const cJSON *tools, const struct buffer *name, struct span member);
