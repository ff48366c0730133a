// See openai.h.
#include "serve/openai.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve/body.h"

bool openai_begin(struct request *request, struct openai *head, const char *prefix)
{
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof random, 0) < 0)
        random[0] = (uint64_t)(monotonic_seconds() * 1e9);
    snprintf(head->id, sizeof head->id, "%s%016llx%08x", prefix, (unsigned long long)random[0], (unsigned)random[1]);
    head->created = (long)time(NULL);
    const cJSON *options = body_member(request->json, "stream_options");
    if (options && !cJSON_IsObject(options)) {
        request_fail(request, 400, "'stream_options': expected an object");
        return false;
    }
    return body_bool(request, request->json, "stream", &head->stream) &&
           body_bool(request, options, "include_usage", &head->usage);
}

void openai_head(const struct request *request, const struct openai *head, struct buffer *out)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    buffer_format(out,
                  "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%ld,\"system_fingerprint\":\"b%016llx\",\"model\":", head->id,
                  head->object, head->created, (unsigned long long)facts->checksum);
    buffer_json(out, facts->name, strlen(facts->name));
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
    buffer_format(out,
                  ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
                  prompt, generated, prompt + generated, cached);
}

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

void openai_timings(const struct task *task, struct buffer *out)
{
    const size_t n_prompt = task->request->how->prompts[task->prompt].n;
    const double first = task->generator.first_token > 0 ? task->generator.first_token : task->generator.ended;
    buffer_format(out, ",\"timings\":{\"cache_n\":%zu,", task->generator.n_cached);
    add_rate(out, "prompt", n_prompt - task->generator.n_cached, first - task->generator.began);
    buffer_text(out, ",");
    add_rate(out, "predicted", task->generator.n_generated, task->generator.ended - first);
    buffer_text(out, "}");
}

static void add_score(struct buffer *out, const yalm_model *model, const struct score *score)
{
    size_t length;
    const char *bytes = token_bytes(model, score->token, &length);
    buffer_format(out, "{\"id\":%d,\"token\":", score->token);
    buffer_json(out, bytes, length);
    buffer_text(out, ",\"logprob\":");
    buffer_number(out, isfinite(score->log_probability) ? score->log_probability : -9999);
    buffer_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < length; i++)
        buffer_format(out, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
    buffer_text(out, "]");
}

void openai_scores(const struct task *task, size_t from, struct buffer *out)
{
    const yalm_model *model = task->request->server->model;
    const int n_top = task->request->how->options.n_likely;
    buffer_text(out, "[");
    for (size_t i = from; i < task->generator.scores.n; i++) {
        buffer_text(out, i > from ? "," : "");
        add_score(out, model, &task->generator.scores.list[i]);
        buffer_text(out, ",\"top_logprobs\":[");
        for (int k = 0; k < n_top && task->generator.scores.likely[i * (size_t)n_top + (size_t)k].token >= 0; k++) {
            buffer_text(out, k ? "," : "");
            add_score(out, model, &task->generator.scores.likely[i * (size_t)n_top + (size_t)k]);
            buffer_text(out, "}");
        }
        buffer_text(out, "]}");
    }
    buffer_text(out, "]");
}

void openai_call_head(struct buffer *out, const struct openai *head, const struct task *task, int call, struct span name)
{
    // Nine letters and digits: some templates insist on that.
    const size_t n = strlen(head->id);
    buffer_format(out, "{\"index\":%d,\"id\":\"%.5s%02x%02x\",\"type\":\"function\",\"function\":{\"name\":", call,
                  head->id + n - 5, (unsigned)task->choice, (unsigned)call);
    buffer_json(out, name.at, name.length);
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
        buffer_text(&json, ",\"choices\":[]");
        openai_usage(request, &json);
        if (request->n_tasks == 1)
            openai_timings(&request->tasks[0], &json);
        buffer_text(&json, "}");
        openai_event(request, &json);
    }
    buffer_text(&out, "data: [DONE]\n\n");
    request_send(request, &out);
}
