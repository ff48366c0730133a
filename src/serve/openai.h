// What answers in OpenAI's form have in common.
#pragma once
#include "serve/generation.h"
#include "speech/speech.h"

// An answer's head, and how much of each task has gone out.
struct openai {
    char id[40];
    const char *object; // "text_completion", "chat.completion.chunk", …
    long created;
    bool stream, usage;
    struct sent {
        size_t text, scores, offset; // of each: bytes, tokens, and the characters that they spell
        bool begun;
    } * sent; // (n_tasks), owned
};

// Reads stream and stream_options, and fills the head. False where the request has been refused.
bool openai_begin(struct request *request, struct openai *head, const char *prefix);
// {"id":…,"object":…,"created":…,"model":…
void openai_head(const struct request *request, const struct openai *head, struct buffer *out);
// ,"usage":{…}
void openai_usage(const struct request *request, struct buffer *out);
// {"index":…,"id":…,"type":"function","function":{"name":…: a call's beginning.
void openai_call_head(struct buffer *out, const struct openai *head, const struct task *task, int call, struct span name);
// ,"timings":{…}: how long the task took, as llama.cpp tells it.
void openai_timings(const struct task *task, struct buffer *out);
// [{"id":…,"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]},…]: the task's scores from `from` on.
void openai_scores(const struct task *task, size_t from, struct buffer *out);
// One event of the stream; takes the bytes of *json.
void openai_event(struct request *request, struct buffer *json);
// The stream's end: the usage where it is wanted, and [DONE].
void openai_done(struct request *request, const struct openai *head);
