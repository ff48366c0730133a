// Items of OpenAI's responses, and their tools, as messages and tools of its conversations, which the one parser reads.
#include "serve/items.h"

#include <stdlib.h>
#include <string.h>

#include "serve/body.h"

static bool ends_in(const cJSON *item, const char *word)
{
    const char *text = body_text(item);
    const size_t length = strlen(text), n = strlen(word);
    return length > n && strcmp(text + length - n, word) == 0;
}

static void add_json(struct buffer *text, const cJSON *value)
{
    char *json = cJSON_PrintUnformatted(value);
    buffer_text(text, json ? json : "");
    free(json);
}

// A string, or parts with a text. In the place of a part that cannot be read stands that this is so; what is no part at all,
// as a command's streams, stays JSON.
static cJSON *content_of(const cJSON *content)
{
    struct buffer text = {0};
    const cJSON *part;
    if (cJSON_IsString(content))
        buffer_text(&text, content->valuestring);
    cJSON_ArrayForEach(part, content)
    {
        const cJSON *words = body_member(part, "text"), *refusal = body_member(part, "refusal");
        if (cJSON_IsString(words) || cJSON_IsString(refusal))
            buffer_text(&text, body_text(words ? words : refusal));
        else if (body_member(part, "type") == NULL)
            add_json(&text, part);
        else
            buffer_format(&text, "[%.60s: it cannot be read, since this model reads text alone]",
                          body_text(body_member(part, "type")));
    }
    cJSON *string = cJSON_CreateString(text.at ? text.at : "");
    buffer_free(&text);
    return string;
}

static cJSON *add_message(cJSON *messages, const char *role, const cJSON *content)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", role);
    cJSON_AddItemToObject(message, "content", content_of(content));
    cJSON_AddItemToArray(messages, message);
    return message;
}

// The assistant's message that is being put together: thoughts, a text and calls that follow each other make one.
static cJSON *open_turn(cJSON *messages, const char *unless)
{
    cJSON *last = messages->child ? messages->child->prev : NULL; // the first one's is the last
    if (last && body_is(body_member(last, "role"), "assistant") && !(unless && cJSON_HasObjectItem(last, unless)))
        return last;
    return add_message(messages, "assistant", NULL);
}

// What the call of a tool without a name is to do: of local_shell_call an action, of apply_patch_call an operation.
static void add_deed(cJSON *function, const cJSON *item)
{
    const cJSON *action = body_member(item, "action"), *deed = action ? action : body_member(item, "operation");
    const char *type = body_text(body_member(item, "type"));
    struct buffer name = {0};
    buffer_add(&name, type, strlen(type) - strlen("_call"));
    cJSON_AddStringToObject(function, "name", name.at ? name.at : "");
    cJSON_AddItemToObject(function, "arguments", deed ? cJSON_Duplicate(deed, true) : cJSON_CreateObject());
    buffer_free(&name);
}

static void add_call(cJSON *messages, const cJSON *item)
{
    const cJSON *type = body_member(item, "type");
    cJSON *message = open_turn(messages, NULL), *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    if (calls == NULL)
        calls = cJSON_AddArrayToObject(message, "tool_calls");
    cJSON *call = cJSON_CreateObject(), *function = cJSON_AddObjectToObject(call, "function");
    cJSON_AddStringToObject(call, "id", body_text(body_member(item, "call_id")));
    cJSON_AddStringToObject(call, "type", "function");
    cJSON_AddItemToArray(calls, call);
    if (!body_is(type, "function_call") && !body_is(type, "custom_tool_call")) {
        add_deed(function, item);
        return;
    }
    cJSON_AddStringToObject(function, "name", body_text(body_member(item, "name")));
    if (body_is(type, "custom_tool_call"))
        cJSON_AddStringToObject(cJSON_AddObjectToObject(function, "arguments"), "input", body_text(body_member(item, "input")));
    else
        cJSON_AddStringToObject(function, "arguments", body_text(body_member(item, "arguments")));
}

// What an item must have, or NULL. A text may be a list of parts, each an object; those of a kind of text have one.
static const char *missing_of(const cJSON *item)
{
    const cJSON *type = body_member(item, "type"), *output = body_member(item, "output"), *part;
    const bool message = type == NULL || body_is(type, "message");
    const cJSON *content = message ? body_member(item, "content") : output;
    if (body_is(type, "function_call") && !cJSON_IsString(body_member(item, "arguments")))
        return "'arguments': expected a text of JSON";
    if (body_is(type, "custom_tool_call") && !cJSON_IsString(body_member(item, "input")))
        return "'input': expected a text";
    if ((body_is(type, "function_call") || body_is(type, "custom_tool_call")) && body_text(body_member(item, "name"))[0] == 0)
        return "'name': expected a tool's name";
    if (!message && !ends_in(type, "_call_output"))
        return NULL;
    if (!cJSON_IsString(content) && !cJSON_IsArray(content) && !(output && cJSON_IsObject(output)))
        return message ? "'content': expected a text or a list of parts" : "'output': expected a text or a list of parts";
    for (part = cJSON_IsArray(content) ? content->child : NULL; part; part = part->next)
        if (!cJSON_IsObject(part) ||
            (ends_in(body_member(part, "type"), "_text") && !cJSON_IsString(body_member(part, "text"))))
            return "expected parts that are objects; one of a text has a 'text'";
    return NULL;
}

static bool add_item(struct request *request, const cJSON *item, int number, cJSON *messages)
{
    const cJSON *type = body_member(item, "type"), *role = body_member(item, "role");
    const char *missing = cJSON_IsString(role) || cJSON_IsString(type) ? missing_of(item) : NULL;
    if (missing)
        return request_fail(request, 400, "'input', number %d: %s", number, missing);
    if (cJSON_IsString(role) && (type == NULL || body_is(type, "message"))) {
        const cJSON *content = body_member(item, "content");
        const bool answers = body_is(role, "assistant") && messages->child;
        cJSON *turn = answers ? open_turn(messages, "tool_calls") : NULL;
        if (turn && body_text(body_member(turn, "content"))[0] == 0)
            cJSON_ReplaceItemInObjectCaseSensitive(turn, "content", content_of(content));
        else
            add_message(messages, role->valuestring, content);
    } else if (body_is(type, "function_call") || body_is(type, "custom_tool_call") ||
               (ends_in(type, "_call") && body_member(item, "call_id")))
        add_call(messages, item); // what the caller runs; what a server has run has no call_id
    else if (ends_in(type, "_call_output")) {
        cJSON *message = add_message(messages, "tool", body_member(item, "output"));
        cJSON_AddStringToObject(message, "tool_call_id", body_text(body_member(item, "call_id")));
    } else if (body_is(type, "reasoning")) {
        cJSON *thoughts = content_of(body_member(item, "content"));
        if (thoughts && thoughts->valuestring[0])
            cJSON_AddItemToObject(add_message(messages, "assistant", NULL), "reasoning_content", thoughts);
        else
            cJSON_Delete(thoughts);
    } else if (body_is(type, "item_reference"))
        return request_fail(request, 400, "'input', number %d: items have no names here: send the item itself", number);
    else if (cJSON_IsString(type))
        request_warn(request, "input: %.40s", type->valuestring);
    else
        return request_fail(request, 400, "'input', number %d: expected a message, a call of a function, or its output",
                            number);
    return true;
}

bool items_to_messages(struct request *request, const cJSON *items, const char *instructions)
{
    cJSON *messages = cJSON_AddArrayToObject(request->json, "messages"), *item;
    int number = 0;
    if (instructions) {
        cJSON *message = add_message(messages, "system", NULL);
        cJSON_ReplaceItemInObjectCaseSensitive(message, "content", cJSON_CreateString(instructions));
    }
    cJSON_ArrayForEach(item, items)
    {
        if (!add_item(request, item, ++number, messages))
            return false;
    }
    return true;
}

// A tool without a schema takes a text.
static void add_input_schema(cJSON *function)
{
    cJSON *schema = cJSON_AddObjectToObject(function, "parameters");
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(cJSON_AddObjectToObject(schema, "properties"), "input"), "type", "string");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(schema, "required"), cJSON_CreateString("input"));
}

void items_to_tools(struct request *request, const cJSON *given)
{
    const cJSON *tool;
    cJSON *tools = cJSON_AddArrayToObject(request->json, "tools");
    cJSON_ArrayForEach(tool, given)
    {
        const cJSON *type = body_member(tool, "type");
        if (!body_is(type, "function") && !body_is(type, "custom")) {
            request_warn(request, "tools: %.40s", body_text(type));
            continue;
        }
        cJSON *copy = cJSON_CreateObject(), *function = cJSON_Duplicate(tool, true);
        cJSON_DeleteItemFromObjectCaseSensitive(function, "type");
        cJSON_AddStringToObject(copy, "type", "function");
        cJSON_AddItemToObject(copy, "function", function);
        if (body_is(type, "custom")) {
            const cJSON *format = body_member(function, "format");
            if (format && !body_is(body_member(format, "type"), "text"))
                request_warn(request, "tools: the format of %.40s", body_text(body_member(function, "name")));
            cJSON_DeleteItemFromObjectCaseSensitive(function, "format");
            add_input_schema(function);
        }
        cJSON_AddItemToArray(tools, copy);
    }
}

bool items_are_custom(const cJSON *tools, const char *name)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        if (body_is(body_member(tool, "type"), "custom") && body_is(body_member(tool, "name"), name))
            return true;
    }
    return false;
}
