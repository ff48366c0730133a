// See body.h.
#include "serve/body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

// cJSON builds a node of some 80 bytes for each value, recursing into each level, and ends strings at a NUL. So values and
// levels are counted, and escaped NULs found, before it sees the text. What is no JSON is left to it.
static const char *scan(const char *text, size_t length)
{
    int depth = 0, values = 1;
    bool in_string = false;
    for (size_t at = 0; at < length;) {
        const int n = utf8_character(text + at, length - at);
        if (n == 0)
            return "is not UTF-8";
        const char byte = text[at];
        if (byte == 0)
            return "holds a NUL";
        if (in_string && byte == '\\') {
            if (length - at >= 6 && memcmp(text + at, "\\u0000", 6) == 0)
                return "holds a NUL, as \\u0000";
            at += at + 1 < length && (text[at + 1] == '"' || text[at + 1] == '\\') ? 2 : 1;
            continue;
        }
        if (byte == '"')
            in_string = !in_string;
        if (!in_string) {
            depth += (byte == '[' || byte == '{') - (byte == ']' || byte == '}');
            values += byte == ',' || byte == '[' || byte == '{';
        }
        if (depth > BODY_MAX_DEPTH)
            return "nests deeper than 64 levels";
        if (values > BODY_MAX_VALUES)
            return "has more than 1048576 values";
        at += (size_t)n;
    }
    return NULL;
}

bool body_parse(struct request *request)
{
    const char *text = request->body.at ? request->body.at : "";
    const char *wrong = scan(text, request->body.length);
    if (wrong)
        return request_fail(request, 400, "the body %s", wrong);
    const char *end = NULL;
    request->json = cJSON_ParseWithLengthOpts(text, request->body.length, &end, false);
    if (request->json == NULL) {
        const size_t at = end ? (size_t)(end - text) : 0;
        return request_fail(request, 400, "the body is no JSON, from byte %zu on", at);
    }
    for (; end < text + request->body.length; end++)
        if (strchr(" \t\r\n", *end) == NULL)
            return request_fail(request, 400, "something follows the body's JSON at byte %zu", (size_t)(end - text));
    if (!cJSON_IsObject(request->json))
        return request_fail(request, 400, "the body is JSON, but not an object");
    return true;
}

cJSON *body_parse_text(const char *text)
{
    return scan(text, strlen(text)) == NULL ? cJSON_Parse(text) : NULL;
}

enum { IS_READ = 1 << 16 }; // beside cJSON's own bits of a value's type

const cJSON *body_member(const cJSON *object, const char *key)
{
    cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);
    if (member && !(member->type & IS_READ))
        member->type |= IS_READ;
    return cJSON_IsNull(member) ? NULL : member;
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
}

static bool asks_for_something(const cJSON *member)
{
    static const char *const silent[] = {"model",         "user",   "metadata",         "service_tier",
                                         "keep_alive",    "store",  "prompt_cache_key", "safety_identifier",
                                         "cache_control", "stream", "id_slot"}; // change no text
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
    return request_fail(request, 400, "'%s': expected an integer from %lld to %lld", key, (long long)min, (long long)max);
}

bool body_number(struct request *request, const cJSON *object, const char *key, double min, double max, float *value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsNumber(member) || !(member->valuedouble >= min && member->valuedouble <= max))
        return request_fail(request, 400, "'%s': expected a number from %g to %g", key, min, max);
    *value = (float)member->valuedouble;
    return true;
}

bool body_bool(struct request *request, const cJSON *object, const char *key, bool *value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsBool(member))
        return request_fail(request, 400, "'%s': expected true or false", key);
    *value = cJSON_IsTrue(member);
    return true;
}

bool body_string(struct request *request, const cJSON *object, const char *key, const char **value)
{
    const cJSON *member = body_member(object, key);
    if (member == NULL)
        return true;
    if (!cJSON_IsString(member))
        return request_fail(request, 400, "'%s': expected a string", key);
    *value = member->valuestring;
    return true;
}

bool body_refuse(struct request *request, const cJSON *object, const char *key, const char *why)
{
    if (body_member(object, key) == NULL)
        return true;
    return request_fail(request, 400, "'%s': %s", key, why);
}
