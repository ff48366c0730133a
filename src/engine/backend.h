// What a device must do for a session. One table of functions for each backend; the session chooses one when it opens.
#pragma once
#include <pthread.h>

#include "engine/kv_cache.h"
#include "model/weights.h"
#include "util/atomic.h"
#include "yalm_measure.h"

// What a backend keeps with a model for all its sessions, made by the first that needs it and freed with the model: a GPU's
// copy of the weights, a CPU's teams of threads.
struct shared {
    pthread_mutex_t lock; // held while it is looked at or made
    void *data;           // the backend's own; NULL: not made yet
    void (*release)(void *data);
};

// All that a backend needs to know to build its state. Borrowed, and constant for the session's life.
struct backend_plan {
    const struct model_config *config;
    const struct model_weights *weights;
    const struct container *container;     // the model's file
    const yalm_session_options *options;   // resolved: no zeros, no "auto"
    struct kv_policy kv[CONFIG_MAX_KINDS]; // of each kind of layer
    const atomic_bool *cancel;             // set from outside: evaluation ends soon with YALM_INTERRUPTED
    struct shared *weights_copy, *of_cpu;  // the model's; of_cpu NULL: none, each session has threads of its own
    // Of a head that guesses: the model's weights_copy, which lends it embedding and classifier. NULL: this is the model.
    struct shared *lender;
    struct yalm_group *group; // whose ranks have shares of the model; config and weights are this one's; NULL: none
    bool together;            // the backend's own affair: a state whose tokens are of several sessions
};

// Where a token's text begins and ends in a batch of several.
struct extent {
    int first, last;
};

// Tokens at positions position … position + n - 1, after which the cache holds their keys and values.
struct batch {
    const int32_t *tokens; // (n), each below vocab_size
    int n;                 // 1 … options->chunk
    int64_t position;      // of tokens[0]
    // (n, vocab_size) where all_logits, else (vocab_size) of the last token; NULL: none wanted. A backend that has fetch()
    // keeps the last token's, and all of a batch apart, until that is called.
    float *logits;
    bool all_logits;
    int n_logits; // of a head that guesses: so many of the first ones are enough, where a backend can leave out others; 0: all
    // (n, hidden_dim): of a head that guesses, the hidden states that it reads; and where those go that the batch gives, as
    // config->mtp.normed has them. NULL: none.
    const float *given;
    float *hidden;
    // Of several texts, each at its own positions from 0 on: (n) where each token's lies, and its type, NULL: all 0. `position`
    // is 0 then, and the cache holds nothing for later batches. Tokens see no other text's. NULL: one text.
    const struct extent *texts;
    const uint8_t *types;
    bool normed;     // `hidden` is normalised by the last norm, where the model has one
    bool apart;      // each token becomes, to the bit, what it would in a batch of its own; n is at most what most_apart() says
    bool last_apart; // only the last one does, behind others of a prompt: with exact bits, where no layer recurs
};

// One draw from logits that a backend keeps.
struct draw {
    int row; // of the last batch, where that was apart: the token whose logits they are; else 0
    const yalm_sampling *sampling;
    const int32_t *recent; // (n_recent), what the penalties look back on, oldest first
    int n_recent;
    double uniform; // in [0, 1): the draw itself
};

enum { INVITATION_BYTES = 128 };

struct input_sums;
struct key_record;
struct learning;

// Of a kind's layers: rows of positions [first, end), and what those that are recurrent carry before `carried`; 0: without.
struct stretch {
    int64_t first, end, carried;
};

// Takes a piece of the cache: looks at its length alone, reads it, or writes it.
typedef yalm_status row_taker(void *context, void *bytes, size_t length);
enum row_use { ROWS_MEASURED, ROWS_READ, ROWS_WRITTEN };

// What recurrent layers carry is handed over so, on any device: a head's state in blocks of so many columns, (key_dim,
// CARRIED_COLS) one after another; the last has what is left.
enum { CARRIED_COLS = 32 };

struct backend {
    const char *name;
    bool own_memory; // a copy of the weights is made, in memory of the device's own
    // Fills in what the options leave open (isa, n_threads, chunk), or refuses what this machine has not or cannot do.
    yalm_status (*resolve)(const struct model_config *config, const struct model_weights *weights,
                           yalm_session_options *options, yalm_error *error);
    // Bytes that open() will take: sets memory->kv_cache, memory->scratch and, where there is such, memory->attention. Where
    // memory is the device's own, also weights and available, which counts a copy of the weights that is there already.
    yalm_status (*memory)(const struct backend_plan *plan, yalm_memory *memory, yalm_error *error);
    void *(*open)(const struct backend_plan *plan, yalm_error *error);
    void (*close)(void *state);
    // "2 threads, avx512": the machine that the session runs on.
    void (*describe)(const void *state, char *text, size_t room);
    // Who multiplies the model's matrices, a line for each kind of them; the text's length, as snprintf() gives it. NULL: not
    // on this device.
    size_t (*describe_products)(const void *state, char *text, size_t room);
    yalm_status (*evaluate)(void *state, const struct batch *batch, yalm_error *error);
    // A token of each of n sessions on the plan's model, with the bits of evaluate(). Batches of one token, with logits. NULL:
    // one session after another.
    yalm_status (*evaluate_together)(void *const *states, const struct batch *batches, int n, const struct backend_plan *plan,
                                     yalm_error *error);
    // Tokens that a batch apart may have, for much less than what they cost one by one; NULL, or 1: there is no such thing.
    int (*most_apart)(const void *state);
    // Whether a batch can be evaluated at `position`, which is no later than the last one's end. Asked where layers are
    // recurrent, which no backend has whose this is NULL.
    bool (*holds)(const void *state, int64_t position);
    yalm_status (*fill_random)(void *state, int64_t position, int n, uint64_t seed, yalm_error *error);
    // Hands over what the cache has for these positions of each kind of layer, piece by piece, in an order that the model and
    // the options decide, and not the device. What take() returns other than YALM_OK ends it, and *error is untouched then.
    // YALM_USAGE where the attention method keeps more; NULL: of several ranks.
    yalm_status (*each_row)(void *state, const struct stretch *of_kind, enum row_use use, row_taker *take, void *context,
                            yalm_error *error);
    // The first layer of which the cache's type has cut a key or a value; -1: of none. NULL: it is not known.
    int (*cut_layer)(const void *state);
    // Bytes of the cache, and of what the attention method keeps beside it, that a batch must read; NULL: every visible row
    // once.
    double (*step_bytes)(const void *state, int n, int64_t position);
    yalm_status (*measure_limits)(void *state, double seconds, yalm_limits *limits, yalm_error *error);
    double (*measure_reading)(void *state, double seconds); // see yalm_measure_reading(); NULL: not on this device
    // See yalm_time_attention(); both NULL where a layer's parts cannot be timed apart.
    void (*time_attention)(void *state, bool on);
    double (*attention_seconds)(const void *state);

    // For calibration (calibrate.h); NULL where it is not done on this device.
    void (*record)(void *state, const struct key_record *record); // from now on; NULL: no more
    yalm_status (*learn)(void *state, const struct learning *how, float *centroids, yalm_error *error);

    // From the next evaluation on, what the weight matrices read is added to `sums` (model/importance.h); NULL: no more. NULL:
    // not on this device.
    void (*observe)(void *state, struct input_sums *sums);

    // Only of a backend whose work goes on while its caller does, and which keeps logits where they were computed; else NULL.
    yalm_status (*finish)(void *state, yalm_error *error); // waits for all that was asked for
    yalm_status (*fetch)(void *state, int row, float *logits,
                         yalm_error *error); // (vocab_size), the last token's; row: struct draw's
    // Draws by the rules of text/sampler.h; *logit is the token's as evaluated, before biases and penalties.
    yalm_status (*sample)(void *state, const struct draw *draw, int32_t *token, float *logit, yalm_error *error);

    // Only of a backend whose states meet those of other ranks by ways of their own, not through the group; else NULL. Once for
    // a model, when all ranks have opened their first state: rank 0 makes the invitation, and all join at the same time, with
    // the same bytes.
    yalm_status (*invite)(void *invitation, yalm_error *error);
    yalm_status (*join)(void *state, const void *invitation, yalm_error *error);
};

static inline int64_t batch_position(const struct batch *batch, int t)
{
    return batch->texts ? t - batch->texts[t].first : batch->position + t;
}

extern const struct backend backend_cpu;

// The CUDA half, opened on demand (cuda_open.c): NULL, and why, where it is not there or this machine has no GPU that it can
// use. *unfit: it is there, but cannot be loaded or is not of this program's version.
const struct backend *cuda_open(bool *unfit, yalm_error *error);
