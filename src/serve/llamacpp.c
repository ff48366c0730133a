// /completion: llama.cpp's own form of completions, for its clients. What a text is made of has the names of its server; what
// they make is made as for /v1/completions.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/fim.h"
#include "serve/openai.h"
#include "util/json_write.h"

struct completion_request {
    bool stream, return_tokens;
    int n_probs;
};

// A prompt, or with /infill what stands before and behind the text.
static bool read_prompt(struct request *request, bool infill)
{
    const char *before = "", *behind = "", *begun = "";
    if (!infill)
        return generation_read_prompts(request);
    if (!body_string(request, request->json, "input_prefix", &before) ||
        !body_string(request, request->json, "input_suffix", &behind) || !body_string(request, request->json, "prompt", &begun))
        return false;
    return fim_prompt(request, before, behind, begun, body_member(request->json, "input_extra"));
}

static bool read_request(struct request *request, struct completion_request *completion, bool infill)
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
    return generation_read_format(request) && read_prompt(request, infill) && generation_fit(request);
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
    json_bytes(out, "prompt", text.at, text.length);
    out->failed |= text.failed;
    buffer_free(&text);
}

static void add_settings(const struct task *task, const struct completion_request *completion, struct buffer *out)
{
    const struct generation *how = task->request->how;
    json_open(out, "generation_settings", '{');
    json_integer(out, "n_predict", how->options.max_tokens);
    json_raw(out, "seed", "%llu", (unsigned long long)how->seed + (unsigned long long)task->choice);
    json_flag(out, "ignore_eos", how->options.ignore_eos);
    json_flag(out, "stream", completion->stream);
    json_integer(out, "n_probs", completion->n_probs);
    generation_add_sampling(out, &how->options.sampling);
    json_open(out, "stop", '[');
    for (int i = 0; i < how->options.n_stops; i++)
        json_text(out, NULL, how->stops[i]);
    json_close(out, "]}");
}

// What is known once the text is over.
static void add_end(const struct task *task, const struct completion_request *completion, struct buffer *out)
{
    const struct generator *g = &task->generator;
    const bool limit = strcmp(task->finish, "length") == 0;
    json_text(out, "model", yalm_model_facts(task->request->server->model)->name);
    json_flag(out, "truncated", limit && task->request->how->fills_context);
    json_flag(out, "has_new_line", g->shown && memchr(g->text.at, '\n', g->shown));
    json_text(out, "stop_type", g->stop_string ? "word" : limit ? "limit" : "eos");
    json_text(out, "stopping_word", g->stop_string ? g->stop_string : "");
    json_integer(out, "tokens_cached", (long long)g->n_cached);
    add_prompt(task, out);
    add_settings(task, completion, out);
    openai_timings(task, out);
}

// {"index":…,"content":…,"tokens":…,"stop":…}: what has not been sent of the text, and at its end the rest.
static void add_part(struct task *task, const struct completion_request *completion, struct buffer *out)
{
    const struct generator *g = &task->generator;
    struct sent *sent = &task->sent;
    json_open(out, NULL, '{');
    json_integer(out, "index", task - task->request->tasks);
    json_bytes(out, "content", g->shown ? g->text.at + sent->text : "", g->shown - sent->text);
    json_open(out, "tokens", '[');
    for (size_t i = sent->scores; (completion->stream || completion->return_tokens) && i < g->scores.n; i++)
        json_integer(out, NULL, g->scores.list[i].token);
    json_close(out, "]");
    json_flag(out, "stop", task->finish);
    json_integer(out, "tokens_predicted", (long long)g->n_generated);
    json_integer(out, "tokens_evaluated", (long long)g->n_prompt);
    if (completion->n_probs > 0)
        openai_scores(out, "completion_probabilities", task, sent->scores);
    if (task->finish)
        add_end(task, completion, out);
    json_close(out, "}");
    sent->text = g->shown;
    sent->scores = g->scores.n;
}

static void progress(struct request *request, struct task *task)
{
    const struct completion_request *completion = request->api;
    struct buffer json = {0};
    if (completion->stream) {
        if (task->finish || task->generator.shown > task->sent.text) {
            add_part(task, completion, &json);
            openai_event(request, &json);
        }
        return;
    }
    if (task->finish == NULL || request->n_finished < request->n_tasks)
        return;
    if (request->n_tasks > 1)
        json_open(&json, NULL, '[');
    for (int i = 0; i < request->n_tasks; i++)
        add_part(&request->tasks[i], completion, &json);
    json_close(&json, request->n_tasks > 1 ? "]" : "");
    request_send(request, &json);
}

static void complete(struct request *request, bool infill)
{
    struct completion_request *completion = request_api(request, sizeof *completion, free, progress);
    if (completion && read_request(request, completion, infill))
        generation_start(request, completion->stream);
}

void handle_completion(struct request *request)
{
    complete(request, false);
}

void handle_infill(struct request *request)
{
    complete(request, true);
}
