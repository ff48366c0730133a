// Responses that clients may refer to later: the most recent ones, in memory, until the server ends.
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>

struct store;

struct store *store_open(void); // NULL where memory runs out
void store_close(struct store *store);
// Takes the response, whose "id" names it, and the items that it answers; both belong to the store from then on.
void store_add(struct store *store, cJSON *response, cJSON *items);
// Copies, which are the caller's. NULL where there is none of that id.
cJSON *store_response(struct store *store, const char *id);
// All items of the conversation, its answers among them.
cJSON *store_items(struct store *store, const char *id);
bool store_remove(struct store *store, const char *id);
