// Anthropic's messages, tools and choice among them, as OpenAI's, which the one parser reads.
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"

static cJSON *add_message(cJSON *messages, const char *role, const char *text)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", role);
    cJSON_AddStringToObject(message, "content", text);
    cJSON_AddItemToArray(messages, message);
    return message;
}

// What a block says to a model that reads text. In the place of what it cannot read stands that this is so: a conversation
// goes on.
static void add_words(struct buffer *text, const cJSON *block)
{
    const cJSON *type = body_member(block, "type"), *words = body_member(block, "text");
    buffer_text(text, text->length ? "\n" : "");
    if (body_is(type, "text") && cJSON_IsString(words))
        buffer_text(text, words->valuestring);
    else if (body_is(type, "tool_reference"))
        buffer_format(text, "[tool: %.200s]", body_text(body_member(block, "tool_name")));
    else if (body_is(type, "document") && body_is(body_member(body_member(block, "source"), "type"), "text"))
        buffer_text(text, body_text(body_member(body_member(block, "source"), "data")));
    else
        buffer_format(text, "[%.60s: it cannot be read, since this model reads text alone]", body_text(type));
}

// A string, or blocks, as one text. False where it is neither.
static bool add_content(struct buffer *text, const cJSON *content)
{
    const cJSON *block;
    if (cJSON_IsString(content))
        buffer_text(text, content->valuestring);
    cJSON_ArrayForEach(block, content)
    {
        if (!cJSON_IsString(body_member(block, "type")))
            return false;
        add_words(text, block);
    }
    return content == NULL || cJSON_IsString(content) || cJSON_IsArray(content);
}

static void add_call(cJSON *calls, const cJSON *block)
{
    const cJSON *input = body_member(block, "input");
    cJSON *call = cJSON_CreateObject();
    cJSON_AddStringToObject(call, "id", body_text(body_member(block, "id")));
    cJSON_AddStringToObject(call, "type", "function");
    cJSON *function = cJSON_AddObjectToObject(call, "function");
    cJSON_AddStringToObject(function, "name", body_text(body_member(block, "name")));
    cJSON_AddItemToObject(function, "arguments", input ? cJSON_Duplicate(input, true) : cJSON_CreateObject());
    cJSON_AddItemToArray(calls, call);
}

static bool add_result(cJSON *messages, const cJSON *block)
{
    struct buffer text = {0};
    const bool good = add_content(&text, body_member(block, "content"));
    cJSON *message = add_message(messages, "tool", text.at ? text.at : "");
    cJSON_AddStringToObject(message, "tool_call_id", body_text(body_member(block, "tool_use_id")));
    buffer_free(&text);
    return good;
}

// A message of blocks: its text, its thoughts, its calls, and, before them, messages of their own for results of tools.
static bool add_blocks(cJSON *messages, const cJSON *content, const char *role)
{
    struct buffer text = {0}, thoughts = {0};
    const cJSON *block;
    bool any = false, good = true;
    cJSON *calls = cJSON_CreateArray();
    cJSON_ArrayForEach(block, content)
    {
        const cJSON *type = body_member(block, "type");
        const char *kind = body_text(type);
        const size_t length = strlen(kind);
        good &= length > 0 && !(body_is(type, "text") && !cJSON_IsString(body_member(block, "text")));
        if (body_is(type, "thinking")) {
            buffer_text(&thoughts, body_text(body_member(block, "thinking")));
            continue;
        }
        if (body_is(type, "redacted_thinking"))
            continue;
        any |= !body_is(type, "tool_result");
        if (body_is(type, "tool_use") || body_is(type, "server_tool_use"))
            add_call(calls, block);
        else if (length >= 12 && strcmp(kind + length - 12, "_tool_result") == 0) // of a tool that the server has run
            good &= add_result(messages, block) || cJSON_IsObject(body_member(block, "content"));
        else if (body_is(type, "tool_result"))
            good &= add_result(messages, block);
        else
            add_words(&text, block);
    }
    cJSON *message = any ? add_message(messages, role, text.at ? text.at : "") : NULL;
    if (message && thoughts.length)
        cJSON_AddStringToObject(message, "reasoning_content", thoughts.at);
    if (message && calls->child)
        cJSON_AddItemToObject(message, "tool_calls", calls);
    else
        cJSON_Delete(calls);
    buffer_free(&thoughts);
    buffer_free(&text);
    return good;
}

static bool add_messages(struct request *request, const cJSON *given, cJSON *messages)
{
    const cJSON *message;
    int number = 0;
    cJSON_ArrayForEach(message, given)
    {
        const cJSON *role = body_member(message, "role"), *content = body_member(message, "content");
        number++;
        if (!body_is(role, "user") && !body_is(role, "assistant") && !body_is(role, "system"))
            return request_fail(request, 400, "'messages', number %d: expected the role user, assistant or system", number);
        if (cJSON_IsString(content))
            add_message(messages, role->valuestring, content->valuestring);
        else if (!cJSON_IsArray(content) || !add_blocks(messages, content, role->valuestring))
            return request_fail(request, 400, "'messages', number %d: 'content' is a string, or a list of blocks with a type",
                                number);
    }
    return true;
}

static bool read_messages(struct request *request)
{
    const cJSON *system = body_member(request->json, "system");
    cJSON *given = body_take(request, "messages"), *messages = cJSON_CreateArray();
    struct buffer text = {0};
    bool good = add_content(&text, system);
    if (!good)
        request_fail(request, 400, "'system': expected a string, or a list of blocks of type text");
    else if (!cJSON_IsArray(given) || given->child == NULL)
        good = request_fail(request, 400, "'messages': expected a list of at least one");
    if (good && system)
        add_message(messages, "system", text.at ? text.at : "");
    good = good && add_messages(request, given, messages);
    buffer_free(&text);
    cJSON_Delete(given);
    cJSON_AddItemToObject(request->json, "messages", messages);
    return good;
}

static bool read_choice(struct request *request)
{
    cJSON *choice = body_take(request, "tool_choice");
    const cJSON *type = body_member(choice, "type"), *name = body_member(choice, "name");
    bool one_at_a_time = false;
    const bool known = choice == NULL || body_is(type, "auto") || body_is(type, "any") || body_is(type, "none") ||
                       (body_is(type, "tool") && cJSON_IsString(name));
    if (!known)
        request_fail(request, 400, "'tool_choice': expected type auto, any, none, or tool with a name");
    else if (body_is(type, "tool")) {
        cJSON *function = cJSON_AddObjectToObject(cJSON_AddObjectToObject(request->json, "tool_choice"), "function");
        cJSON_AddStringToObject(function, "name", name->valuestring);
    } else if (choice)
        cJSON_AddStringToObject(request->json, "tool_choice", body_is(type, "any") ? "required" : body_text(type));
    const bool good = known && body_bool(request, choice, "disable_parallel_tool_use", &one_at_a_time);
    if (one_at_a_time)
        cJSON_AddFalseToObject(request->json, "parallel_tool_calls");
    cJSON_Delete(choice);
    return good;
}

// {"name", "description", "input_schema"} becomes what templates know. A tool that Anthropic's servers run, or whose schema
// only its models know, is left out.
static bool read_tools(struct request *request)
{
    cJSON *tools = body_take(request, "tools");
    const cJSON *tool;
    if (tools == NULL)
        return true;
    cJSON *list = cJSON_AddArrayToObject(request->json, "tools");
    bool good = cJSON_IsArray(tools);
    cJSON_ArrayForEach(tool, tools)
    {
        const cJSON *type = body_member(tool, "type"), *name = body_member(tool, "name");
        const cJSON *description = body_member(tool, "description"), *schema = body_member(tool, "input_schema");
        good &= cJSON_IsString(name);
        if (type && !body_is(type, "custom")) {
            request_warn(request, "tools: %.40s", body_text(type));
            continue;
        }
        cJSON *copy = cJSON_CreateObject();
        cJSON_AddStringToObject(copy, "type", "function");
        cJSON *function = cJSON_AddObjectToObject(copy, "function");
        cJSON_AddStringToObject(function, "name", body_text(name));
        if (cJSON_IsString(description))
            cJSON_AddStringToObject(function, "description", description->valuestring);
        if (cJSON_IsTrue(body_member(tool, "strict")))
            cJSON_AddTrueToObject(function, "strict");
        if (schema)
            cJSON_AddItemToObject(function, "parameters", cJSON_Duplicate(schema, true));
        cJSON_AddItemToArray(list, copy);
    }
    cJSON_Delete(tools);
    return good || request_fail(request, 400, "'tools': expected a list of {\"name\", \"description\", \"input_schema\"}");
}

// How much the model is to think, and the form of its answer: {"effort", "format": {"type": "json_schema", "schema"}}.
static bool read_output(struct request *request)
{
    body_drop(request, (const char *const[]){"response_format", "json_schema", "reasoning_effort", NULL});
    cJSON *output = body_take(request, "output_config");
    const cJSON *effort = body_member(output, "effort"), *format = body_member(output, "format");
    const cJSON *schema = body_is(body_member(format, "type"), "json_schema") ? body_member(format, "schema") : NULL;
    const bool good =
        (output == NULL || cJSON_IsObject(output)) && (effort == NULL || cJSON_IsString(effort)) && (format == NULL || schema);
    if (good && effort)
        cJSON_AddStringToObject(request->json, "reasoning_effort", effort->valuestring);
    if (good && schema)
        cJSON_AddItemToObject(request->json, "json_schema", cJSON_Duplicate(schema, true));
    cJSON_Delete(output);
    return good || request_fail(request, 400,
                                "'output_config': expected {\"effort\": …, \"format\": {\"type\": \"json_schema\", "
                                "\"schema\": …}}");
}

bool dialogue_read_anthropic(struct request *request, struct dialogue *dialogue)
{
    *dialogue = (struct dialogue){0};
    return read_output(request) && read_messages(request) && read_choice(request) && read_tools(request) &&
           dialogue_read_openai(request, dialogue, false);
}
