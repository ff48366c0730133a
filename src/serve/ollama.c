// Ollama's API: /api/chat, /api/generate, and what its clients ask of the model. A stream is a line of JSON after another.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/fim.h"
#include "util/clock.h"
#include "util/json_write.h"

struct ollama {
    struct dialogue dialogue;
    bool chats, stream; // chats: answers a conversation with a message; else a prompt with text
};

static void free_ollama(void *api)
{
    struct ollama *ollama = api;
    dialogue_free(&ollama->dialogue);
    free(ollama);
}

// ---------------------------------------------------------------- the request

// The members of "options" become the body's own, by the names that are read there.
static bool read_options(struct request *request)
{
    cJSON *options = body_take(request, "options"), *option;
    int64_t context = 0;
    if (options && !cJSON_IsObject(options)) {
        cJSON_Delete(options);
        return request_fail(request, 400, "'options': expected an object");
    }
    while (options && (option = cJSON_DetachItemFromArray(options, 0)) != NULL) {
        const bool twice = cJSON_GetObjectItemCaseSensitive(request->json, option->string) != NULL;
        if (twice)
            request_warn(request, "options.%.40s", option->string);
        if (twice || !cJSON_AddItemToObject(request->json, option->string, option))
            cJSON_Delete(option);
    }
    cJSON_Delete(options);
    if (!body_integer(request, request->json, "num_ctx", 0, INT32_MAX, &context))
        return false;
    if (context > engine_context(request->server->engine))
        request_warn(request, "num_ctx");
    int64_t length = -1; // -2: as far as the context goes
    if (!body_integer(request, request->json, "num_predict", -2, INT32_MAX, &length))
        return false;
    if (length < 0)
        cJSON_DeleteItemFromObjectCaseSensitive(request->json, "num_predict");
    body_rename(request, "num_predict", "max_tokens");
    return true;
}

// "json", or a schema.
static void read_format(struct request *request)
{
    static const char *const inner[] = {"response_format", "json_schema", NULL};
    cJSON *format = body_take(request, "format");
    body_drop(request, inner);
    if (cJSON_IsObject(format)) {
        cJSON_AddItemToObject(request->json, "json_schema", format);
        return;
    }
    if (cJSON_IsString(format) && strcmp(format->valuestring, "json") == 0)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(request->json, "response_format"), "type", "json_object");
    else if (format && !(cJSON_IsString(format) && format->valuestring[0] == 0))
        request_warn(request, "format");
    cJSON_Delete(format);
}

// A message's images cannot be read; its thoughts have another name.
static bool read_messages(struct request *request)
{
    cJSON *message;
    int number = 0;
    cJSON_ArrayForEach(message, cJSON_GetObjectItemCaseSensitive(request->json, "messages"))
    {
        number++;
        const cJSON *images = body_member(message, "images");
        if (images && !(cJSON_IsArray(images) && images->child == NULL))
            return request_fail(request, 400, "'messages', number %d: 'images': this model reads text alone", number);
        const cJSON *thinking = body_member(message, "thinking");
        if (thinking && !cJSON_IsString(thinking))
            return request_fail(request, 400, "'messages', number %d: 'thinking': expected a string", number);
        cJSON *thoughts = cJSON_DetachItemFromObjectCaseSensitive(message, "thinking");
        if (thoughts && !cJSON_AddItemToObject(message, "reasoning_content", thoughts))
            cJSON_Delete(thoughts);
    }
    return true;
}

// A prompt as the only message, behind the system's.
static void add_messages(struct request *request, const char *system, const char *prompt)
{
    body_drop(request, (const char *const[]){"messages", NULL});
    cJSON *messages = cJSON_AddArrayToObject(request->json, "messages");
    for (int i = 0; i < 2; i++) {
        const char *text = i == 0 ? system : prompt;
        cJSON *message = text ? cJSON_CreateObject() : NULL;
        if (message == NULL)
            continue;
        cJSON_AddStringToObject(message, "role", i == 0 ? "system" : "user");
        cJSON_AddStringToObject(message, "content", text);
        cJSON_AddItemToArray(messages, message);
    }
}

static bool read_prompt(struct request *request, struct ollama *ollama)
{
    bool raw = yalm_model_facts(request->server->model)->chat_template == NULL;
    const char *prompt = "", *suffix = NULL, *system = NULL;
    if (!body_bool(request, request->json, "raw", &raw) || !body_string(request, request->json, "prompt", &prompt) ||
        !body_string(request, request->json, "suffix", &suffix) || !body_string(request, request->json, "system", &system) ||
        !body_refuse(request, request->json, "images", "this model reads text alone") ||
        !body_refuse(request, request->json, "template", "the model's own is used; 'raw' leaves it out"))
        return false;
    if (suffix && *suffix)
        return generation_read_format(request) && fim_prompt(request, prompt, suffix, "", NULL);
    if (!raw) {
        add_messages(request, system, prompt);
        return dialogue_read_openai(request, &ollama->dialogue, false) && dialogue_prompt(request, &ollama->dialogue);
    }
    if (system)
        request_warn(request, "system");
    return generation_read_format(request) && generation_read_prompts(request);
}

static bool read_request(struct request *request, struct ollama *ollama)
{
    ollama->stream = true;
    if (!body_bool(request, request->json, "stream", &ollama->stream) || !read_options(request))
        return false;
    read_format(request);
    if (!generation_read(request, "stop"))
        return false;
    request->how->n_choices = 1;
    if (!ollama->chats)
        return read_prompt(request, ollama) && generation_fit(request);
    return read_messages(request) && dialogue_read_openai(request, &ollama->dialogue, false) &&
           dialogue_prompt(request, &ollama->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

static void add_time(struct buffer *out, const char *key, long seconds)
{
    char text[40];
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
    json_text(out, key, text);
}

static void add_head(const struct request *request, struct buffer *out)
{
    json_open(out, NULL, '{');
    json_text(out, "model", yalm_model_facts(request->server->model)->name);
    add_time(out, "created_at", (long)time(NULL));
}

static long long nanoseconds(double seconds)
{
    return seconds > 0 ? (long long)(seconds * 1e9) : 0;
}

static void add_end(const struct task *task, struct buffer *out)
{
    const struct generator *g = &task->generator;
    const double first = g->first_token > 0 ? g->first_token : g->ended;
    json_flag(out, "done", true);
    json_text(out, "done_reason", task->finish);
    json_integer(out, "total_duration", nanoseconds(g->ended - task->request->began));
    json_integer(out, "load_duration", 0);
    json_integer(out, "prompt_eval_count", (long long)g->n_prompt);
    json_integer(out, "prompt_eval_duration", nanoseconds(first - g->began));
    json_integer(out, "eval_count", (long long)g->n_generated);
    json_integer(out, "eval_duration", nanoseconds(g->ended - first));
}

static void add_call(const struct call *call, struct buffer *out)
{
    char *arguments = call->whole ? strndup(call->arguments.at, call->arguments.length) : NULL;
    cJSON *parsed = arguments ? cJSON_Parse(arguments) : NULL;
    if (arguments)
        cJSON_Minify(arguments); // a line holds all
    json_open(out, NULL, '{');
    json_open(out, "function", '{');
    json_bytes(out, "name", call->name.at, call->name.length);
    json_raw(out, "arguments", cJSON_IsObject(parsed) ? "" : "{}");
    buffer_text(out, cJSON_IsObject(parsed) ? arguments : "");
    json_close(out, "}}");
    cJSON_Delete(parsed);
    free(arguments);
}

// The text and the thoughts that have not been sent yet, and at the end the calls. A call is told whole.
static void add_part(const struct ollama *ollama, struct task *task, struct buffer *out)
{
    const struct speech *speech = &task->generator.speech;
    struct told *told = &task->sent.told;
    const struct buffer *text = task->request->how->options.parts ? &speech->content : &task->generator.text;
    const size_t shown = task->request->how->options.parts ? text->length : task->generator.shown;
    if (ollama->chats) {
        json_open(out, "message", '{');
        json_text(out, "role", "assistant");
    }
    json_bytes(out, ollama->chats ? "content" : "response", shown ? text->at + told->content : "", shown - told->content);
    if (speech->reasoning.length > told->reasoning)
        json_bytes(out, "thinking", speech->reasoning.at + told->reasoning, speech->reasoning.length - told->reasoning);
    told->content = shown;
    told->reasoning = speech->reasoning.length;
    if (task->finish && speech->n_calls) {
        json_open(out, "tool_calls", '[');
        for (int i = 0; i < speech->n_calls; i++)
            add_call(&speech->calls[i], out);
        json_close(out, "]");
    }
    json_close(out, ollama->chats ? "}" : "");
}

static bool has_news(const struct task *task)
{
    const bool parts = task->request->how->options.parts;
    const struct generator *g = &task->generator;
    return (parts ? g->speech.content.length : g->shown) > task->sent.told.content ||
           g->speech.reasoning.length > task->sent.told.reasoning;
}

static void progress(struct request *request, struct task *task)
{
    struct ollama *ollama = request->api;
    struct buffer out = {0};
    if (task->finish == NULL && !(ollama->stream && has_news(task)))
        return;
    if (!ollama->stream || task->finish == NULL || has_news(task) || task->generator.speech.n_calls) {
        add_head(request, &out);
        add_part(ollama, task, &out);
        if (ollama->stream) {
            json_flag(&out, "done", false);
            json_close(&out, "}\n");
        }
    }
    if (task->finish && ollama->stream) {
        add_head(request, &out);
        if (ollama->chats)
            json_raw(&out, "message", "{\"role\":\"assistant\",\"content\":\"\"}");
        else
            json_text(&out, "response", "");
    }
    if (task->finish) {
        add_end(task, &out);
        json_close(&out, ollama->stream ? "}\n" : "}");
    }
    request_send(request, &out);
}

// A request without a prompt only wants the model to be there, and so it is.
static bool wants_model_alone(struct request *request, bool chats)
{
    const cJSON *asked = body_member(request->json, chats ? "messages" : "prompt");
    if ((asked && (asked->child || (cJSON_IsString(asked) && asked->valuestring[0]))) ||
        (!chats && body_member(request->json, "suffix")))
        return false;
    if (asked && !cJSON_IsArray(asked) && !cJSON_IsString(asked))
        return false;
    struct buffer out = {0};
    add_head(request, &out);
    if (chats)
        json_raw(&out, "message", "{\"role\":\"assistant\",\"content\":\"\"}");
    else
        json_text(&out, "response", "");
    json_flag(&out, "done", true);
    json_text(&out, "done_reason", "load");
    json_close(&out, "}");
    request_send_all(request, &out);
    return true;
}

static void answer(struct request *request, bool chats)
{
    if (wants_model_alone(request, chats))
        return;
    struct ollama *ollama = request_api(request, sizeof *ollama, free_ollama, progress);
    if (ollama == NULL)
        return;
    ollama->chats = chats;
    if (read_request(request, ollama))
        generation_start(request, ollama->stream);
}

void handle_ollama_chat(struct request *request)
{
    answer(request, true);
}

void handle_ollama_generate(struct request *request)
{
    answer(request, false);
}

// ---------------------------------------------------------------- the model

static void add_details(const yalm_model_info *facts, struct buffer *out)
{
    json_open(out, "details", '{');
    json_text(out, "parent_model", "");
    json_text(out, "format", "yalm");
    json_text(out, "family", facts->architecture);
    json_open(out, "families", '[');
    json_text(out, NULL, facts->architecture);
    json_close(out, "]");
    json_raw(out, "parameter_size", "\"%.2fM\"", (double)facts->n_params / 1e6);
    json_text(out, "quantization_level", facts->weight_dtype);
    json_close(out, "}");
}

// The one model that there is, and that is loaded.
static void list_model(struct request *request, bool loaded)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_open(&out, "models", '[');
    json_open(&out, NULL, '{');
    json_text(&out, "name", facts->name);
    json_text(&out, "model", facts->name);
    add_time(&out, "modified_at", request->server->created);
    json_integer(&out, "size", (long long)facts->file_bytes);
    json_raw(&out, "digest", "\"%016llx\"", (unsigned long long)facts->checksum);
    add_details(facts, &out);
    json_integer(&out, "context_length", engine_context(request->server->engine));
    if (loaded)
        add_time(&out, "expires_at", request->server->created + 100L * 365 * 24 * 3600); // never
    json_close(&out, "}]}");
    request_send_all(request, &out);
}

void handle_ollama_tags(struct request *request)
{
    list_model(request, false);
}

void handle_ollama_ps(struct request *request)
{
    list_model(request, true);
}

void handle_ollama_show(struct request *request)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    add_time(&out, "modified_at", request->server->created);
    json_text(&out, "modelfile", "");
    json_text(&out, "parameters", "");
    json_text(&out, "template", facts->chat_template ? facts->chat_template : "");
    add_details(facts, &out);
    json_open(&out, "model_info", '{');
    json_text(&out, "general.architecture", "yalm");
    json_integer(&out, "general.parameter_count", facts->n_params);
    json_integer(&out, "yalm.context_length", facts->context_length);
    json_integer(&out, "yalm.embedding_length", facts->hidden_dim);
    json_integer(&out, "yalm.block_count", facts->n_layers);
    json_close(&out, "}");
    json_open(&out, "capabilities", '[');
    json_text(&out, NULL, "completion");
    if (request->server->calls.form.known)
        json_text(&out, NULL, "tools");
    if (facts->chat_template && strstr(facts->chat_template, "think"))
        json_text(&out, NULL, "thinking");
    if (fim_is_known(request->server->model))
        json_text(&out, NULL, "insert");
    json_close(&out, "]}");
    request_send_all(request, &out);
}

void handle_ollama_version(struct request *request)
{
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_raw(&out, "version", "\"%d.%d.%d\"", YALM_VERSION_MAJOR, YALM_VERSION_MINOR, YALM_VERSION_PATCH);
    json_close(&out, "}");
    request_send_all(request, &out);
}
