// A task: one sequence of tokens that the engine reads and continues. A request has one for each of its prompts and choices.
#pragma once
#include "grammar/mask.h"
#include "serve/request.h"

enum { MAX_STOPS = 16, MAX_TOP = 20 };

// What all tasks of a request share.
struct generation {
    struct prompt {
        int32_t *ids; // (n), owned
        size_t n;
    } * prompts; // (n_prompts), owned
    int n_prompts, n_choices;

    int64_t max_tokens;
    bool fills_context;           // max_tokens is what the context had left
    yalm_sampling sampling;       // its biases are owned
    uint64_t seed;                // of the first choice; each further one's is one more
    const char *stops[MAX_STOPS]; // texts of the request's JSON
    int n_stops;
    int n_top;          // likeliest tokens that are told with each; -1: no log probabilities at all
    bool score_prompt;  // tell them of the prompt's tokens too
    bool list_tokens;   // tell the generated tokens, without log probabilities if there are to be none
    bool spell_control; // control tokens are text: a model's marks of a call to a tool, say
    bool ignore_eos;
    struct grammar *grammar;   // that the texts follow, owned; NULL: none
    const char *grammar_after; // once they hold this; NULL: from the start
    bool reuse;                // may begin with what a session holds
};

// A token, its log probability among all tokens before sampling changes any, and (in task->likely) the n_top likeliest in its place.
struct score {
    int32_t token;
    float log_probability; // NaN: nothing came before it
};

enum task_state { TASK_WAITING, TASK_READING, TASK_WRITING, TASK_OVER };

// The engine's thread alone touches a task between engine_submit() and the last call of progress().
struct task {
    struct request *request;
    int prompt, choice;
    struct task *next_choice; // of the same prompt: begins when this one is over
    struct task *next;        // in the queue
    enum task_state state;

    struct buffer text; // generated, up to a stop string
    size_t shown;       // of it: what follows may be the beginning of a stop string
    yalm_stream stream;
    struct masker *masker; // of the grammar; NULL: none
    bool masking;          // it has begun
    size_t n_cached;       // tokens of the prompt that needed no evaluation
    size_t n_generated;    // tokens, with the one that ended it
    struct score *scores;  // (n_scores) owned: of the prompt where it is scored, then of the generated tokens
    struct score *likely;  // (n_scores, n_top) owned
    size_t n_scores, scores_room;
    const char *finish; // "stop", "length"; NULL: goes on
    const char *stop;   // the stop string that ended it, or NULL
    double began, first_token, ended;
};

void generation_free(struct generation *how); // NULL is welcome

// Makes the tasks of request->how. False, and the request refused, where memory runs out.
bool tasks_make(struct request *request);
void task_free(struct task *task);

// Adds what `token` spells. Ends the task where that completes a stop string.
void task_add_token(struct task *task, const yalm_model *model, int32_t token);
void task_end_text(struct task *task); // no more tokens: what was held back is text after all
// Scores `token` by the logits (n_vocab) of its place; NULL: it is the first. False where memory ran out.
bool task_add_score(struct task *task, int32_t token, const float *logits, int n_vocab);

// For a log probability's text: the token's own bytes.
const char *token_bytes(const yalm_model *model, int32_t token, size_t *length);
