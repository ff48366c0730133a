// See openai.h.
#include "serve/openai.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve/body.h"
#include "util/clock.h"
#include "util/json_write.h"

bool openai_begin(struct request *request, struct openai *head, const char *prefix)
{
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof random, 0) < 0)
        random[0] = (uint64_t)(clock_seconds() * 1e9);
    snprintf(head->id, sizeof head->id, "%s%016llx%08x", prefix, (unsigned long long)random[0], (unsigned)random[1]);
    head->created = (long)time(NULL);
    const cJSON *options = body_member(request->json, "stream_options");
    if (options && !cJSON_IsObject(options))
        return request_fail(request, 400, "'stream_options': expected an object");
    return body_bool(request, request->json, "stream", &head->stream) &&
           body_bool(request, options, "include_usage", &head->usage);
}

void openai_head(const struct request *request, const struct openai *head, struct buffer *out)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    json_open(out, NULL, '{');
    json_text(out, "id", head->id);
    json_text(out, "object", head->object);
    json_integer(out, "created", head->created);
    json_raw(out, "system_fingerprint", "\"b%016llx\"", (unsigned long long)facts->checksum);
    json_text(out, "model", facts->name);
}

void openai_usage(const struct request *request, struct buffer *out)
{
    size_t prompt = 0, cached = 0, generated = 0;
    for (int i = 0; i < request->n_tasks; i++) {
        const struct task *task = &request->tasks[i];
        generated += task->generator.n_generated;
        if (task->choice == 0) {
            prompt += request->how->prompts[task->prompt].n;
            cached += task->generator.n_cached;
        }
    }
    json_open(out, "usage", '{');
    json_integer(out, "prompt_tokens", (long long)prompt);
    json_integer(out, "completion_tokens", (long long)generated);
    json_integer(out, "total_tokens", (long long)(prompt + generated));
    json_open(out, "prompt_tokens_details", '{');
    json_integer(out, "cached_tokens", (long long)cached);
    json_close(out, "}}");
}

// With more digits than json_number() has, which clients may want to multiply again.
static void add_time(struct buffer *out, const char *key, double value)
{
    json_raw(out, key, "%.12g", value);
}

void openai_timings(const struct task *task, struct buffer *out)
{
    const struct generator *g = &task->generator;
    const double first = g->first_token > 0 ? g->first_token : g->ended;
    const size_t n_read = g->n_prompt - g->n_cached;
    const struct {
        const char *n, *all, *each, *rate;
        size_t tokens, steps; // the first token that is predicted comes with the prompt, and takes no step of its own
        double seconds;
    } parts[] = {
        {"prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", n_read, n_read, first - g->began},
        {"predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second", g->n_generated,
         g->n_generated - (g->n_generated > 0), g->ended - first},
    };
    json_open(out, "timings", '{');
    json_integer(out, "cache_n", (long long)g->n_cached);
    for (int i = 0; i < 2; i++) {
        const double n = (double)parts[i].steps, seconds = parts[i].seconds;
        json_integer(out, parts[i].n, (long long)parts[i].tokens);
        add_time(out, parts[i].all, 1000 * seconds);
        add_time(out, parts[i].each, n > 0 ? 1000 * seconds / n : 0);
        add_time(out, parts[i].rate, seconds > 0 ? n / seconds : 0);
    }
    json_close(out, "}");
}

// {"id":…,"token":…,"logprob":…,"bytes":[…]: its object stays open.
static void add_score(struct buffer *out, const yalm_model *model, const struct score *score)
{
    size_t length;
    const char *bytes = token_bytes(model, score->token, &length);
    json_open(out, NULL, '{');
    json_integer(out, "id", score->token);
    json_bytes(out, "token", bytes, length);
    json_number(out, "logprob", isfinite(score->log_probability) ? score->log_probability : -9999);
    json_open(out, "bytes", '[');
    for (size_t i = 0; i < length; i++)
        json_integer(out, NULL, (unsigned char)bytes[i]);
    json_close(out, "]");
}

void openai_scores(struct buffer *out, const char *key, const struct task *task, size_t from)
{
    const yalm_model *model = task->request->server->model;
    const struct scores *scores = &task->generator.scores;
    const size_t n_top = (size_t)task->request->how->options.n_likely;
    json_open(out, key, '[');
    for (size_t i = from; i < scores->n; i++) {
        add_score(out, model, &scores->list[i]);
        json_open(out, "top_logprobs", '[');
        for (size_t k = 0; k < n_top && scores->likely[i * n_top + k].token >= 0; k++) {
            add_score(out, model, &scores->likely[i * n_top + k]);
            json_close(out, "}");
        }
        json_close(out, "]}");
    }
    json_close(out, "]");
}

void openai_call(struct buffer *out, const struct openai *head, const struct task *task, int call, struct span name,
                 struct span arguments)
{
    // Nine letters and digits: some templates insist on that.
    const char *end = head->id + strlen(head->id) - 5;
    json_open(out, NULL, '{');
    json_integer(out, "index", call);
    json_raw(out, "id", "\"%.5s%02x%02x\"", end, (unsigned)task->choice, (unsigned)call);
    json_text(out, "type", "function");
    json_open(out, "function", '{');
    json_bytes(out, "name", name.at, name.length);
    json_bytes(out, "arguments", arguments.at, arguments.length);
    json_close(out, "}}");
}

void openai_count(struct request *request)
{
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_integer(&out, "input_tokens", (long long)request->how->prompts[0].n);
    json_close(&out, "}");
    request_send_all(request, &out);
}

void openai_event(struct request *request, struct buffer *json)
{
    struct buffer out = {0};
    buffer_text(&out, "data: ");
    buffer_add(&out, json->at, json->length);
    buffer_text(&out, "\n\n");
    out.failed |= json->failed;
    buffer_free(json);
    request_send(request, &out);
}

void openai_done(struct request *request, const struct openai *head)
{
    struct buffer json = {0}, out = {0};
    if (head->usage) {
        openai_head(request, head, &json);
        json_open(&json, "choices", '[');
        json_close(&json, "]");
        openai_usage(request, &json);
        if (request->n_tasks == 1)
            openai_timings(&request->tasks[0], &json);
        json_close(&json, "}");
        openai_event(request, &json);
    }
    buffer_text(&out, "data: [DONE]\n\n");
    request_send(request, &out);
}
