// Anthropic's /v1/messages and /v1/messages/count_tokens.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/openai.h"

enum block_kind { NO_BLOCK, THINKING, TEXT, CALL };

struct messages {
    struct openai head; // its id and stream
    struct dialogue dialogue;
    // Of a stream: the block that is open, its number, and what has gone out.
    enum block_kind block;
    int n_blocks;
    struct told told;
    bool begun;
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
    if (request->how->options.max_tokens < 1) {
        request_fail(request, 400, "'max_tokens': expected an integer of 1 or more");
        return false;
    }
    request->how->n_choices = 1;
    return dialogue_force_call(request, &messages->dialogue) && generation_read_format(request) &&
           dialogue_prompt(request, &messages->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- parts of the answer

static void add_usage(const struct task *task, struct buffer *out)
{
    const size_t prompt = task->request->how->prompts[0].n;
    buffer_format(out,
                  "\"usage\":{\"input_tokens\":%zu,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%zu,"
                  "\"output_tokens\":%zu}",
                  prompt - task->generator.n_cached, task->generator.n_cached, task->generator.n_generated);
}

static void add_head(const struct request *request, const struct messages *messages, struct buffer *out)
{
    const char *name = yalm_model_facts(request->server->model)->name;
    buffer_format(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", messages->head.id);
    buffer_json(out, name, strlen(name));
}

static void add_stop(const struct task *task, struct buffer *out)
{
    const char *reason = strcmp(task->finish, "length") == 0 ? "max_tokens"
                         : task->generator.stop_string       ? "stop_sequence"
                         : task->generator.speech.n_calls    ? "tool_use"
                                                             : "end_turn";
    buffer_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (task->generator.stop_string)
        buffer_json(out, task->generator.stop_string, strlen(task->generator.stop_string));
    else
        buffer_text(out, "null");
}

static void add_call(const struct messages *messages, int i, struct span name, struct buffer *out)
{
    buffer_format(out, "{\"type\":\"tool_use\",\"id\":\"%s%02x\",\"name\":", messages->head.id + strlen(messages->head.id) - 7,
                  i);
    buffer_json(out, name.at, name.length);
}

// The arguments as JSON; an empty object where they are none, as when the text was cut off.
static void add_input(const struct call *call, struct buffer *out)
{
    cJSON *input = call->whole ? cJSON_ParseWithLength(call->arguments.at, call->arguments.length) : NULL;
    buffer_text(out, ",\"input\":");
    if (cJSON_IsObject(input))
        buffer_add(out, call->arguments.at, call->arguments.length);
    else
        buffer_text(out, "{}");
    buffer_text(out, "}");
    cJSON_Delete(input);
}

static void send_whole(struct request *request, const struct messages *messages, const struct task *task)
{
    const struct speech *speech = &task->generator.speech;
    struct buffer out = {0};
    const char *comma = "";
    add_head(request, messages, &out);
    buffer_text(&out, ",\"content\":[");
    if (speech->reasoning.length) {
        buffer_text(&out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        buffer_json(&out, speech->reasoning.at, speech->reasoning.length);
        buffer_text(&out, "}");
        comma = ",";
    }
    if (speech->content.length) {
        buffer_format(&out, "%s{\"type\":\"text\",\"text\":", comma);
        buffer_json(&out, speech->content.at, speech->content.length);
        buffer_text(&out, "}");
        comma = ",";
    }
    for (int i = 0; i < speech->n_calls; i++, comma = ",") {
        buffer_text(&out, comma);
        const struct call *call = &speech->calls[i];
        add_call(messages, i, (struct span){call->name.at, call->name.length}, &out);
        add_input(call, &out);
    }
    buffer_text(&out, "],");
    add_stop(task, &out);
    buffer_text(&out, ",");
    add_usage(task, &out);
    buffer_text(&out, "}");
    request_send(request, &out);
}

// ---------------------------------------------------------------- the stream

static void begin_event(struct buffer *out, const char *type)
{
    buffer_format(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_block(struct messages *messages, struct buffer *out)
{
    if (messages->block == NO_BLOCK)
        return;
    begin_event(out, "content_block_stop");
    buffer_format(out, ",\"index\":%d}\n\n", messages->n_blocks++);
    messages->block = NO_BLOCK;
}

// In the place of the one that is open.
static void begin_block(struct messages *messages, enum block_kind kind, const struct piece *piece, struct buffer *out)
{
    end_block(messages, out);
    messages->block = kind;
    begin_event(out, "content_block_start");
    buffer_format(out, ",\"index\":%d,\"content_block\":", messages->n_blocks);
    if (kind == CALL)
        add_call(messages, piece->call, piece->text, out);
    else
        buffer_text(out, kind == TEXT ? "{\"type\":\"text\",\"text\":\"\""
                                      : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"");
    buffer_text(out, kind == CALL ? ",\"input\":{}}}\n\n" : "}}\n\n");
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
    buffer_format(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", messages->n_blocks, deltas[piece->part].type,
                  deltas[piece->part].key);
    buffer_json(out, piece->text.at, piece->text.length);
    buffer_text(out, "}}\n\n");
}

static void stream_parts(struct request *request, struct messages *messages, const struct task *task)
{
    struct buffer out = {0};
    struct piece piece;
    if (!messages->begun) {
        begin_event(&out, "message_start");
        buffer_text(&out, ",\"message\":");
        add_head(request, messages, &out);
        buffer_text(&out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
        add_usage(task, &out);
        buffer_text(&out, "}}\n\n");
        messages->begun = true;
    }
    while (speech_news(&task->generator.speech, &messages->told, &piece))
        add_piece(messages, &piece, &out);
    if (task->finish) {
        end_block(messages, &out);
        begin_event(&out, "message_delta");
        buffer_text(&out, ",\"delta\":{");
        add_stop(task, &out);
        buffer_text(&out, "},");
        add_usage(task, &out);
        buffer_text(&out, "}\n\n");
        begin_event(&out, "message_stop");
        buffer_text(&out, "}\n\n");
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
    struct messages *messages = calloc(1, sizeof *messages);
    if (messages == NULL) {
        request_fail(request, 503, "out of memory for a request");
        return;
    }
    request->api = messages;
    request->free_api = free_messages;
    request->progress = progress;
    if (read_messages(request, messages))
        generation_start(request, messages->head.stream);
}

void handle_count_tokens(struct request *request)
{
    struct dialogue dialogue = {0};
    if (generation_read(request, "stop_sequences") && dialogue_read_anthropic(request, &dialogue) &&
        dialogue_prompt(request, &dialogue)) {
        struct buffer out = {0};
        buffer_format(&out, "{\"input_tokens\":%zu}", request->how->prompts[0].n);
        request_send_all(request, &out);
    }
    dialogue_free(&dialogue);
}
