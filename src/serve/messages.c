// Anthropic's /v1/messages and /v1/messages/count_tokens.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/openai.h"
#include "util/json_write.h"

enum block_kind { NO_BLOCK, THINKING, TEXT, CALL };

struct messages {
    struct openai head; // its id and stream
    struct dialogue dialogue;
    // Of a stream: the block that is open, and its number.
    enum block_kind block;
    int n_blocks;
};

static void free_messages(void *api)
{
    struct messages *messages = api;
    dialogue_free(&messages->dialogue);
    free(messages);
}

// ---------------------------------------------------------------- the request

static bool read_messages(struct request *request, struct messages *messages)
{
    if (!generation_read(request, "stop_sequences") || !openai_begin(request, &messages->head, "msg_") ||
        !dialogue_read_anthropic(request, &messages->dialogue))
        return false;
    if (request->how->options.max_tokens < 1)
        return request_fail(request, 400, "'max_tokens': expected an integer of 1 or more");
    request->how->n_choices = 1;
    return dialogue_prompt(request, &messages->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- parts of the answer

static void add_usage(const struct task *task, struct buffer *out)
{
    const struct generator *g = &task->generator;
    json_open(out, "usage", '{');
    json_integer(out, "input_tokens", (long long)(g->n_prompt - g->n_cached));
    json_integer(out, "cache_creation_input_tokens", 0);
    json_integer(out, "cache_read_input_tokens", (long long)g->n_cached);
    json_integer(out, "output_tokens", (long long)g->n_generated);
    json_close(out, "}");
}

static void add_head(const struct request *request, const struct messages *messages, const char *key, struct buffer *out)
{
    json_open(out, key, '{');
    json_text(out, "id", messages->head.id);
    json_text(out, "type", "message");
    json_text(out, "role", "assistant");
    json_text(out, "model", yalm_model_facts(request->server->model)->name);
}

static void add_stop(const struct task *task, struct buffer *out)
{
    const char *reason = strcmp(task->finish, "length") == 0 ? "max_tokens"
                         : task->generator.stop_string       ? "stop_sequence"
                         : task->generator.speech.n_calls    ? "tool_use"
                                                             : "end_turn";
    json_text(out, "stop_reason", reason);
    json_text(out, "stop_sequence", task->generator.stop_string);
}

// A block, whose object stays open.
static void open_block(struct buffer *out, const char *key, const char *type)
{
    json_open(out, key, '{');
    json_text(out, "type", type);
}

static void open_call(struct buffer *out, const char *key, const struct messages *messages, int i, struct span name)
{
    open_block(out, key, "tool_use");
    json_raw(out, "id", "\"%s%02x\"", messages->head.id + strlen(messages->head.id) - 7, (unsigned)i);
    json_bytes(out, "name", name.at, name.length);
}

// The arguments as JSON; an empty object where they are none, as when the text was cut off.
static void add_input(const struct call *call, struct buffer *out)
{
    cJSON *input = call->whole ? body_parse_text(call->arguments.at, call->arguments.length) : NULL;
    json_raw(out, "input", cJSON_IsObject(input) ? "" : "{}");
    if (cJSON_IsObject(input))
        buffer_add(out, call->arguments.at, call->arguments.length);
    cJSON_Delete(input);
}

static void send_whole(struct request *request, const struct messages *messages, const struct task *task)
{
    const struct speech *speech = &task->generator.speech;
    struct buffer out = {0};
    add_head(request, messages, NULL, &out);
    json_open(&out, "content", '[');
    if (speech->reasoning.length) {
        open_block(&out, NULL, "thinking");
        json_text(&out, "signature", "");
        json_bytes(&out, "thinking", speech->reasoning.at, speech->reasoning.length);
        json_close(&out, "}");
    }
    if (speech->content.length) {
        open_block(&out, NULL, "text");
        json_bytes(&out, "text", speech->content.at, speech->content.length);
        json_close(&out, "}");
    }
    for (int i = 0; i < speech->n_calls; i++) {
        const struct call *call = &speech->calls[i];
        open_call(&out, NULL, messages, i, (struct span){call->name.at, call->name.length});
        add_input(call, &out);
        json_close(&out, "}");
    }
    json_close(&out, "]");
    add_stop(task, &out);
    add_usage(task, &out);
    json_close(&out, "}");
    request_send(request, &out);
}

// ---------------------------------------------------------------- the stream

static void begin_event(struct buffer *out, const char *type)
{
    buffer_format(out, "event: %s\ndata: ", type);
    json_open(out, NULL, '{');
    json_text(out, "type", type);
}

static void end_event(struct buffer *out)
{
    json_close(out, "}\n\n");
}

static void end_block(struct messages *messages, struct buffer *out)
{
    if (messages->block == NO_BLOCK)
        return;
    begin_event(out, "content_block_stop");
    json_integer(out, "index", messages->n_blocks++);
    end_event(out);
    messages->block = NO_BLOCK;
}

// In the place of the one that is open.
static void begin_block(struct messages *messages, enum block_kind kind, const struct piece *piece, struct buffer *out)
{
    end_block(messages, out);
    messages->block = kind;
    begin_event(out, "content_block_start");
    json_integer(out, "index", messages->n_blocks);
    if (kind == CALL) {
        open_call(out, "content_block", messages, piece->call, piece->text);
        json_raw(out, "input", "{}");
    } else {
        open_block(out, "content_block", kind == TEXT ? "text" : "thinking");
        json_text(out, kind == TEXT ? "text" : "thinking", "");
        if (kind == THINKING)
            json_text(out, "signature", "");
    }
    json_close(out, "}");
    end_event(out);
}

static void add_piece(struct messages *messages, const struct piece *piece, struct buffer *out)
{
    static const struct {
        enum block_kind block;
        const char *type, *key;
    } deltas[] = {[PART_REASONING] = {THINKING, "thinking_delta", "thinking"},
                  [PART_TEXT] = {TEXT, "text_delta", "text"},
                  [PART_CALL] = {CALL, NULL, NULL},
                  [PART_ARGUMENTS] = {CALL, "input_json_delta", "partial_json"}};
    if (piece->part == PART_CALL || messages->block != deltas[piece->part].block)
        begin_block(messages, deltas[piece->part].block, piece, out);
    if (piece->part == PART_CALL)
        return;
    begin_event(out, "content_block_delta");
    json_integer(out, "index", messages->n_blocks);
    open_block(out, "delta", deltas[piece->part].type);
    json_bytes(out, deltas[piece->part].key, piece->text.at, piece->text.length);
    json_close(out, "}");
    end_event(out);
}

// The usage here has all of the prompt's tokens; what a session held of them, the last events tell.
static void begin(struct request *request)
{
    struct buffer out = {0};
    begin_event(&out, "message_start");
    add_head(request, request->api, "message", &out);
    json_raw(&out, "content", "[]");
    json_raw(&out, "stop_reason", "null");
    json_raw(&out, "stop_sequence", "null");
    add_usage(&request->tasks[0], &out);
    json_close(&out, "}");
    end_event(&out);
    request_send(request, &out);
}

static void stream_parts(struct request *request, struct messages *messages, struct task *task)
{
    struct buffer out = {0};
    struct piece piece;
    while (speech_news(&task->generator.speech, &task->sent.told, &piece))
        add_piece(messages, &piece, &out);
    if (task->finish) {
        end_block(messages, &out);
        begin_event(&out, "message_delta");
        json_open(&out, "delta", '{');
        add_stop(task, &out);
        json_close(&out, "}");
        add_usage(task, &out);
        end_event(&out);
        begin_event(&out, "message_stop");
        end_event(&out);
    }
    if (out.length || out.failed)
        request_send(request, &out);
}

static void progress(struct request *request, struct task *task)
{
    struct messages *messages = request->api;
    if (!messages->head.stream && task->finish == NULL)
        return;
    if (messages->head.stream)
        stream_parts(request, messages, task);
    else
        send_whole(request, messages, task);
}

void handle_messages(struct request *request)
{
    struct messages *messages = request_api(request, sizeof *messages, free_messages, progress);
    request->begin = begin;
    if (messages && read_messages(request, messages))
        generation_start(request, messages->head.stream);
}

void handle_count_tokens(struct request *request)
{
    struct dialogue dialogue = {0};
    if (generation_read(request, "stop_sequences") && dialogue_read_anthropic(request, &dialogue) &&
        dialogue_prompt(request, &dialogue)) {
        openai_count(request);
    }
    dialogue_free(&dialogue);
}
