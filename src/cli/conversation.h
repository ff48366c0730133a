// A conversation: messages as a chat template takes them, and as a file keeps them.
#pragma once
#include <cjson/cJSON.h>

#include "cli/options.h"

struct conversation {
    cJSON *messages; // an array of {"role", "content"}, owned
};

yalm_status conversation_new(struct conversation *conversation, const char *system,
                             yalm_error *error); // NULL: no system message
void conversation_free(struct conversation *conversation);

yalm_status conversation_add(struct conversation *conversation, const char *role, const char *content, yalm_error *error);
// The model's text (length) as a message, and what it thought before (n_reasoning), where that is apart. Bytes that are no
// characters become U+FFFD: a model may write some, and an answer may be cut off within a character.
yalm_status conversation_add_answer(struct conversation *conversation, const char *text, size_t length, const char *reasoning,
                                    size_t n_reasoning, yalm_error *error);
// YALM_USAGE where the text (length) is not UTF-8, or holds a NUL: no template reads it. `what` names it.
yalm_status conversation_check_text(const char *what, const char *text, size_t length, yalm_error *error);
int conversation_length(const struct conversation *conversation);
const char *conversation_last_role(const struct conversation *conversation); // "" where there are no messages
void conversation_drop_last(struct conversation *conversation);
cJSON *conversation_take_last(struct conversation *conversation); // the caller's, to put back or to delete
void conversation_put_back(struct conversation *conversation, cJSON *message);
// The system message becomes this one; none where the text is empty.
yalm_status conversation_set_system(struct conversation *conversation, const char *text, yalm_error *error);
void conversation_reset(struct conversation *conversation); // to the system message alone

// {"messages": […]}, in JSON. The file appears whole or not at all; what is no file (a device, a pipe) is written to.
yalm_status conversation_save(const struct conversation *conversation, const char *path, yalm_error *error);
// YALM_USAGE where the file holds no such thing; the conversation stays as it was then.
yalm_status conversation_load(struct conversation *conversation, const char *path, yalm_error *error);

// The template's variables: the messages, that an answer is to follow, and the user's own, "NAME=VALUE" with JSON or else a
// text for VALUE. A string that the caller frees; NULL where memory ran out.
char *conversation_variables(const struct conversation *conversation, const struct text_list *own);
