// See body.h.
#include "serve/body.h"

#include <math.h>
#include <string.h>

#include "util/json_read.h"

bool body_parse(struct request *request)
{
    struct json_fault fault;
    const char *text = request->body.at ? request->body.at : "";
    request->json = json_tree(text, request->body.length, BODY_MAX_DEPTH, BODY_MAX_VALUES, &fault);
    if (request->json == NULL && fault.what == NULL)
        return request_fail(request, 503, "out of memory for the body");
    if (request->json == NULL)
        return request_fail(request, 400, "the body is no JSON: %s, at byte %zu", fault.what, fault.at);
    if (!cJSON_IsObject(request->json))
        return request_fail(request, 400, "the body is JSON, but not an object");
    return true;
}

cJSON *body_parse_text(const char *text, size_t length)
{
    struct json_fault fault;
    return json_tree(text, length, BODY_MAX_DEPTH, BODY_MAX_VALUES, &fault);
}

enum { IS_READ = 1 << 16 }; // beside cJSON's own bits of a value's type

const cJSON *body_member(const cJSON *object, const char *key)
{
    cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);
    if (member && !(member->type & IS_READ))
        member->type |= IS_READ;
    return cJSON_IsNull(member) ? NULL : member;
}

const char *body_text(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : "";
}

bool body_is(const cJSON *item, const char *word)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

cJSON *body_take(struct request *request, const char *key)
{
    cJSON *member = cJSON_DetachItemFromObjectCaseSensitive(request->json, key);
    if (!cJSON_IsNull(member))
        return member;
    cJSON_Delete(member);
    return NULL;
}

void body_drop(struct request *request, const char *const *keys)
{
    for (; *keys; keys++) {
        cJSON *member = body_take(request, *keys);
        if (member)
            request_warn(request, "%s", *keys);
        cJSON_Delete(member);
    }
}

void body_rename(struct request *request, const char *key, const char *name)
{
    cJSON *member = cJSON_GetObjectItemCaseSensitive(request->json, name) ? NULL : body_take(request, key);
    if (member)
        cJSON_AddItemToObject(request->json, name, member);
    if (member)
        body_call(request, name, key);
}

void body_call(struct request *request, const char *name, const char *said)
{
    for (int i = 0; i < MAX_RENAMED; i++)
        if (request->renamed[i].name == NULL) {
            request->renamed[i].name = name;
            request->renamed[i].said = said;
            return;
        }
}

const char *body_said(const struct request *request, const char *name)
{
    for (int i = 0; i < MAX_RENAMED && request->renamed[i].name; i++)
        if (strcmp(request->renamed[i].name, name) == 0)
            return request->renamed[i].said;
    return name;
}

static bool asks_for_something(const cJSON *member)
{
    static const char *const silent[] = {"model",         "user",  "metadata",         "service_tier",
                                         "keep_alive",    "store", "prompt_cache_key", "safety_identifier",
                                         "cache_control", "stream"}; // change no text
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strcmp(member->string, silent[i]) == 0)
            return false;
    return !(cJSON_IsNull(member) || cJSON_IsFalse(member) || (cJSON_IsNumber(member) && member->valuedouble == 0) ||
             (cJSON_IsString(member) && *member->valuestring == 0) ||
             ((cJSON_IsArray(member) || cJSON_IsObject(member)) && member->child == NULL));
}

void body_warn_of_unread(struct request *request)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, request->json)
    {
        if (!(member->type & IS_READ) && asks_for_something(member))
            request_warn(request, "%.60s", member->string);
    }
}

bool body_is_integer(const cJSON *item, int64_t min, int64_t max, int64_t *value)
{
    const double number = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(number >= (double)min && number <= (double)max) || number != floor(number))
        return false;
    *value = (int64_t)number;
    return true;
}

bool body_integer(struct request *request, const cJSON *object, const char *key, int64_t min, int64_t max, int64_t *value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL || body_is_integer(member, min, max, value))
        return true;
    return request_fail(request, 400, "'%s': expected an integer from %lld to %lld", body_said(request, key), (long long)min,
                        (long long)max);
}

bool body_number(struct request *request, const cJSON *object, const char *key, double min, double max, float *value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsNumber(member) || !(member->valuedouble >= min && member->valuedouble <= max))
        return request_fail(request, 400, "'%s': expected a number from %g to %g", body_said(request, key), min, max);
    *value = (float)member->valuedouble;
    return true;
}

bool body_bool(struct request *request, const cJSON *object, const char *key, bool *value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsBool(member))
        return request_fail(request, 400, "'%s': expected true or false", body_said(request, key));
    *value = cJSON_IsTrue(member);
    return true;
}

bool body_string(struct request *request, const cJSON *object, const char *key, const char **value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsString(member))
        return request_fail(request, 400, "'%s': expected a string", body_said(request, key));
    *value = member->valuestring;
    return true;
}

bool body_refuse(struct request *request, const cJSON *object, const char *key, const char *why)
{
    if (body_member(object, key) == NULL)
        return true;
    return request_fail(request, 400, "'%s': %s", body_said(request, key), why);
}
