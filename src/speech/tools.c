// What the tools on offer say of a call: whether there is such a one, and whether arguments fit it.
#include <math.h>

#include "speech/reader.h"

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const cJSON *find_tool(const cJSON *tools, const struct buffer *name)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const cJSON *function = member(tool, "function"), *own = member(function, "name");
        if (cJSON_IsString(own) && strlen(own->valuestring) == name->length &&
            memcmp(own->valuestring, name->at, name->length) == 0)
            return function;
    }
    return NULL;
}

bool tools_have(const cJSON *tools, const struct buffer *name)
{
    return tools == NULL || (name->length > 0 && find_tool(tools, name));
}

const cJSON *tools_member(const cJSON *tools, const struct buffer *name, struct span key)
{
    const cJSON *properties = member(member(find_tool(tools, name), "parameters"), "properties"), *each;
    cJSON_ArrayForEach(each, properties)
    {
        if (strlen(each->string) == key.length && memcmp(each->string, key.at, key.length) == 0)
            return each;
    }
    return NULL;
}

// ---------------------------------------------------------------- whether arguments fit

enum { MOST_DEPTH = 64, MOST_STEPS = 100000 };

// Of schemas that lead back to themselves in several ways, steps double with each level: they have a bound of their own.
struct check {
    const cJSON *root;
    int depth, steps;
};

static bool fits(const cJSON *value, const cJSON *schema, struct check *check);

static bool is_of_type(const cJSON *value, const cJSON *type)
{
    static const struct {
        const char *name;
        int kinds;
    } types[] = {{"string", cJSON_String},
                 {"number", cJSON_Number},
                 {"integer", cJSON_Number},
                 {"object", cJSON_Object},
                 {"array", cJSON_Array},
                 {"null", cJSON_NULL},
                 {"boolean", cJSON_True | cJSON_False}};
    const cJSON *each;
    if (cJSON_IsArray(type)) {
        cJSON_ArrayForEach(each, type)
        {
            if (is_of_type(value, each))
                return true;
        }
        return false;
    }
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type->valuestring) == 0)
            return (value->type & types[i].kinds) != 0 &&
                   (strcmp(types[i].name, "integer") != 0 || value->valuedouble == floor(value->valuedouble));
    return false;
}

static bool fits_object(const cJSON *value, const cJSON *schema, struct check *check)
{
    const cJSON *each, *more = member(schema, "additionalProperties");
    cJSON_ArrayForEach(each, member(schema, "required"))
    {
        if (!cJSON_IsString(each) || !member(value, each->valuestring))
            return false;
    }
    cJSON_ArrayForEach(each, value)
    {
        const cJSON *own = member(member(schema, "properties"), each->string);
        if (own ? !fits(each, own, check) : more && !fits(each, more, check))
            return false;
    }
    return true;
}

static bool fits_array(const cJSON *value, const cJSON *schema, struct check *check)
{
    const cJSON *each, *items = member(schema, "items");
    cJSON_ArrayForEach(each, value)
    {
        if (items && !fits(each, items, check))
            return false;
    }
    return true;
}

static bool fits_one(const cJSON *value, const cJSON *schemas, struct check *check)
{
    const cJSON *each;
    cJSON_ArrayForEach(each, schemas)
    {
        if (fits(value, each, check))
            return true;
    }
    return false;
}

static bool is_one_of(const cJSON *value, const cJSON *words)
{
    const cJSON *each;
    cJSON_ArrayForEach(each, words)
    {
        if (cJSON_Compare(value, each, true))
            return true;
    }
    return false;
}

static const cJSON *find_definition(const cJSON *root, const cJSON *reference)
{
    static const char *const places[] = {"$defs", "definitions"};
    const char *path = cJSON_IsString(reference) ? reference->valuestring : "", *name = strrchr(path, '/');
    for (int i = 0; name && i < 2; i++)
        if (path[0] == '#' && strncmp(path + 2, places[i], strlen(places[i])) == 0 && path + 2 + strlen(places[i]) == name)
            return member(member(root, places[i]), name + 1);
    return NULL;
}

static double size_of(const cJSON *value)
{
    double n = 0;
    if (!cJSON_IsString(value))
        return cJSON_IsNumber(value) ? value->valuedouble : cJSON_GetArraySize(value);
    for (const char *at = value->valuestring; *at; at++)
        n += (*at & 0xc0) != 0x80; // characters
    return n;
}

// A bound that is for values of the kind.
static bool keeps_bound(const cJSON *value, const cJSON *bound)
{
    static const struct {
        const char *key;
        int kinds, sign;
        bool itself;
    } bounds[] = {{"minimum", cJSON_Number, 1, true},           {"maximum", cJSON_Number, -1, true},
                  {"exclusiveMinimum", cJSON_Number, 1, false}, {"exclusiveMaximum", cJSON_Number, -1, false},
                  {"minItems", cJSON_Array, 1, true},           {"maxItems", cJSON_Array, -1, true},
                  {"minLength", cJSON_String, 1, true},         {"maxLength", cJSON_String, -1, true},
                  {"minProperties", cJSON_Object, 1, true},     {"maxProperties", cJSON_Object, -1, true}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (strcmp(bounds[i].key, bound->string) == 0) {
            const double over = bounds[i].sign * (size_of(value) - bound->valuedouble);
            return !(value->type & bounds[i].kinds) || (cJSON_IsNumber(bound) && (over > 0 || (bounds[i].itself && over == 0)));
        }
    return false;
}

static bool is_annotation(const char *key)
{
    static const char *const keys[] = {"title",
                                       "description",
                                       "default",
                                       "examples",
                                       "deprecated",
                                       "$schema",
                                       "$id",
                                       "$comment",
                                       "$defs",
                                       "definitions",
                                       "format",
                                       "readOnly",
                                       "strict",
                                       "writeOnly",
                                       "required",
                                       "properties",
                                       "additionalProperties"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static bool keeps(const cJSON *value, const cJSON *keyword, struct check *check)
{
    const char *key = keyword->string;
    if (strcmp(key, "type") == 0)
        return is_of_type(value, keyword);
    if (strcmp(key, "enum") == 0)
        return is_one_of(value, keyword);
    if (strcmp(key, "const") == 0)
        return cJSON_Compare(value, keyword, true);
    if (strcmp(key, "anyOf") == 0)
        return fits_one(value, keyword, check);
    if (strcmp(key, "$ref") == 0)
        return find_definition(check->root, keyword) && fits(value, find_definition(check->root, keyword), check);
    return strcmp(key, "items") == 0 || is_annotation(key) || keeps_bound(value, keyword);
}

// A keyword that is not known here might forbid the value, so it does.
static bool fits(const cJSON *value, const cJSON *schema, struct check *check)
{
    const cJSON *each;
    if (!cJSON_IsObject(schema) || check->depth == MOST_DEPTH || ++check->steps > MOST_STEPS)
        return cJSON_IsTrue(schema);
    bool good = true;
    check->depth++;
    cJSON_ArrayForEach(each, schema)
    {
        good = good && keeps(value, each, check);
    }
    good = good && (!cJSON_IsObject(value) || fits_object(value, schema, check)) &&
           (!cJSON_IsArray(value) || fits_array(value, schema, check));
    check->depth--;
    return good;
}

bool tools_fit(const cJSON *tools, const struct buffer *name, const struct buffer *arguments)
{
    const cJSON *function = find_tool(tools, name), *schema = member(function, "parameters"), *each;
    const char *text = arguments->length ? arguments->at : "{}", *end = NULL;
    cJSON *object = cJSON_ParseWithLengthOpts(text, strlen(text) + 1, &end, true);
    bool good = function && cJSON_IsObject(object) && (schema == NULL || fits(object, schema, &(struct check){.root = schema}));
    cJSON_ArrayForEach(each, object) // and nothing that the tool does not name
    {
        good = good && (!member(schema, "properties") || member(member(schema, "properties"), each->string));
    }
    cJSON_Delete(object);
    return good;
}
