// What the tools on offer say of a call: whether there is such a one, and whether arguments fit it.
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

static bool is_of_type(const cJSON *value, const cJSON *type)
{
    static const struct {
        const char *name;
        int kinds;
    } types[] = {{"string", cJSON_String},
                 {"number", cJSON_Number},
                 {"integer", cJSON_Number},
                 {"object", cJSON_Object},
                 {"boolean", cJSON_True | cJSON_False},
                 {"array", cJSON_Array},
                 {"null", cJSON_NULL}};
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type->valuestring) == 0)
            return (value->type & types[i].kinds) != 0;
    return true;
}

bool tools_fit(const cJSON *tools, const struct buffer *name, const struct buffer *arguments)
{
    const cJSON *function = find_tool(tools, name), *schema = member(function, "parameters"), *each;
    cJSON *object = cJSON_ParseWithLength(arguments->length ? arguments->at : "{}", arguments->length ? arguments->length : 2);
    bool fits = function && cJSON_IsObject(object);
    cJSON_ArrayForEach(each, member(schema, "required"))
    {
        fits = fits && cJSON_IsString(each) && member(object, each->valuestring);
    }
    cJSON_ArrayForEach(each, object)
    {
        const cJSON *own = member(member(schema, "properties"), each->string);
        fits = fits && (own ? is_of_type(each, member(own, "type")) : member(schema, "properties") == NULL);
    }
    cJSON_Delete(object);
    return fits;
}
