// OpenAI's /v1/responses: an answer is a list of items, which a stream tells piece by piece. Both are made in one way.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/items.h"
#include "serve/openai.h"
#include "serve/store.h"
#include "util/json_write.h"

struct responses {
    struct openai head;
    struct dialogue dialogue;
    cJSON *items, *tools; // owned: of the conversation; as they were given
    cJSON *previous;      // owned: the id of the response that this one follows
    bool store;
    // The answer, as far as it has come.
    struct buffer output; // whole items
    struct buffer text;   // of the item that is open
    struct buffer name;   // of the call that is
    enum part part;
    bool open, custom;
    bool cut; // the open item, by a bound on tokens
    int n_items, n_events;
};

static void free_responses(void *api)
{
    struct responses *r = api;
    dialogue_free(&r->dialogue);
    cJSON_Delete(r->items);
    cJSON_Delete(r->tools);
    cJSON_Delete(r->previous);
    buffer_free(&r->output);
    buffer_free(&r->text);
    buffer_free(&r->name);
    free(r);
}

// ---------------------------------------------------------------- the request

static bool expect(struct request *request, const char *key, int kinds, const char *what)
{
    const cJSON *member = body_member(request->json, key);
    return member == NULL || member->type & kinds || request_fail(request, 400, "'%s': expected %s", key, what);
}

static bool check_types(struct request *request)
{
    return expect(request, "tools", cJSON_Array, "a list") && expect(request, "text", cJSON_Object, "an object") &&
           expect(request, "reasoning", cJSON_Object, "an object") && expect(request, "truncation", cJSON_String, "a string") &&
           expect(request, "metadata", cJSON_Object, "an object") &&
           expect(request, "background", cJSON_False, "false: an answer is made while its client waits");
}

static void read_format(struct request *request)
{
    cJSON *text = body_take(request, "text"), *format = cJSON_DetachItemFromObjectCaseSensitive(text, "format");
    const cJSON *type = body_member(format, "type");
    if (body_member(text, "verbosity"))
        request_warn(request, "text.verbosity");
    cJSON_Delete(text);
    cJSON *wanted = format ? cJSON_AddObjectToObject(request->json, "response_format") : NULL;
    if (wanted)
        cJSON_AddStringToObject(wanted, "type", body_text(type));
    if (format && !cJSON_AddItemToObject(wanted, "json_schema", format))
        cJSON_Delete(format);
}

// {"type": "function", "name": …} is nested in conversations.
static void read_choice(struct request *request)
{
    cJSON *choice = cJSON_GetObjectItemCaseSensitive(request->json, "tool_choice");
    cJSON *name = cJSON_IsObject(choice) ? cJSON_DetachItemFromObjectCaseSensitive(choice, "name") : NULL;
    if (name)
        cJSON_AddItemToObject(cJSON_AddObjectToObject(choice, "function"), "name", name);
}

static bool read_items(struct request *request, struct responses *r)
{
    cJSON *input = body_take(request, "input");
    r->previous = body_take(request, "previous_response_id");
    if (r->previous && cJSON_IsString(r->previous))
        r->items = store_items(request->server->store, r->previous->valuestring);
    if (r->previous && r->items == NULL) {
        cJSON_Delete(input);
        request->code = "previous_response_not_found";
        return request_fail(request, 404, "'previous_response_id': no such response is kept here");
    }
    r->items = r->items ? r->items : cJSON_CreateArray();
    if (cJSON_IsString(input)) {
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "type", "message");
        cJSON_AddStringToObject(message, "role", "user");
        cJSON_AddStringToObject(message, "content", input->valuestring);
        cJSON_AddItemToArray(r->items, message);
    } else if (cJSON_IsArray(input))
        for (cJSON *item; (item = cJSON_DetachItemFromArray(input, 0)) != NULL;)
            cJSON_AddItemToArray(r->items, item);
    else {
        cJSON_Delete(input);
        return request_fail(request, 400, "'input': expected a string, or a list of items");
    }
    cJSON_Delete(input);
    return true;
}

static bool read_request(struct request *request, struct responses *r)
{
    static const char *const inner[] = {"messages", "response_format", "json_schema", "reasoning_effort", "n", NULL};
    const char *instructions = NULL, *effort = NULL;
    r->store = true;
    body_drop(request, inner);
    body_rename(request, "max_output_tokens", "max_tokens");
    body_call(request, "response_format", "text.format");
    body_call(request, "messages", "input");
    if (!check_types(request) || !generation_read(request, "stop") || !openai_begin(request, &r->head, "resp_") ||
        !body_bool(request, request->json, "store", &r->store) ||
        !body_string(request, request->json, "instructions", &instructions) ||
        !body_string(request, body_member(request->json, "reasoning"), "effort", &effort) ||
        !body_refuse(request, request->json, "conversation", "conversations are not kept here; 'previous_response_id' is") ||
        !body_refuse(request, request->json, "prompt", "templates of prompts are not kept here") || !read_items(request, r))
        return false;
    request->how->n_choices = 1;
    if (effort)
        cJSON_AddStringToObject(request->json, "reasoning_effort", effort);
    if (body_member(body_member(request->json, "reasoning"), "summary"))
        request_warn(request, "reasoning.summary");
    const cJSON *truncation = body_member(request->json, "truncation");
    if (truncation && strcmp(truncation->valuestring, "disabled") != 0)
        request_warn(request, "truncation");
    read_choice(request);
    r->tools = body_take(request, "tools");
    items_to_tools(request, r->tools);
    read_format(request);
    return items_to_messages(request, r->items, instructions) && dialogue_read_openai(request, &r->dialogue, false) &&
           dialogue_prompt(request, &r->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

// "key": the request's member as it came, or `otherwise`.
static void echo(struct buffer *out, const char *key, const cJSON *value, const char *otherwise)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    json_raw(out, key, "%s", text ? "" : otherwise);
    buffer_text(out, text ? text : "");
    free(text);
}

static void add_response(struct request *request, const struct responses *r, const struct task *task, struct buffer *out)
{
    const struct generator *g = &task->generator;
    const bool cut = task->finish && strcmp(task->finish, "length") == 0;
    json_text(out, "id", r->head.id);
    json_text(out, "object", "response");
    json_integer(out, "created_at", r->head.created);
    json_text(out, "status", task->finish == NULL ? "in_progress" : cut ? "incomplete" : "completed");
    json_text(out, "model", yalm_model_facts(request->server->model)->name);
    json_raw(out, "error", "null");
    json_raw(out, "incomplete_details", cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    echo(out, "instructions", body_member(request->json, "instructions"), "null");
    echo(out, "metadata", body_member(request->json, "metadata"), "{}");
    json_number(out, "temperature", (double)request->how->options.sampling.temperature);
    json_number(out, "top_p", (double)request->how->options.sampling.top_p);
    json_integer(out, "max_output_tokens", request->how->options.max_tokens);
    echo(out, "previous_response_id", r->previous, "null");
    echo(out, "reasoning", body_member(request->json, "reasoning"), "null");
    json_flag(out, "store", r->store);
    echo(out, "tools", r->tools, "[]");
    echo(out, "tool_choice", body_member(request->json, "tool_choice"), "\"auto\"");
    json_flag(out, "parallel_tool_calls", !cJSON_IsFalse(body_member(request->json, "parallel_tool_calls")));
    json_open(out, "output", '[');
    buffer_add(out, r->output.at, r->output.length);
    json_close(out, "]");
    if (task->finish == NULL) {
        json_raw(out, "usage", "null");
        return;
    }
    json_open(out, "usage", '{');
    json_integer(out, "input_tokens", (long long)g->n_prompt);
    json_raw(out, "input_tokens_details", "{\"cached_tokens\":%zu,\"cache_write_tokens\":0}", g->n_cached);
    json_integer(out, "output_tokens", (long long)g->n_generated);
    json_raw(out, "output_tokens_details", "{\"reasoning_tokens\":0}");
    json_integer(out, "total_tokens", (long long)(g->n_prompt + g->n_generated));
    json_close(out, "}");
}

static void begin_event(struct responses *r, struct buffer *out, const char *type)
{
    buffer_format(out, "event: %s\ndata: ", type);
    json_open(out, NULL, '{');
    json_text(out, "type", type);
    json_integer(out, "sequence_number", r->n_events++);
}

static void end_event(struct buffer *out)
{
    json_close(out, "}\n\n");
}

// The open item's. Its beginning says what it is, as clients expect.
static void add_id(const struct responses *r, struct buffer *out, const char *key)
{
    const char *kind = r->part == PART_TEXT ? "msg" : r->part != PART_CALL ? "rs" : r->custom ? "ctc" : "fc";
    json_raw(out, key, "\"%s_%s_%d\"", kind, r->head.id + 5, r->n_items);
}

static void begin_part_event(struct responses *r, struct buffer *out, const char *type, bool content)
{
    begin_event(r, out, type);
    add_id(r, out, "item_id");
    json_integer(out, "output_index", r->n_items);
    if (content)
        json_integer(out, "content_index", 0);
}

static void add_response_event(struct request *request, struct responses *r, const char *type, struct buffer *out)
{
    begin_event(r, out, type);
    json_open(out, "response", '{');
    add_response(request, r, &request->tasks[0], out);
    json_close(out, "}");
    end_event(out);
}

// The text part of a message, or of thoughts.
static void add_content(const struct responses *r, const char *key, bool whole, struct buffer *out)
{
    json_open(out, key, '{');
    json_text(out, "type", r->part == PART_TEXT ? "output_text" : "reasoning_text");
    json_bytes(out, "text", whole && r->text.length ? r->text.at : "", whole ? r->text.length : 0);
    if (r->part == PART_TEXT)
        json_raw(out, "annotations", "[]");
    json_close(out, "}");
}

// The text that a tool without a schema gets.
static void add_input(const struct responses *r, struct buffer *out)
{
    cJSON *arguments = r->text.length ? cJSON_ParseWithLength(r->text.at, r->text.length) : NULL;
    const char *input = cJSON_GetStringValue(body_member(arguments, "input"));
    json_text(out, "input", input ? input : "");
    cJSON_Delete(arguments);
}

// The open item: as it begins, or whole.
static void add_item(const struct responses *r, const char *key, bool whole, struct buffer *out)
{
    json_open(out, key, '{');
    add_id(r, out, "id");
    json_text(out, "status", !whole ? "in_progress" : r->cut ? "incomplete" : "completed");
    if (r->part == PART_CALL) {
        json_text(out, "type", r->custom ? "custom_tool_call" : "function_call");
        json_raw(out, "call_id", "\"call_%s_%d\"", r->head.id + 5, r->n_items);
        json_bytes(out, "name", r->name.at, r->name.length);
        if (r->custom && whole)
            add_input(r, out);
        else
            json_bytes(out, r->custom ? "input" : "arguments", whole && r->text.length ? r->text.at : "",
                       whole ? r->text.length : 0);
    } else {
        json_text(out, "type", r->part == PART_TEXT ? "message" : "reasoning");
        if (r->part == PART_TEXT)
            json_text(out, "role", "assistant");
        else
            json_raw(out, "summary", "[]");
        json_open(out, "content", '[');
        if (whole)
            add_content(r, NULL, true, out);
        json_close(out, "]");
    }
    json_close(out, "}");
}

static void end_item(struct responses *r, struct buffer *out)
{
    if (!r->open)
        return;
    if (r->part == PART_CALL) {
        begin_part_event(r, out, r->custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
                         false);
        if (r->custom)
            add_input(r, out);
        else
            json_bytes(out, "arguments", r->text.length ? r->text.at : "", r->text.length);
    } else {
        begin_part_event(r, out, r->part == PART_TEXT ? "response.output_text.done" : "response.reasoning_text.done", true);
        json_bytes(out, "text", r->text.length ? r->text.at : "", r->text.length);
        json_raw(out, "logprobs", "[]");
        end_event(out);
        begin_part_event(r, out, "response.content_part.done", true);
        add_content(r, "part", true, out);
    }
    end_event(out);
    begin_event(r, out, "response.output_item.done");
    json_integer(out, "output_index", r->n_items);
    add_item(r, "item", true, out);
    end_event(out);
    buffer_text(&r->output, r->n_items ? "," : "");
    struct buffer item = {0};
    add_item(r, NULL, true, &item);
    buffer_add(&r->output, item.at, item.length);
    r->output.failed |= item.failed;
    buffer_free(&item);
    r->text.length = r->name.length = 0;
    r->open = false;
    r->n_items++;
}

static void begin_item(struct responses *r, const struct piece *piece, struct buffer *out)
{
    end_item(r, out);
    r->open = true;
    r->part = piece->part == PART_ARGUMENTS ? PART_CALL : piece->part;
    if (piece->part == PART_CALL) {
        buffer_add(&r->name, piece->text.at, piece->text.length);
        r->custom = r->name.at && items_are_custom(r->tools, r->name.at);
    }
    begin_event(r, out, "response.output_item.added");
    json_integer(out, "output_index", r->n_items);
    add_item(r, "item", false, out);
    end_event(out);
    if (r->part == PART_CALL)
        return;
    begin_part_event(r, out, "response.content_part.added", true);
    add_content(r, "part", false, out);
    end_event(out);
}

static void add_piece(struct responses *r, const struct piece *piece, struct buffer *out)
{
    if (piece->part == PART_CALL || !r->open || (piece->part != PART_ARGUMENTS && piece->part != r->part))
        begin_item(r, piece, out);
    if (piece->part == PART_CALL)
        return;
    buffer_add(&r->text, piece->text.at, piece->text.length);
    if (piece->part == PART_ARGUMENTS && r->custom)
        return; // told whole
    begin_part_event(r, out,
                     piece->part == PART_ARGUMENTS ? "response.function_call_arguments.delta"
                     : piece->part == PART_TEXT    ? "response.output_text.delta"
                                                   : "response.reasoning_text.delta",
                     piece->part != PART_ARGUMENTS);
    json_bytes(out, "delta", piece->text.at, piece->text.length);
    if (piece->part == PART_TEXT)
        json_raw(out, "logprobs", "[]");
    end_event(out);
}

static void begin(struct request *request)
{
    struct buffer out = {0};
    add_response_event(request, request->api, "response.created", &out);
    add_response_event(request, request->api, "response.in_progress", &out);
    request_send(request, &out);
}

// Keeps the response, and the items of its conversation with those of the answer.
static void keep(struct request *request, struct responses *r)
{
    struct buffer json = {0};
    json_open(&json, NULL, '{');
    add_response(request, r, &request->tasks[0], &json);
    json_close(&json, "}");
    cJSON *response = json.failed ? NULL : cJSON_ParseWithLength(json.at, json.length);
    const cJSON *item;
    cJSON_ArrayForEach(item, body_member(response, "output"))
    {
        cJSON_AddItemToArray(r->items, cJSON_Duplicate(item, true));
    }
    buffer_free(&json);
    if (response)
        store_add(request->server->store, r->head.id, response, r->items);
    cJSON_Delete(response);
}

static void progress(struct request *request, struct task *task)
{
    struct responses *r = request->api;
    struct buffer out = {0};
    struct piece piece;
    if (!r->head.stream && task->finish == NULL)
        return;
    while (speech_news(&task->generator.speech, &task->sent.told, &piece))
        add_piece(r, &piece, &out);
    if (task->finish) {
        const struct speech *speech = &task->generator.speech;
        r->cut = strcmp(task->finish, "length") == 0 && !(r->part == PART_CALL && speech->calls[speech->n_calls - 1].whole);
        end_item(r, &out);
        if (r->store)
            keep(request, r);
    }
    if (task->finish && r->head.stream)
        add_response_event(request, r, strcmp(task->finish, "length") ? "response.completed" : "response.incomplete", &out);
    if (!r->head.stream) {
        out.length = 0; // the events are nobody's
        json_open(&out, NULL, '{');
        add_response(request, r, task, &out);
        json_close(&out, "}");
    }
    out.failed |= r->output.failed;
    if (out.length || out.failed)
        request_send(request, &out);
}

void handle_responses(struct request *request)
{
    struct responses *r = request_api(request, sizeof *r, free_responses, progress);
    if (r == NULL)
        return;
    request->begin = begin;
    request->id = r->head.id;
    if (read_request(request, r))
        generation_start(request, r->head.stream);
}

// ---------------------------------------------------------------- those that are kept

static void send(struct request *request, cJSON *json)
{
    struct buffer out = {0};
    char *text = json ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (text) {
        buffer_text(&out, text);
        free(text);
        request_send_all(request, &out);
    } else
        request_fail(request, 404, "no such response is kept here");
}

void handle_response(struct request *request)
{
    send(request, store_response(request->server->store, strstr(request->path, "/responses/") + 11));
}

void handle_delete_response(struct request *request)
{
    const char *id = strstr(request->path, "/responses/") + 11;
    cJSON *json = store_remove(request->server->store, id) ? cJSON_CreateObject() : NULL;
    if (json) {
        cJSON_AddStringToObject(json, "id", id);
        cJSON_AddStringToObject(json, "object", "response");
        cJSON_AddTrueToObject(json, "deleted");
    }
    send(request, json);
}
