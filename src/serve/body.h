// Reading a request's JSON. Each reader answers false after it has refused the request in words that name the field; an
// absent field, or a null, leaves the value alone.
#pragma once
#include "serve/request.h"

enum { BODY_MAX = 16 << 20, BODY_MAX_VALUES = 1 << 20, BODY_MAX_DEPTH = 64, BODY_MAX_STOPS = 16, BODY_MAX_STOP = 1024 };

// The body as an object in request->json. Refused: what json_tree() refuses.
bool body_parse(struct request *request);
// JSON within a string of the body, under the same limits; the caller's. NULL where it is none.
cJSON *body_parse_text(const char *text, size_t length);

// The member, or NULL where it is absent or null. It counts as read from then on.
const cJSON *body_member(const cJSON *object, const char *key);
// A string's text, or ""; whether it is this word.
const char *body_text(const cJSON *item);
bool body_is(const cJSON *item, const char *word);
// The body's member, which is the caller's from then on; NULL where it is absent or null.
cJSON *body_take(struct request *request, const char *key);
// Drops members of an inner form, which the API's own ones become, and names them in the answer's warning. keys: up to NULL.
void body_drop(struct request *request, const char *const *keys);
// The body's member gets another name; one that has that name already stays. Errors go on to say the first.
void body_rename(struct request *request, const char *key, const char *name);
void body_call(struct request *request, const char *name, const char *said); // errors say another name
const char *body_said(const struct request *request, const char *name);
// Names the members that nobody has read, and that ask for something, in the answer's warning.
void body_warn_of_unread(struct request *request);
// Whether it is an integer of this range, which *value becomes.
bool body_is_integer(const cJSON *item, int64_t min, int64_t max, int64_t *value);
bool body_integer(struct request *request, const cJSON *object, const char *key, int64_t min, int64_t max, int64_t *value);
bool body_number(struct request *request, const cJSON *object, const char *key, double min, double max, float *value);
bool body_bool(struct request *request, const cJSON *object, const char *key, bool *value);
bool body_string(struct request *request, const cJSON *object, const char *key, const char **value);
// Refuses the request where the member is there, and says why.
bool body_refuse(struct request *request, const cJSON *object, const char *key, const char *why);
