// /completion: llama.cpp's own form of completions, for its clients. What a text is made of has the names of its server; what they make is made as
// for /v1/completions.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/openai.h"

struct completion {
    bool stream;
    size_t *sent; // (n_tasks), owned: bytes of each text that have gone out
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
        !body_integer(request, request->json, "n_predict", -1, INT32_MAX, &request->how->max_tokens) ||
        !body_integer(request, request->json, "n_probs", 0, INT32_MAX, &n_probs) ||
        !body_bool(request, request->json, "stream", &completion->stream))
        return false;
    if (n_probs > 0) {
        request_fail(request, 400, "'n_probs': here log probabilities come by /v1/completions and its 'logprobs'");
        return false;
    }
    return generation_read_format(request) && generation_read_prompts(request) && generation_fit(request);
}

// ---------------------------------------------------------------- the answer

static void add_rate(struct buffer *out, const char *kind, size_t n, double seconds)
{
    const double milliseconds = 1000 * seconds;
    buffer_format(out, "\"%s_n\":%zu,\"%s_ms\":", kind, n, kind);
    buffer_number(out, milliseconds);
    buffer_format(out, ",\"%s_per_token_ms\":", kind);
    buffer_number(out, n ? milliseconds / (double)n : 0);
    buffer_format(out, ",\"%s_per_second\":", kind);
    buffer_number(out, seconds > 0 ? (double)n / seconds : 0);
}

// What is known once the text is over.
static void add_end(const struct task *task, const struct prompt *prompt, struct buffer *out)
{
    const char *name = yalm_model_facts(task->request->server->model)->name;
    const double first = task->first_token > 0 ? task->first_token : task->ended;
    buffer_text(out, ",\"model\":");
    buffer_json(out, name, strlen(name));
    buffer_format(out, ",\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":",
                  task->stop                          ? "word"
                  : strcmp(task->finish, "stop") == 0 ? "eos"
                                                      : "limit");
    buffer_json(out, task->stop ? task->stop : "", task->stop ? strlen(task->stop) : 0);
    buffer_format(out, ",\"tokens_cached\":%zu,\"timings\":{\"cache_n\":%zu,", task->n_cached, task->n_cached);
    add_rate(out, "prompt", prompt->n - task->n_cached, first - task->began);
    buffer_text(out, ",");
    add_rate(out, "predicted", task->n_generated, task->ended - first);
    buffer_text(out, "}");
}

// {"index":…,"content":…,"stop":…}: what has not been sent of the text, and at its end the rest.
static void add_part(struct task *task, size_t *sent, struct buffer *out)
{
    const struct prompt *prompt = &task->request->how->prompts[task->prompt];
    buffer_format(out, "{\"index\":%d,\"content\":", (int)(task - task->request->tasks));
    buffer_json(out, task->shown ? task->text.at + *sent : "", task->shown - *sent);
    buffer_format(out, ",\"stop\":%s,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu", task->finish ? "true" : "false",
                  task->n_generated, prompt->n);
    if (task->finish)
        add_end(task, prompt, out);
    buffer_text(out, "}");
    *sent = task->shown;
}

static void progress(struct request *request, struct task *task)
{
    const struct completion *completion = request->api;
    size_t *sent = &completion->sent[task - request->tasks];
    struct buffer json = {0};
    if (completion->stream) {
        if (task->finish || task->shown > *sent) {
            add_part(task, sent, &json);
            openai_event(request, &json);
        }
        return;
    }
    if (task->finish == NULL || request->n_finished < request->n_tasks)
        return;
    buffer_text(&json, request->n_tasks > 1 ? "[" : "");
    for (int i = 0; i < request->n_tasks; i++) {
        buffer_text(&json, i ? "," : "");
        add_part(&request->tasks[i], &completion->sent[i], &json);
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
