// /v1/chat/completions and /apply-template.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/dialogue.h"
#include "serve/openai.h"
#include "speech/speech.h"

struct chat {
    struct openai head;
    struct dialogue dialogue;
    struct told { // of a task, in a stream
        size_t reasoning, content, scores;
        int n_calls;
        size_t arguments; // of the last call
        bool begun;
    } * told; // (n_tasks), owned
};

static void free_chat(void *api)
{
    struct chat *chat = api;
    dialogue_free(&chat->dialogue);
    free(chat->told);
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
    request->how->n_top = !wanted ? -1 : top < 0 ? 0 : (int)top;
    return true;
}

static bool read_chat(struct request *request, struct chat *chat)
{
    if (!generation_read(request, "stop") || !openai_begin(request, &chat->head, "chatcmpl-") || !read_logprobs(request) ||
        !body_integer(request, request->json, "max_completion_tokens", -1, INT32_MAX, &request->how->max_tokens) ||
        !body_refuse(request, request->json, "functions", "an older form of 'tools', which are read here") ||
        !dialogue_read_openai(request, &chat->dialogue, false))
        return false;
    chat->head.object = chat->head.stream ? "chat.completion.chunk" : "chat.completion";
    request->how->spell_control = chat->dialogue.forms != 0;
    return dialogue_force_call(request, &chat->dialogue) && generation_read_format(request) &&
           dialogue_prompt(request, &chat->dialogue) && generation_fit(request);
}

// ---------------------------------------------------------------- log probabilities

static void add_logprobs(const struct task *task, size_t from, struct buffer *out)
{
    if (task->request->how->n_top < 0 || from == task->n_scores) {
        buffer_text(out, ",\"logprobs\":null");
        return;
    }
    buffer_text(out, ",\"logprobs\":{\"content\":");
    openai_scores(task, from, out);
    buffer_text(out, "}");
}

// ---------------------------------------------------------------- the answer

static void read_speech(const struct chat *chat, const struct task *task, struct speech *speech)
{
    speech_read(speech, task->text.at, task->shown, chat->dialogue.reasoning_end, chat->dialogue.forms, task->finish != NULL);
}

static const char *finish_of(const struct task *task, const struct speech *speech)
{
    return speech->n_calls && strcmp(task->finish, "stop") == 0 ? "tool_calls" : task->finish;
}

static void add_choice(const struct chat *chat, const struct task *task, struct buffer *out)
{
    struct speech speech;
    read_speech(chat, task, &speech);
    buffer_format(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", task->choice);
    if (speech.n_calls && speech.content.length == 0)
        buffer_text(out, "null");
    else
        buffer_json(out, speech.content.at, speech.content.length);
    if (speech.reasoning.length) {
        buffer_text(out, ",\"reasoning_content\":");
        buffer_json(out, speech.reasoning.at, speech.reasoning.length);
    }
    for (int i = 0; i < speech.n_calls; i++) {
        const struct call *call = &speech.calls[i];
        buffer_text(out, i ? "," : ",\"tool_calls\":[");
        openai_call_head(out, &chat->head, task, i, call->name);
        buffer_text(out, ",\"arguments\":");
        buffer_json(out, call->arguments.length ? call->arguments.at : "{}",
                    call->arguments.length ? call->arguments.length : 2);
        buffer_text(out, "}}");
    }
    buffer_text(out, speech.n_calls ? "]}" : "}");
    add_logprobs(task, 0, out);
    buffer_format(out, ",\"finish_reason\":\"%s\"}", finish_of(task, &speech));
    out->failed |= speech.content.failed || speech.reasoning.failed;
    speech_free(&speech);
}

// One event: a change of the message, or its end.
static void send_delta(struct request *request, const struct chat *chat, const struct task *task, struct told *told,
                       struct buffer *delta, const char *finish)
{
    struct buffer json = {0};
    openai_head(request, &chat->head, &json);
    buffer_format(&json, ",\"choices\":[{\"index\":%d,\"delta\":{", task->choice);
    buffer_add(&json, delta->at, delta->length);
    buffer_text(&json, "}");
    add_logprobs(task, told->begun ? told->scores : task->n_scores, &json); // the first event tells the role alone
    told->scores = told->begun ? task->n_scores : 0;
    buffer_format(&json, finish ? ",\"finish_reason\":\"%s\"}]" : ",\"finish_reason\":%s}]", finish ? finish : "null");
    buffer_text(&json, chat->head.usage ? ",\"usage\":null}" : "}");
    json.failed |= delta->failed;
    buffer_free(delta);
    openai_event(request, &json);
}

static void send_text(struct request *request, const struct chat *chat, const struct task *task, struct told *told,
                      const char *key, struct span text, size_t *sent)
{
    if (text.length <= *sent)
        return;
    struct buffer delta = {0};
    buffer_format(&delta, "\"%s\":", key);
    buffer_json(&delta, text.at + *sent, text.length - *sent);
    *sent = text.length;
    send_delta(request, chat, task, told, &delta, NULL);
}

static void send_calls(struct request *request, const struct chat *chat, const struct task *task, struct told *told,
                       const struct speech *speech)
{
    for (int i = told->n_calls ? told->n_calls - 1 : 0; i < speech->n_calls; i++) {
        const struct call *call = &speech->calls[i];
        struct buffer delta = {0};
        if (i >= told->n_calls) {
            buffer_text(&delta, "\"tool_calls\":[");
            openai_call_head(&delta, &chat->head, task, i, call->name);
            buffer_text(&delta, ",\"arguments\":\"\"}}]");
            send_delta(request, chat, task, told, &delta, NULL);
            told->n_calls = i + 1;
            told->arguments = 0;
        }
        struct span arguments = call->arguments;
        if (arguments.length == 0 && call->whole)
            arguments = (struct span){"{}", 2};
        if (arguments.length <= told->arguments)
            continue;
        buffer_format(&delta, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", i);
        buffer_json(&delta, arguments.at + told->arguments, arguments.length - told->arguments);
        buffer_text(&delta, "}}]");
        told->arguments = arguments.length;
        send_delta(request, chat, task, told, &delta, NULL);
    }
}

static void stream_progress(struct request *request, const struct chat *chat, const struct task *task)
{
    struct told *told = &chat->told[task - request->tasks];
    struct buffer delta = {0};
    struct speech speech;
    if (!told->begun) {
        buffer_text(&delta, "\"role\":\"assistant\",\"content\":null");
        send_delta(request, chat, task, told, &delta, NULL);
        told->begun = true;
    }
    read_speech(chat, task, &speech);
    const struct span reasoning = {speech.reasoning.at, speech.reasoning.length};
    const struct span content = {speech.content.at, speech.content.length};
    send_text(request, chat, task, told, "reasoning_content", reasoning, &told->reasoning);
    send_text(request, chat, task, told, "content", content, &told->content);
    send_calls(request, chat, task, told, &speech);
    if (task->finish)
        send_delta(request, chat, task, told, &delta, finish_of(task, &speech));
    speech_free(&speech);
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
    chat->told = calloc((size_t)request->how->n_choices, sizeof *chat->told);
    if (chat->told)
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
