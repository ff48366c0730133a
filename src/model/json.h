// A model file's JSON, for which nobody vouches. Beside what json_tree() refuses: duplicate keys, and numbers that a double
// cannot hold.
#pragma once
#include <stdint.h>

#include "util/error.h"
#include "util/json_read.h"

enum {
    JSON_MAX_DEPTH = 16,       // the format needs 4
    JSON_MAX_VALUES = 4 << 20, // a node takes about 100 bytes; a tensor takes 8 nodes, so this is half a million tensors
};

#define JSON_MAX_INTEGER ((int64_t)1 << 53) // exclusive: up to here a double tells all integers apart

// An object, and what to call it when it is wrong.
struct json_object {
    const char *path;  // of the file
    const char *where; // "config.rope"; "" for the outermost
    const cJSON *node;
};

// The whole tree, freed with cJSON_Delete(). The outermost value is an object. `path` is for the error's text.
yalm_status json_parse(cJSON **root, const char *text, size_t length, const char *path, yalm_error *error);

// Each refuses by name what is missing or of another type or out of its range, and leaves the value alone then.
yalm_status json_get_object(struct json_object *value, const struct json_object *parent, const char *key, const char *where,
                            yalm_error *error);
yalm_status json_get_array(const cJSON **value, const struct json_object *object, const char *key, yalm_error *error);
yalm_status json_get_string(const char **value, const struct json_object *object, const char *key, yalm_error *error);
yalm_status json_get_bool(bool *value, const struct json_object *object, const char *key, yalm_error *error);
yalm_status json_get_integer(int64_t *value, const struct json_object *object, const char *key, int64_t min, int64_t max,
                             yalm_error *error);
yalm_status json_get_number(double *value, const struct json_object *object, const char *key, double min, double max,
                            yalm_error *error);

bool json_has(const struct json_object *object, const char *key);
// Refuses members that are not among keys[0..n_keys).
yalm_status json_only(const struct json_object *object, const char *const *keys, int n_keys, yalm_error *error);

// True where the number is an integer in [min, max], with |min|, |max| < JSON_MAX_INTEGER.
bool json_integer_in(const cJSON *number, int64_t min, int64_t max, int64_t *value);

// A string of the file, for an error's text: printable ASCII, short.
struct json_shown {
    char text[64];
};
struct json_shown json_show(const char *string);
