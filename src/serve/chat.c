// /v1/chat/completions and /apply-template.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/openai.h"

struct chat {
    struct openai head;
    struct dialogue dialogue;
    struct streamed { // of a task
        struct told told;
        size_t scores;
        bool begun;
    } * streamed; // (n_tasks), owned
};

static void free_chat(void *api)
{
    struct chat *chat = api;
    dialogue_free(&chat->dialogue);
    free(chat->streamed);
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
    if (top >= 0 && !wanted) {
        request_fail(request, 400, "'top_logprobs' goes with 'logprobs': true");
        return false;
    }
    request->how->options.n_likely = !wanted ? -1 : top < 0 ? 0 : (int)top;
    return true;
}

static bool read_chat(struct request *request, struct chat *chat)
{
    if (!generation_read(request, "stop") || !openai_begin(request, &chat->head, "chatcmpl-") || !read_logprobs(request) ||
        !body_integer(request, request->json, "max_completion_tokens", -1, INT32_MAX, &request->how->options.max_tokens) ||
        !body_refuse(request, request->json, "functions", "an older form of 'tools', which are read here") ||
        !dialogue_read_openai(request, &chat->dialogue, false))
        return false;
    chat->head.object = chat->head.stream ? "chat.completion.chunk" : "chat.completion";
    return dialogue_force_call(request, &chat->dialogue) && generation_read_format(request) &&
           dialogue_prompt(request, &chat->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- log probabilities

static void add_logprobs(const struct task *task, size_t from, struct buffer *out)
{
    if (task->request->how->options.n_likely < 0 || from == task->generator.scores.n) {
        buffer_text(out, ",\"logprobs\":null");
        return;
    }
    buffer_text(out, ",\"logprobs\":{\"content\":");
    openai_scores(task, from, out);
    buffer_text(out, "}");
}

// ---------------------------------------------------------------- the answer

static const char *finish_of(const struct task *task)
{
    return task->generator.speech.n_calls && strcmp(task->finish, "stop") == 0 ? "tool_calls" : task->finish;
}

static void add_choice(const struct chat *chat, const struct task *task, struct buffer *out)
{
    const struct speech *speech = &task->generator.speech;
    buffer_format(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", task->choice);
    if (speech->n_calls && speech->content.length == 0)
        buffer_text(out, "null");
    else
        buffer_json(out, speech->content.at, speech->content.length);
    if (speech->reasoning.length) {
        buffer_text(out, ",\"reasoning_content\":");
        buffer_json(out, speech->reasoning.at, speech->reasoning.length);
    }
    for (int i = 0; i < speech->n_calls; i++) {
        const struct call *call = &speech->calls[i];
        buffer_text(out, i ? "," : ",\"tool_calls\":[");
        openai_call_head(out, &chat->head, task, i, (struct span){call->name.at, call->name.length});
        buffer_text(out, ",\"arguments\":");
        buffer_json(out, call->arguments.length ? call->arguments.at : "{}",
                    call->arguments.length ? call->arguments.length : 2);
        buffer_text(out, "}}");
    }
    buffer_text(out, speech->n_calls ? "]}" : "}");
    add_logprobs(task, 0, out);
    buffer_format(out, ",\"finish_reason\":\"%s\"}", finish_of(task));
}

// One event: a change of the message, or its end.
static void send_delta(struct request *request, const struct chat *chat, const struct task *task, struct streamed *streamed,
                       struct buffer *delta, const char *finish)
{
    struct buffer json = {0};
    openai_head(request, &chat->head, &json);
    buffer_format(&json, ",\"choices\":[{\"index\":%d,\"delta\":{", task->choice);
    buffer_add(&json, delta->at, delta->length);
    buffer_text(&json, "}");
    add_logprobs(task, streamed->begun ? streamed->scores : task->generator.scores.n,
                 &json); // the first event tells the role alone
    streamed->scores = streamed->begun ? task->generator.scores.n : 0;
    buffer_format(&json, finish ? ",\"finish_reason\":\"%s\"}]" : ",\"finish_reason\":%s}]", finish ? finish : "null");
    buffer_text(&json, chat->head.usage ? ",\"usage\":null}" : "}");
    json.failed |= delta->failed;
    buffer_free(delta);
    openai_event(request, &json);
}

static void add_piece(const struct chat *chat, const struct task *task, const struct piece *piece, struct buffer *delta)
{
    if (piece->part == PART_CALL) {
        buffer_text(delta, "\"tool_calls\":[");
        openai_call_head(delta, &chat->head, task, piece->call, piece->text);
        buffer_text(delta, ",\"arguments\":\"\"}}]");
        return;
    }
    if (piece->part == PART_ARGUMENTS)
        buffer_format(delta, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", piece->call);
    else
        buffer_text(delta, piece->part == PART_TEXT ? "\"content\":" : "\"reasoning_content\":");
    buffer_json(delta, piece->text.at, piece->text.length);
    buffer_text(delta, piece->part == PART_ARGUMENTS ? "}}]" : "");
}

static void stream_progress(struct request *request, const struct chat *chat, const struct task *task)
{
    struct streamed *streamed = &chat->streamed[task - request->tasks];
    struct buffer delta = {0};
    struct piece piece;
    if (!streamed->begun) {
        buffer_text(&delta, "\"role\":\"assistant\",\"content\":null");
        send_delta(request, chat, task, streamed, &delta, NULL);
        streamed->begun = true;
    }
    while (speech_news(&task->generator.speech, &streamed->told, &piece)) {
        add_piece(chat, task, &piece, &delta);
        send_delta(request, chat, task, streamed, &delta, NULL);
    }
    if (task->finish)
        send_delta(request, chat, task, streamed, &delta, finish_of(task));
    if (request->n_finished == request->n_tasks && task->finish)
        openai_done(request, &chat->head);
}

static void progress(struct request *request, struct task *task)
{
    const struct chat *chat = request->api;
    struct buffer json = {0};
    if (chat->head.stream) {
        stream_progress(request, chat, task);
        return;
    }
    if (task->finish == NULL || request->n_finished < request->n_tasks)
        return;
    openai_head(request, &chat->head, &json);
    buffer_text(&json, ",\"choices\":[");
    for (int i = 0; i < request->n_tasks; i++) {
        buffer_text(&json, i ? "," : "");
        add_choice(chat, &request->tasks[i], &json);
    }
    buffer_text(&json, "]");
    openai_usage(request, &json);
    if (request->n_tasks == 1)
        openai_timings(task, &json);
    buffer_text(&json, "}");
    request_send(request, &json);
}

void handle_chat(struct request *request)
{
    struct chat *chat = calloc(1, sizeof *chat);
    if (chat == NULL) {
        request_fail(request, 503, "out of memory for a request");
        return;
    }
    request->api = chat;
    request->free_api = free_chat;
    request->progress = progress;
    if (!read_chat(request, chat))
        return;
    chat->streamed = calloc((size_t)request->how->n_choices, sizeof *chat->streamed);
    if (chat->streamed)
        generation_start(request, chat->head.stream);
    else
        request_fail(request, 503, "out of memory for a request");
}

void handle_apply_template(struct request *request)
{
    struct dialogue dialogue;
    struct buffer out = {0};
    char *text;
    size_t length;
    if (dialogue_read_openai(request, &dialogue, true) && dialogue_render(request, &dialogue, &text, &length)) {
        buffer_text(&out, "{\"prompt\":");
        buffer_json(&out, text, length);
        buffer_text(&out, "}");
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
        struct buffer out = {0};
        buffer_format(&out, "{\"input_tokens\":%zu}", request->how->prompts[0].n);
        request_send_all(request, &out);
    }
    dialogue_free(&dialogue);
}
