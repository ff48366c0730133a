// What the modes share: errors, the terminal, input, sessions.
#pragma once
#include <stdio.h>

#include "cli/options.h"
#include "util/error.h"
#include "yalm_measure.h"

// ---------------------------------------------------------------- modes, one file each

yalm_status run_completion(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_chat(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_throughput(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_perplexity(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_passkey(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_serve(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_calibrate(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_importance(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_embed(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_tokenize(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_info(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_verify(const struct options *options, const yalm_model *model, yalm_error *error);
yalm_status run_cache(const struct options *options, yalm_error *error);

// ---------------------------------------------------------------- terminal.c

yalm_status cli_no_memory(yalm_error *error);

// One line on stderr; the newline is added.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *
plain(const char *text); // without control characters, of which a terminal would make something; until the next call
void say_error(const yalm_error *error); // "yalm: …", nothing where the text is empty

// Progress is one line on stderr that is written over, and only where stderr is a terminal.
bool progress_wanted(void);
bool colour_wanted(void); // there, where NO_COLOR is not set
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_clear(void);

// Writes to stdout at once. YALM_FAILED where that fails; without a text where a pipe's reader has gone, who needs no words.
yalm_status output(const char *bytes, size_t length, yalm_error *error);
yalm_status output_end(yalm_error *error); // what printf() left behind

// Bytes as 1.5 KB, 13.2 MB, 4.1 GB; in one of a few buffers that take turns.
const char *human_bytes(uint64_t bytes);

// ---------------------------------------------------------------- input.c

struct text {
    char *bytes; // (length), owned
    size_t length;
};

// All of a file, or of stdin for "-".
yalm_status text_read(struct text *text, const char *path, yalm_error *error);
// The same, of a file that must be there: a named pipe that nobody writes to is refused, not waited for.
yalm_status text_read_at_once(struct text *text, const char *path, yalm_error *error);

struct tokens {
    int32_t *ids; // (n), owned
    size_t n;
};

// Ids below n_vocab, blanks between them; `source` names them in messages.
yalm_status tokens_parse(struct tokens *tokens, const char *text, size_t length, int n_vocab, const char *source,
                         yalm_error *error);
yalm_status tokens_read(struct tokens *tokens, const char *path, int n_vocab, yalm_error *error);

// The mode's input: text, unless it came as ids, and its ids. YALM_TOKENIZE_BOS is left out for ids and with text.bos=off.
yalm_status input_read(struct text *text, struct tokens *tokens, const struct options *options, const yalm_model *model,
                       bool bos, yalm_error *error);
// Reads the input, without bos, and calls `use` with it.
typedef yalm_status text_user(const struct options *options, const yalm_model *model, const struct tokens *tokens,
                              yalm_error *error);
yalm_status with_text(const struct options *options, const yalm_model *model, text_user *use, yalm_error *error);
yalm_status needs_input(const struct options *options, yalm_error *error);
yalm_status needs_tokenizer(const struct options *options, const yalm_model *model, const char *why, yalm_error *error);

// ---------------------------------------------------------------- setup.c

// Says what memory the session will take and how it will run, before it takes it; then ^C cancels the session's evaluation.
yalm_session *open_session(const struct options *options, const yalm_model *model, yalm_session_options *how, bool quiet,
                           yalm_error *error);
void close_session(yalm_session *session);
// yalm_sample() that says why there is no token.
yalm_status sample_token(yalm_session *session, const yalm_sampling *sampling, int32_t *token, yalm_error *error);
// The model, with what the options say about its memory.
yalm_model *open_model(const struct options *options, yalm_error *error);
yalm_session_options session_options(const struct options *options); // context and endless are left to the mode
bool interrupted(void);
// From now on the first ^C cancels the session's evaluation, and a second one kills.
void watch_interrupt(yalm_session *session);

// The better of two measurements, each number for itself.
void limits_merge(yalm_limits *limits, const yalm_limits *other);

uint64_t logits_hash(const float *logits, int n_vocab); // FNV-1a
uint64_t random_seed(void);
uint64_t random_next(uint64_t *state); // SplitMix64
