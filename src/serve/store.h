// Responses that clients may refer to later: the most recent ones, in memory, until the server ends.
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>

enum { STORE_MAX = 64, STORE_MAX_BYTES = 64 << 20 }; // together; the oldest go

struct store;

struct store *store_open(void); // NULL where memory runs out
void store_close(struct store *store);
// Keeps the response, and the items of its conversation, its own among them. One that is too large alone is not kept.
void store_add(struct store *store, const char *id, const cJSON *response, const cJSON *items);
// Copies, which are the caller's. NULL where there is none of that id.
cJSON *store_response(struct store *store, const char *id);
cJSON *store_items(struct store *store, const char *id);
bool store_remove(struct store *store, const char *id);
