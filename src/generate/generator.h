// Generates one text: a session reads a prompt, and then tokens are drawn until there is a reason to stop.
//
// Its caller evaluates, so that a token of each of several texts can be evaluated together:
//
//     generator_begin(&g, true);
//     while ((status = generator_next(&g, piece, &error)) == YALM_OK && !g.stop)
//         status = generator_evaluate(&g, &error); // or yalm_eval_each(), and then generator_evaluated()
//
// The text grows in g.text and g.speech: a caller remembers how much of them it has passed on.
#pragma once
#include "generate/scores.h"
#include "grammar/mask.h"
#include "speculate/speculate.h"
#include "speech/speech.h"

// What several texts may share.
struct generator_options {
    yalm_sampling sampling; // its biases stay the caller's, as all that is pointed to
    bool penalise_own;      // the penalties look back on the generated tokens, all of them and nothing else
    int64_t max_tokens;     // -1: until the context is full; in an endless session for ever
    const char *const *stops;
    int n_stops;
    bool ignore_eos;                  // but where a grammar holds
    bool spell_control;               // control tokens are text: a model's marks of a call to a tool, say
    int n_likely;                     // likeliest tokens that are told with each; -1: no log probabilities at all
    bool list_tokens;                 // tell the generated tokens, without log probabilities if there are to be none
    bool score_prompt;                // tell them of the prompt's tokens too
    const char *grammar_after;        // the grammar holds once the text has this; NULL: from the start
    bool parts;                       // reasoning, text and calls are told apart
    unsigned forms;                   // by these marks (speech.h)
    const struct speech_calls *calls; // that may come; NULL: none
    const char *reasoning_end;
    const struct held_calls *held; // calls that the model begins follow a grammar; NULL: they need not
};

struct held_calls {
    const struct grammar *grammar; // of a call with its marks, or of all that follow its first mark
    const struct token_tree *tree;
    const int32_t *marks; // (n_marks) control tokens that it may be written with
    int n_marks;
};

struct generator {
    // Before generator_begin() the caller fills these, and leaves zeros in all else.
    const struct generator_options *how;
    yalm_session *session;
    struct speculator *speculator; // NULL: nothing is guessed. It knows what the session holds
    const int32_t *prompt;         // (n_prompt)
    size_t n_prompt;               // 1 or more
    struct masker *masker;         // of the text's grammar, owned; NULL: none
    yalm_stream stream;            // as the prompt leaves it

    // What is to be evaluated next.
    const int32_t *pending;
    int n_pending;
    yalm_logits_of which;

    struct buffer text;   // up to a stop string
    size_t shown;         // of it: what follows may be the beginning of a stop string
    struct speech speech; // of what is shown, where parts are wanted
    struct scores scores; // of the prompt where it is scored, then of the generated tokens
    size_t n_read;        // tokens of the prompt that the session has evaluated
    size_t n_cached;      // that it need not evaluate
    size_t n_generated;   // tokens, with the one that ended the text
    int32_t token;        // the last of them
    bool added;           // generator_next() has drawn it, and it belongs to the text
    bool masking;         // the grammar holds
    bool in_call;         // a call's: the masker is its own
    bool looked_at_call;  // the call that is read now has been looked at
    yalm_stop stop;       // why the text is over; 0: it goes on
    const char *stop_string;
    double began, first_token, ended; // seconds, by the monotonic clock
};

// The session goes back to what it has in common with the prompt; reuse: if that may be used at all.
void generator_begin(struct generator *g, bool reuse);
// Draws the next token, where the prompt has been read, and says what is to be evaluated next: of the prompt at most `piece`
// tokens. Nothing is on an error, or where the text is over.
yalm_status generator_next(struct generator *g, int piece, yalm_error *error);
bool generator_reads(const struct generator *g); // the prompt, still

// Evaluates that, guessing more.
yalm_status generator_evaluate(struct generator *g, yalm_error *error);
// After the caller's own evaluation of it.
yalm_status generator_evaluated(struct generator *g, yalm_error *error);

// The session has come to hold the prompt's first n tokens by other means.
void generator_skip(struct generator *g, size_t n);
// No token follows: what was held back is text after all.
void generator_end(struct generator *g);
void generator_free(struct generator *g);
