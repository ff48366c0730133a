// The tree of a strict JSON text, and its members by name and type.

#include "model/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct json_shown json_show(const char *string)
{
    struct json_shown shown;
    size_t n = 0;
    for (; n < sizeof shown.text - 4 && string[n]; n++)
        shown.text[n] = string[n] >= 0x20 && string[n] < 0x7f ? string[n] : '?';
    strcpy(shown.text + n, string[n] ? "..." : "");
    return shown;
}

// ------------------------------------------------------------------------------------------ the tree

static const char *type_name(const cJSON *node)
{
    return cJSON_IsObject(node)   ? "an object"
           : cJSON_IsArray(node)  ? "an array"
           : cJSON_IsString(node) ? "a string"
           : cJSON_IsNumber(node) ? "a number"
           : cJSON_IsBool(node)   ? "a bool"
                                  : "null";
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// By sorting: an object may have millions of members.
static yalm_status unique_keys(const cJSON *object, const char *path, yalm_error *error)
{
    enum { FEW = 32 };
    const char *few[FEW];
    size_t n = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        n++;
    const char **keys = n <= FEW ? few : malloc(n * sizeof *keys);
    if (!keys)
        return error_set(error, YALM_NO_MEMORY, "%s: metadata: no memory for %zu keys", path, n);
    size_t i = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        keys[i++] = c->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    yalm_status status = YALM_OK;
    for (i = 1; i < n && status == YALM_OK; i++)
        if (!strcmp(keys[i - 1], keys[i]))
            status = error_set(error, YALM_BAD_MODEL, "%s: metadata: key '%s' appears twice in one object", path,
                               json_show(keys[i]).text);
    if (keys != few)
        free(keys);
    return status;
}

// Recursion is as deep as the text's nesting, which json_tree() bounds.
static yalm_status check_tree(const cJSON *node, const char *path, yalm_error *error)
{
    if (cJSON_IsObject(node)) {
        const yalm_status status = unique_keys(node, path, error);
        if (status != YALM_OK)
            return status;
    }
    for (const cJSON *c = node->child; c; c = c->next) {
        if (cJSON_IsNumber(c) && !isfinite(c->valuedouble))
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: a number too large for a double%s%s", path,
                             c->string ? ": " : "", c->string ? json_show(c->string).text : "");
        if (c->child) {
            const yalm_status status = check_tree(c, path, error);
            if (status != YALM_OK)
                return status;
        }
    }
    return YALM_OK;
}

yalm_status json_parse(cJSON **root, const char *text, size_t length, const char *path, yalm_error *error)
{
    struct json_fault fault;
    *root = NULL;
    cJSON *tree = json_tree(text, length, JSON_MAX_DEPTH, JSON_MAX_VALUES, &fault);
    if (!tree && fault.what == NULL)
        return error_set(error, YALM_NO_MEMORY, "%s: metadata: no memory for its %zu bytes", path, length);
    if (!tree)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: %s, at byte %zu of %zu", path, fault.what, fault.at, length);
    yalm_status status = cJSON_IsObject(tree) ? check_tree(tree, path, error)
                                              : error_set(error, YALM_BAD_MODEL, "%s: metadata: found %s, expected an object",
                                                          path, type_name(tree));
    if (status == YALM_OK)
        *root = tree;
    else
        cJSON_Delete(tree);
    return status;
}

// ------------------------------------------------------------------------------------------ members

static const char *dot(const struct json_object *object)
{
    return *object->where ? "." : "";
}

// The member `key`, for which is_type() holds.
static yalm_status get(const cJSON **value, const struct json_object *object, const char *key,
                       cJSON_bool (*is_type)(const cJSON *node), const char *expected, yalm_error *error)
{
    *value = cJSON_GetObjectItemCaseSensitive(object->node, key);
    if (!*value)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s%s%s' is missing", object->path, object->where, dot(object),
                         key);
    if (!is_type(*value))
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s%s%s': found %s, expected %s", object->path, object->where,
                         dot(object), json_show((*value)->string).text, type_name(*value), expected);
    return YALM_OK;
}

yalm_status json_get_object(struct json_object *value, const struct json_object *parent, const char *key, const char *where,
                            yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, parent, key, cJSON_IsObject, "an object", error);
    if (status != YALM_OK)
        return status;
    *value = (struct json_object){parent->path, where, node};
    return YALM_OK;
}

yalm_status json_get_array(const cJSON **value, const struct json_object *object, const char *key, yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, object, key, cJSON_IsArray, "an array", error);
    if (status != YALM_OK)
        return status;
    *value = node;
    return YALM_OK;
}

yalm_status json_get_string(const char **value, const struct json_object *object, const char *key, yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, object, key, cJSON_IsString, "a string", error);
    if (status != YALM_OK)
        return status;
    *value = node->valuestring;
    return YALM_OK;
}

yalm_status json_get_bool(bool *value, const struct json_object *object, const char *key, yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, object, key, cJSON_IsBool, "a bool", error);
    if (status != YALM_OK)
        return status;
    *value = cJSON_IsTrue(node);
    return YALM_OK;
}

bool json_integer_in(const cJSON *number, int64_t min, int64_t max, int64_t *value)
{
    // The node's double, not its int: that one is cut to int's range without a word.
    if (!cJSON_IsNumber(number) || !(fabs(number->valuedouble) < (double)JSON_MAX_INTEGER))
        return false;
    const int64_t integer = (int64_t)number->valuedouble;
    if ((double)integer != number->valuedouble || integer < min || integer > max)
        return false;
    *value = integer;
    return true;
}

yalm_status json_get_integer(int64_t *value, const struct json_object *object, const char *key, int64_t min, int64_t max,
                             yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, object, key, cJSON_IsNumber, "an integer", error);
    if (status != YALM_OK)
        return status;
    if (!json_integer_in(node, min, max, value))
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s%s%s': found %.17g, expected an integer from %lld to %lld",
                         object->path, object->where, dot(object), key, node->valuedouble, (long long)min, (long long)max);
    return YALM_OK;
}

yalm_status json_get_number(double *value, const struct json_object *object, const char *key, double min, double max,
                            yalm_error *error)
{
    const cJSON *node;
    const yalm_status status = get(&node, object, key, cJSON_IsNumber, "a number", error);
    if (status != YALM_OK)
        return status;
    if (!(node->valuedouble >= min && node->valuedouble <= max))
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s%s%s': found %g, expected a number from %g to %g",
                         object->path, object->where, dot(object), key, node->valuedouble, min, max);
    *value = node->valuedouble;
    return YALM_OK;
}

bool json_has(const struct json_object *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object->node, key) != NULL;
}

yalm_status json_only(const struct json_object *object, const char *const *keys, int n_keys, yalm_error *error)
{
    for (const cJSON *c = object->node->child; c; c = c->next) {
        bool known = false;
        for (int i = 0; i < n_keys && !known; i++)
            known = !strcmp(c->string, keys[i]);
        if (!known)
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s%s%s' is not known to this version", object->path,
                             object->where, dot(object), json_show(c->string).text);
    }
    return YALM_OK;
}
