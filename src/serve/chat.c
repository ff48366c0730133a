// /v1/chat/completions and /apply-template.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/openai.h"
#include "util/json_write.h"

struct chat_request {
    struct openai head;
    struct dialogue dialogue;
};

static void free_chat(void *api)
{
    struct chat_request *chat = api;
    dialogue_free(&chat->dialogue);
    free(chat);
}

// ---------------------------------------------------------------- the request

static bool read_logprobs(struct request *request)
{
    bool wanted = false;
    int64_t top = -1;
    if (!body_bool(request, request->json, "logprobs", &wanted) ||
        !body_integer(request, request->json, "top_logprobs", 0, MAX_TOP, &top))
        return false;
    if (top >= 0 && !wanted)
        return request_fail(request, 400, "'top_logprobs' goes with 'logprobs': true");
    request->how->options.n_likely = !wanted ? -1 : top < 0 ? 0 : (int)top;
    return true;
}

static bool read_chat(struct request *request, struct chat_request *chat)
{
    if (!generation_read(request, "stop") || !openai_begin(request, &chat->head, "chatcmpl-") || !read_logprobs(request) ||
        !body_integer(request, request->json, "max_completion_tokens", -1, INT32_MAX, &request->how->options.max_tokens) ||
        !body_refuse(request, request->json, "functions", "an older form of 'tools', which are read here") ||
        !body_refuse(request, request->json, "function_call", "an older form of 'tool_choice', which is read here") ||
        !dialogue_read_openai(request, &chat->dialogue, false))
        return false;
    chat->head.object = chat->head.stream ? "chat.completion.chunk" : "chat.completion";
    return dialogue_prompt(request, &chat->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

static void add_logprobs(const struct task *task, size_t from, struct buffer *out)
{
    const struct chat_request *chat = task->request->api;
    if (task->request->how->options.n_likely < 0 || (chat->head.stream && from == task->generator.scores.n)) {
        json_raw(out, "logprobs", "null");
        return;
    }
    json_open(out, "logprobs", '{');
    openai_scores(out, "content", task, from);
    json_close(out, "}");
}

static const char *finish_of(const struct task *task)
{
    return task->generator.speech.n_calls && strcmp(task->finish, "stop") == 0 ? "tool_calls" : task->finish;
}

static void add_calls(const struct chat_request *chat, const struct task *task, struct buffer *out)
{
    const struct speech *speech = &task->generator.speech;
    json_open(out, "tool_calls", '[');
    for (int i = 0; i < speech->n_calls; i++) {
        const struct call *call = &speech->calls[i];
        const struct span arguments = {call->arguments.at, call->arguments.length}, none = {"{}", call->whole ? 2 : 0};
        openai_call(out, &chat->head, task, i, (struct span){call->name.at, call->name.length},
                    arguments.length ? arguments : none);
    }
    json_close(out, "]");
}

static void add_choice(const struct chat_request *chat, const struct task *task, struct buffer *out)
{
    const struct speech *speech = &task->generator.speech;
    json_open(out, NULL, '{');
    json_integer(out, "index", task->choice);
    json_open(out, "message", '{');
    json_text(out, "role", "assistant");
    if (speech->n_calls && speech->content.length == 0)
        json_raw(out, "content", "null");
    else
        json_bytes(out, "content", speech->content.at, speech->content.length);
    if (speech->reasoning.length)
        json_bytes(out, "reasoning_content", speech->reasoning.at, speech->reasoning.length);
    if (speech->n_calls)
        add_calls(chat, task, out);
    json_close(out, "}");
    add_logprobs(task, 0, out);
    json_text(out, "finish_reason", finish_of(task));
    json_close(out, "}");
}

// One event: a change of the message, or its end.
static void send_delta(struct request *request, const struct chat_request *chat, struct task *task, struct buffer *delta,
                       const char *finish)
{
    struct sent *sent = &task->sent;
    struct buffer json = {0};
    openai_head(request, &chat->head, &json);
    json_open(&json, "choices", '[');
    json_open(&json, NULL, '{');
    json_integer(&json, "index", task->choice);
    json_open(&json, "delta", '{');
    buffer_add(&json, delta->at, delta->length);
    json_close(&json, "}");
    add_logprobs(task, sent->begun ? sent->scores : task->generator.scores.n, &json); // the first event tells the role alone
    sent->scores = sent->begun ? task->generator.scores.n : 0;
    json_text(&json, "finish_reason", finish);
    json_close(&json, "}]");
    if (chat->head.usage)
        json_raw(&json, "usage", "null");
    json_close(&json, "}");
    json.failed |= delta->failed;
    buffer_free(delta);
    openai_event(request, &json);
}

static void add_piece(const struct chat_request *chat, const struct task *task, const struct piece *piece, struct buffer *delta)
{
    if (piece->part == PART_TEXT || piece->part == PART_REASONING) {
        json_bytes(delta, piece->part == PART_TEXT ? "content" : "reasoning_content", piece->text.at, piece->text.length);
        return;
    }
    json_open(delta, "tool_calls", '[');
    if (piece->part == PART_CALL)
        openai_call(delta, &chat->head, task, piece->call, piece->text, (struct span){"", 0});
    else {
        json_open(delta, NULL, '{');
        json_integer(delta, "index", piece->call);
        json_open(delta, "function", '{');
        json_bytes(delta, "arguments", piece->text.at, piece->text.length);
        json_close(delta, "}}");
    }
    json_close(delta, "]");
}

// The first event of each choice tells the role alone.
static void begin(struct request *request)
{
    for (struct task *task = request->tasks; task < request->tasks + request->n_tasks; task++) {
        struct buffer delta = {0};
        json_text(&delta, "role", "assistant");
        json_raw(&delta, "content", "null");
        send_delta(request, request->api, task, &delta, NULL);
        task->sent.begun = true;
    }
}

static void stream_progress(struct request *request, const struct chat_request *chat, struct task *task)
{
    struct sent *sent = &task->sent;
    struct buffer delta = {0};
    struct piece piece;
    while (speech_news(&task->generator.speech, &sent->told, &piece)) {
        add_piece(chat, task, &piece, &delta);
        send_delta(request, chat, task, &delta, NULL);
    }
    if (task->finish)
        send_delta(request, chat, task, &delta, finish_of(task));
    if (request->n_finished == request->n_tasks && task->finish)
        openai_done(request, &chat->head);
}

static void progress(struct request *request, struct task *task)
{
    const struct chat_request *chat = request->api;
    struct buffer json = {0};
    if (chat->head.stream) {
        stream_progress(request, chat, task);
        return;
    }
    if (task->finish == NULL || request->n_finished < request->n_tasks)
        return;
    openai_head(request, &chat->head, &json);
    json_open(&json, "choices", '[');
    for (int i = 0; i < request->n_tasks; i++)
        add_choice(chat, &request->tasks[i], &json);
    json_close(&json, "]");
    openai_usage(request, &json);
    if (request->n_tasks == 1)
        openai_timings(task, &json);
    json_close(&json, "}");
    request_send(request, &json);
}

void handle_chat(struct request *request)
{
    struct chat_request *chat = request_api(request, sizeof *chat, free_chat, progress);
    request->begin = begin;
    if (chat && read_chat(request, chat))
        generation_start(request, chat->head.stream);
}

void handle_apply_template(struct request *request)
{
    struct dialogue dialogue;
    struct buffer out = {0};
    char *text;
    size_t length;
    if (dialogue_read_openai(request, &dialogue, true) && dialogue_render(request, &dialogue, &text, &length)) {
        json_open(&out, NULL, '{');
        json_bytes(&out, "prompt", text, length);
        json_close(&out, "}");
        free(text);
        request_send_all(request, &out);
    }
    dialogue_free(&dialogue);
}

void handle_count_chat(struct request *request)
{
    struct dialogue dialogue = {0};
    if (generation_read(request, "stop") && dialogue_read_openai(request, &dialogue, true) &&
        dialogue_prompt(request, &dialogue)) {
        openai_count(request);
    }
    dialogue_free(&dialogue);
}
