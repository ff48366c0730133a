// /v1/completions: texts, or token ids, and how they go on; with `echo` and `logprobs`, how likely they are themselves.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/openai.h"
#include "util/utf8.h"

struct completions {
    struct openai head;
    bool echo;
};

static void free_completions(void *api)
{
    struct completions *completions = api;
    free(completions->head.sent);
    free(completions);
}

// ---------------------------------------------------------------- the request

static bool read_request(struct request *request, struct completions *completions)
{
    int64_t logprobs = -1, best_of = 0;
    if (!generation_read(request, "stop") || !openai_begin(request, &completions->head, "cmpl-") ||
        !body_bool(request, request->json, "echo", &completions->echo) ||
        !body_integer(request, request->json, "logprobs", 0, MAX_TOP, &logprobs) ||
        !body_integer(request, request->json, "best_of", 1, MAX_CHOICES, &best_of) ||
        !body_refuse(request, request->json, "suffix", "text in the middle of a text is not offered; leave it out"))
        return false;
    struct generation *how = request->how;
    if (best_of > how->n_choices) {
        request_fail(request, 400, "'best_of': choosing among texts is not offered; ask for all of them by 'n'");
        return false;
    }
    if (body_member(request->json, "max_tokens") == NULL)
        how->options.max_tokens = 16; // as the API has it
    how->options.n_likely = (int)logprobs;
    how->options.score_prompt = completions->echo && logprobs >= 0;
    return generation_read_format(request) && generation_read_prompts(request) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

static void add_top(struct buffer *out, const yalm_model *model, const struct score *likely, int n)
{
    buffer_text(out, "{");
    for (int i = 0; i < n && likely[i].token >= 0; i++) {
        buffer_text(out, i ? "," : "");
        token_text(out, model, likely[i].token, true);
        buffer_text(out, ":");
        buffer_number(out, likely[i].log_probability);
    }
    buffer_text(out, "}");
}

// Of the scores from `from` on. *offset: characters of the text before them; moved on.
static void add_logprobs(const struct task *task, size_t from, size_t *offset, struct buffer *out)
{
    const yalm_model *model = task->request->server->model;
    const int n_top = task->request->how->options.n_likely;
    struct buffer values = {0}, tops = {0}, offsets = {0};
    buffer_text(out, "{\"tokens\":[");
    for (size_t i = from; i < task->generator.scores.n; i++) {
        const struct score *score = &task->generator.scores.list[i];
        const char *comma = i > from ? "," : "";
        size_t length;
        const char *bytes = token_bytes(model, score->token, &length);
        buffer_text(out, comma);
        token_text(out, model, score->token, true);
        buffer_text(&values, comma);
        buffer_number(&values, score->log_probability);
        buffer_text(&tops, comma);
        if (isnan(score->log_probability))
            buffer_text(&tops, "null");
        else
            add_top(&tops, model, task->generator.scores.likely + i * (size_t)n_top, n_top);
        buffer_format(&offsets, "%s%zu", comma, *offset);
        *offset += utf8_count(bytes, length);
    }
    buffer_format(out, "],\"token_logprobs\":[%s],\"top_logprobs\":[%s],\"text_offset\":[%s]}", values.at ? values.at : "",
                  tops.at ? tops.at : "", offsets.at ? offsets.at : "");
    out->failed |= values.failed || tops.failed || offsets.failed;
    buffer_free(&values);
    buffer_free(&tops);
    buffer_free(&offsets);
}

// The prompt's text, as it came or as its ids spell it.
static void add_prompt(const struct task *task, struct buffer *text)
{
    const cJSON *prompt = body_member(task->request->json, "prompt");
    if (cJSON_IsArray(prompt) && !cJSON_IsNumber(prompt->child))
        prompt = cJSON_GetArrayItem(prompt, task->prompt);
    if (cJSON_IsString(prompt)) {
        buffer_text(text, prompt->valuestring);
        return;
    }
    const struct prompt *ids = &task->request->how->prompts[task->prompt];
    yalm_stream stream = {0};
    char bytes[YALM_MAX_PIECE + 8];
    for (size_t i = 0; i < ids->n; i++)
        buffer_add(text, bytes, yalm_stream_token(task->request->server->model, &stream, ids->ids[i], true, bytes));
    buffer_add(text, bytes, yalm_stream_end(&stream, bytes));
}

// {"text":…,"index":…,"logprobs":…,"finish_reason":…}: what has not been sent of it.
static void add_choice(struct task *task, struct sent *sent, bool echo, struct buffer *out)
{
    struct buffer text = {0};
    if (echo && !sent->begun)
        add_prompt(task, &text);
    sent->begun = true;
    buffer_add(&text, task->generator.text.at + sent->text, task->generator.shown - sent->text);
    buffer_text(out, "{\"text\":");
    buffer_json(out, text.at, text.length);
    buffer_format(out, ",\"index\":%d,\"logprobs\":", (int)(task - task->request->tasks));
    out->failed |= text.failed;
    buffer_free(&text);
    if (task->request->how->options.n_likely >= 0)
        add_logprobs(task, sent->scores, &sent->offset, out);
    else
        buffer_text(out, "null");
    buffer_text(out, ",\"finish_reason\":");
    buffer_format(out, task->finish ? "\"%s\"}" : "%s}", task->finish ? task->finish : "null");
    sent->text = task->generator.shown;
    sent->scores = task->generator.scores.n;
}

static void progress(struct request *request, struct task *task)
{
    struct completions *completions = request->api;
    struct openai *head = &completions->head;
    struct sent *sent = &head->sent[task - request->tasks];
    struct buffer json = {0};
    const bool last = task->finish && request->n_finished == request->n_tasks;
    if (head->stream && (task->finish || task->generator.shown > sent->text)) {
        openai_head(request, head, &json);
        buffer_text(&json, ",\"choices\":[");
        add_choice(task, sent, completions->echo, &json);
        buffer_text(&json, head->usage ? "],\"usage\":null}" : "]}");
        openai_event(request, &json);
    }
    if (head->stream && last)
        openai_done(request, head);
    if (head->stream || !last)
        return;
    openai_head(request, head, &json);
    buffer_text(&json, ",\"choices\":[");
    for (int i = 0; i < request->n_tasks; i++) {
        buffer_text(&json, i ? "," : "");
        add_choice(&request->tasks[i], &head->sent[i], completions->echo, &json);
    }
    buffer_text(&json, "]");
    openai_usage(request, &json);
    buffer_text(&json, "}");
    request_send(request, &json);
}

void handle_completions(struct request *request)
{
    struct completions *completions = calloc(1, sizeof *completions);
    if (completions == NULL) {
        request_fail(request, 503, "out of memory for a request");
        return;
    }
    request->api = completions;
    request->free_api = free_completions;
    request->progress = progress;
    completions->head.object = "text_completion";
    if (!read_request(request, completions))
        return;
    const size_t n = (size_t)request->how->n_prompts * (size_t)request->how->n_choices;
    completions->head.sent = calloc(n, sizeof *completions->head.sent);
    if (completions->head.sent)
        generation_start(request, completions->head.stream);
    else
        request_fail(request, 503, "out of memory for a request");
}
