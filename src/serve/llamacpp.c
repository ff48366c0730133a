// /completion: llama.cpp's own form of completions, for its clients. What a text is made of has the names of its server; what
// they make is made as for /v1/completions.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/openai.h"

struct completion {
    bool stream, return_tokens;
    int n_probs;
    struct sent *sent; // (n_tasks), owned: of each text what has gone out
};

static void free_completion(void *api)
{
    struct completion *completion = api;
    free(completion->sent);
    free(completion);
}

static bool read_request(struct request *request, struct completion *completion)
{
    int64_t n_probs = 0;
    if (!generation_read(request, "stop") ||
        !body_integer(request, request->json, "n_predict", -1, INT32_MAX, &request->how->options.max_tokens) ||
        !body_integer(request, request->json, "n_probs", 0, MAX_TOP, &n_probs) ||
        !body_bool(request, request->json, "return_tokens", &completion->return_tokens) ||
        !body_bool(request, request->json, "stream", &completion->stream))
        return false;
    completion->n_probs = (int)n_probs;
    request->how->options.n_likely = n_probs > 0 ? (int)n_probs : -1;
    request->how->options.list_tokens = true;
    return generation_read_format(request) && generation_read_prompts(request) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

// The prompt as it was read.
static void add_prompt(const struct task *task, struct buffer *out)
{
    const struct prompt *prompt = &task->request->how->prompts[task->prompt];
    struct buffer text = {0};
    for (size_t i = 0; i < prompt->n; i++) {
        size_t length;
        const char *bytes = token_bytes(task->request->server->model, prompt->ids[i], &length);
        buffer_add(&text, bytes, length);
    }
    buffer_text(out, ",\"prompt\":");
    buffer_json(out, text.at, text.length);
    out->failed |= text.failed;
    buffer_free(&text);
}

static void add_settings(const struct task *task, const struct completion *completion, struct buffer *out)
{
    const struct generation *how = task->request->how;
    const yalm_sampling *s = &how->options.sampling;
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"temperature", (double)s->temperature},
        {"top_k", s->top_k},
        {"top_p", (double)s->top_p},
        {"min_p", (double)s->min_p},
        {"repeat_penalty", (double)s->repeat_penalty},
        {"repeat_last_n", s->penalty_last_n},
        {"presence_penalty", (double)s->presence_penalty},
        {"frequency_penalty", (double)s->frequency_penalty},
    };
    buffer_format(out,
                  ",\"generation_settings\":{\"n_predict\":%lld,\"seed\":%llu,\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%d",
                  (long long)how->options.max_tokens, (unsigned long long)how->seed + (unsigned long long)task->choice,
                  how->options.ignore_eos ? "true" : "false", completion->stream ? "true" : "false", completion->n_probs);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        buffer_format(out, ",\"%s\":", numbers[i].name);
        buffer_number(out, numbers[i].value);
    }
    buffer_text(out, ",\"stop\":[");
    for (int i = 0; i < how->options.n_stops; i++) {
        buffer_text(out, i ? "," : "");
        buffer_json(out, how->stops[i], strlen(how->stops[i]));
    }
    buffer_text(out, "]}");
}

// What is known once the text is over.
static void add_end(const struct task *task, const struct completion *completion, struct buffer *out)
{
    const char *name = yalm_model_facts(task->request->server->model)->name;
    const bool limit = strcmp(task->finish, "length") == 0;
    buffer_text(out, ",\"model\":");
    buffer_json(out, name, strlen(name));
    buffer_format(out, ",\"truncated\":%s,\"has_new_line\":%s,\"stop_type\":\"%s\",\"stopping_word\":",
                  limit && task->request->how->fills_context ? "true" : "false",
                  task->generator.shown && memchr(task->generator.text.at, '\n', task->generator.shown) ? "true" : "false",
                  task->generator.stop_string ? "word"
                  : limit                     ? "limit"
                                              : "eos");
    buffer_json(out, task->generator.stop_string ? task->generator.stop_string : "",
                task->generator.stop_string ? strlen(task->generator.stop_string) : 0);
    buffer_format(out, ",\"tokens_cached\":%zu", task->generator.n_cached);
    add_prompt(task, out);
    add_settings(task, completion, out);
    openai_timings(task, out);
}

// {"index":…,"content":…,"tokens":…,"stop":…}: what has not been sent of the text, and at its end the rest.
static void add_part(struct task *task, const struct completion *completion, struct sent *sent, struct buffer *out)
{
    const struct prompt *prompt = &task->request->how->prompts[task->prompt];
    buffer_format(out, "{\"index\":%d,\"content\":", (int)(task - task->request->tasks));
    buffer_json(out, task->generator.shown ? task->generator.text.at + sent->text : "", task->generator.shown - sent->text);
    buffer_text(out, ",\"tokens\":[");
    const bool listed = completion->stream || completion->return_tokens;
    for (size_t i = sent->scores; listed && i < task->generator.scores.n; i++)
        buffer_format(out, "%s%d", i > sent->scores ? "," : "", task->generator.scores.list[i].token);
    buffer_format(out, "],\"stop\":%s,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu", task->finish ? "true" : "false",
                  task->generator.n_generated, prompt->n);
    if (completion->n_probs > 0) {
        buffer_text(out, ",\"completion_probabilities\":");
        openai_scores(task, sent->scores, out);
    }
    if (task->finish)
        add_end(task, completion, out);
    buffer_text(out, "}");
    sent->text = task->generator.shown;
    sent->scores = task->generator.scores.n;
}

static void progress(struct request *request, struct task *task)
{
    const struct completion *completion = request->api;
    struct sent *sent = &completion->sent[task - request->tasks];
    struct buffer json = {0};
    if (completion->stream) {
        if (task->finish || task->generator.shown > sent->text) {
            add_part(task, completion, sent, &json);
            openai_event(request, &json);
        }
        return;
    }
    if (task->finish == NULL || request->n_finished < request->n_tasks)
        return;
    buffer_text(&json, request->n_tasks > 1 ? "[" : "");
    for (int i = 0; i < request->n_tasks; i++) {
        buffer_text(&json, i ? "," : "");
        add_part(&request->tasks[i], completion, &completion->sent[i], &json);
    }
    buffer_text(&json, request->n_tasks > 1 ? "]" : "");
    request_send(request, &json);
}

void handle_completion(struct request *request)
{
    struct completion *completion = calloc(1, sizeof *completion);
    if (completion == NULL) {
        request_fail(request, 503, "out of memory for a request");
        return;
    }
    request->api = completion;
    request->free_api = free_completion;
    request->progress = progress;
    if (!read_request(request, completion))
        return;
    completion->sent = calloc((size_t)request->how->n_prompts * (size_t)request->how->n_choices, sizeof *completion->sent);
    if (completion->sent)
        generation_start(request, completion->stream);
    else
        request_fail(request, 503, "out of memory for a request");
}
