// A session's MTP head, kept in step with the session (mtp.c). Where there is none, nothing is done.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"

enum { MTP_ROWS = 32768 }; // of the classifier, from which guesses come where these are likely enough

struct mtp {
    void *state;     // the backend's
    float *rows;     // (room, hidden_dim): the model's hidden states of positions from … from + n - 1
    float *own;      // (chunk, hidden_dim): the head's of its last batch
    float *logits;   // (vocab_size), of its last evaluation that was asked for some
    int32_t *tokens; // (chunk)
    int room, n;
    int n_logits;             // that the next guesses are of: MTP_ROWS or all
    double misses;            // the largest share of a text's tokens beyond MTP_ROWS with which these are enough
    int32_t last;             // the token by which the last row was made; -1: not known
    int64_t from, base, done; // the head has read positions base … done - 1
};

// What options->mtp becomes: on or off. YALM_USAGE where it is asked for and cannot be had.
yalm_status mtp_resolve(const yalm_model *model, const struct backend *backend, yalm_session_options *options,
                        yalm_error *error);
// Adds what the head takes, by resolved options.
yalm_status mtp_memory(const yalm_model *model, const struct backend *backend, const yalm_session_options *options,
                       yalm_memory *memory, yalm_error *error);
yalm_status mtp_open(yalm_session *session, yalm_error *error);
void mtp_close(yalm_session *session);

// The session's text is another from now on, or goes on without the hidden states of some of its tokens.
void mtp_forget(yalm_session *session);
// Where the hidden states of a batch belong that is about to be evaluated; NULL: nowhere.
float *mtp_rows(yalm_session *session, const struct batch *batch);
void mtp_take(yalm_session *session, const struct batch *batch); // once it has been, and its tokens are in the history
