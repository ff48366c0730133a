// What answers in OpenAI's form have in common.
#pragma once
#include "serve/generation.h"
#include "speech/speech.h"

// An answer's head.
struct openai {
    char id[40];
    const char *object; // "text_completion", "chat.completion.chunk", …
    long created;
    bool stream, usage;
};

// Reads stream and stream_options, and fills the head. False where the request has been refused.
bool openai_begin(struct request *request, struct openai *head, const char *prefix);
// {"id":…,"object":…,"created":…,"model":…
void openai_head(const struct request *request, const struct openai *head, struct buffer *out);
// "usage":{…}
void openai_usage(const struct request *request, struct buffer *out);
// {"index":…,"id":…,"type":"function","function":{"name":…,"arguments":…}}
void openai_call(struct buffer *out, const struct openai *head, const struct task *task, int call, struct span name,
                 struct span arguments);
// "timings":{…}: how long the task took, as llama.cpp tells it.
void openai_timings(const struct task *task, struct buffer *out);
// "key":[{"id":…,"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]},…]: the task's scores from `from` on.
void openai_scores(struct buffer *out, const char *key, const struct task *task, size_t from);
// The answer {"input_tokens":…}: of the first prompt.
void openai_count(struct request *request);
// One event of the stream; takes the bytes of *json.
void openai_event(struct request *request, struct buffer *json);
// The stream's end: the usage where it is wanted, and [DONE].
void openai_done(struct request *request, const struct openai *head);
