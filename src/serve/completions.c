// /v1/completions: texts, or token ids, and how they go on; with `echo` and `logprobs`, how likely they are themselves.
#include <math.h>
#include <stdlib.h>

#include "serve/body.h"
#include "serve/fim.h"
#include "serve/openai.h"
#include "util/json_write.h"
#include "util/utf8.h"

struct completions {
    struct openai head;
    bool echo;
};

// ---------------------------------------------------------------- the request

static bool read_prompt(struct request *request, const char *suffix)
{
    const cJSON *prompt = body_member(request->json, "prompt");
    if (*suffix == 0)
        return generation_read_prompts(request);
    if (!cJSON_IsString(prompt))
        return request_fail(request, 400, "'suffix' goes with a 'prompt' that is a string");
    return fim_prompt(request, prompt->valuestring, suffix, "", NULL);
}

static bool read_request(struct request *request, struct completions *completions)
{
    int64_t logprobs = -1, best_of = 0;
    const char *suffix = "";
    completions->head.object = "text_completion";
    if (!generation_read(request, "stop") || !openai_begin(request, &completions->head, "cmpl-") ||
        !body_bool(request, request->json, "echo", &completions->echo) ||
        !body_integer(request, request->json, "logprobs", 0, MAX_TOP, &logprobs) ||
        !body_integer(request, request->json, "best_of", 1, MAX_CHOICES, &best_of) ||
        !body_string(request, request->json, "suffix", &suffix))
        return false;
    struct generation *how = request->how;
    if (best_of > how->n_choices)
        return request_fail(request, 400, "'best_of': choosing among texts is not offered; ask for all of them by 'n'");
    if (body_member(request->json, "max_tokens") == NULL)
        how->options.max_tokens = 16; // as the API has it
    how->options.n_likely = (int)logprobs;
    how->options.score_prompt = completions->echo && logprobs >= 0;
    return generation_read_format(request) && read_prompt(request, suffix) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

static void add_top(struct buffer *out, const yalm_model *model, const struct score *likely, int n)
{
    json_open(out, NULL, '{');
    for (int i = 0; i < n && likely[i].token >= 0; i++) {
        buffer_text(out, i ? "," : "");
        token_text(out, model, likely[i].token);
        buffer_text(out, ":");
        json_number(out, NULL, likely[i].log_probability);
    }
    json_close(out, "}");
}

// Of the scores from `from` on. *offset: characters of the text before them; moved on.
static void add_logprobs(const struct task *task, size_t from, size_t *offset, struct buffer *out)
{
    const yalm_model *model = task->request->server->model;
    const struct scores *scores = &task->generator.scores;
    const int n_top = task->request->how->options.n_likely;
    json_open(out, "logprobs", '{');
    json_open(out, "tokens", '[');
    for (size_t i = from; i < scores->n; i++) {
        buffer_text(out, i > from ? "," : "");
        token_text(out, model, scores->list[i].token);
    }
    json_close(out, "]");
    json_open(out, "token_logprobs", '[');
    for (size_t i = from; i < scores->n; i++)
        json_number(out, NULL, scores->list[i].log_probability);
    json_close(out, "]");
    json_open(out, "top_logprobs", '[');
    for (size_t i = from; i < scores->n; i++)
        if (isnan(scores->list[i].log_probability))
            json_raw(out, NULL, "null");
        else
            add_top(out, model, scores->likely + i * (size_t)n_top, n_top);
    json_close(out, "]");
    json_open(out, "text_offset", '[');
    for (size_t i = from, length; i < scores->n; i++) {
        json_integer(out, NULL, (long long)*offset);
        const char *bytes = token_bytes(model, scores->list[i].token, &length);
        *offset += utf8_count(bytes, length);
    }
    json_close(out, "]}");
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
static void add_choice(struct task *task, bool echo, struct buffer *out)
{
    struct sent *sent = &task->sent;
    struct buffer text = {0};
    if (echo && !sent->begun)
        add_prompt(task, &text);
    sent->begun = true;
    buffer_add(&text, task->generator.text.at + sent->text, task->generator.shown - sent->text);
    json_open(out, NULL, '{');
    json_bytes(out, "text", text.at, text.length);
    out->failed |= text.failed;
    buffer_free(&text);
    json_integer(out, "index", task - task->request->tasks);
    if (task->request->how->options.n_likely >= 0)
        add_logprobs(task, sent->scores, &sent->offset, out);
    else
        json_raw(out, "logprobs", "null");
    json_text(out, "finish_reason", task->finish);
    json_close(out, "}");
    sent->text = task->generator.shown;
    sent->scores = task->generator.scores.n;
}

static void send_choice(struct request *request, const struct completions *completions, struct task *task)
{
    struct buffer json = {0};
    openai_head(request, &completions->head, &json);
    json_open(&json, "choices", '[');
    add_choice(task, completions->echo, &json);
    json_close(&json, "]");
    if (completions->head.usage)
        json_raw(&json, "usage", "null");
    json_close(&json, "}");
    openai_event(request, &json);
}

static void progress(struct request *request, struct task *task)
{
    const struct completions *completions = request->api;
    const struct openai *head = &completions->head;
    const bool last = task->finish && request->n_finished == request->n_tasks;
    if (head->stream && (task->finish || task->generator.shown > task->sent.text))
        send_choice(request, completions, task);
    if (head->stream && last)
        openai_done(request, head);
    if (head->stream || !last)
        return;
    struct buffer json = {0};
    openai_head(request, head, &json);
    json_open(&json, "choices", '[');
    for (int i = 0; i < request->n_tasks; i++)
        add_choice(&request->tasks[i], completions->echo, &json);
    json_close(&json, "]");
    openai_usage(request, &json);
    json_close(&json, "}");
    request_send(request, &json);
}

void handle_completions(struct request *request)
{
    struct completions *completions = request_api(request, sizeof *completions, free, progress);
    if (completions && read_request(request, completions))
        generation_start(request, completions->head.stream);
}
