// Several processes, ranks, that compute one model together (model/share.h), each on a machine of its own. Rank 0 has the
// sessions, and says what all of them do (ranks.c); the others do it (follow.c). A forward pass meets twice in each layer:
// what a block adds to the residual stream is summed.
//
// All ranks have the same bits after a sum: each element is added up in the order of ranks. So what each computes from it,
// the choice of experts too, is the same.
#pragma once
#include <pthread.h>

#include "engine/transport.h"
#include "util/atomic.h"
#include "yalm_group.h"

enum { GROUP_MOST = 256 }; // ranks

// Seconds that a rank waits for another's part of a sum, where nothing else is set. Less than a user's patience, more than
// any layer's share of a prompt should take.
enum { GROUP_PATIENCE = 5 };

// One thing for all ranks to do, by rank 0. Those with a body say how long it is.
enum command_kind {
    COMMAND_LOAD,     // take your share of the model; body: struct group_model
    COMMAND_OPEN,     // a session; body: its options
    COMMAND_EVALUATE, // body: the tokens, where they are several
    COMMAND_TOGETHER, // n tokens, each of another session; body: their struct group_turn
    COMMAND_FILL,     // n random positions
    COMMAND_CLOSE,
    COMMAND_JOIN, // with this session's state; body: the invitation (backend.h)
    COMMAND_ROLL, // say that you are there
    COMMAND_NOTHING,
    COMMAND_END,
};

struct command {
    int32_t kind, session, n, token; // token: of a batch that has but one
    int32_t logits, apart;           // logits: 0 none, 1 the last token's, 2 all; apart: 0 none, 1 the last, 2 all
    int64_t position;
    uint64_t seed;
    uint64_t body_bytes;
};

struct yalm_group {
    struct transport transport;
    double patience;
    // Held while one of rank 0's commands is carried out.
    pthread_mutex_t lock;
    const atomic_bool *cancel; // of the session that evaluates; looked at on rank 0
    // The first rank that was lost is remembered, and from then on nothing is exchanged.
    bool lost;
    yalm_error why;
    bool fp16; // what is summed goes over the wire as such
    const struct half_conversion *halves;
    uint8_t *parcels; // memory for what goes and comes
    size_t room;
    int lost_rank;
    int n_sessions; // opened so far: names of the next
    bool joined;    // the model's states on all ranks can meet
    // What a rank heard while it waited for something else; group_hear() gives it first.
    bool has_heard;
    struct heard {
        struct command command;
        void *body;
    } heard;
    // Rank 0's, from when it has a model: while nobody asks for anything, it says that it is there.
    pthread_t pulse;
    bool has_pulse, pulse_ends;
    pthread_cond_t end_pulse; // with the lock
    yalm_traffic traffic;
};

// A group over a transport, which yalm_group_leave() leaves; NULL where memory ran out.
yalm_group *group_make(const struct transport *transport);

struct half_conversion { // of n numbers
    void (*to)(uint16_t *y, const float *x, int n);
    void (*from)(float *y, const void *x, int n);
};

// Of all ranks, x (n) each: their sum, on all of them. x has room for one float more. True: the pass is to end soon, on all
// ranks, since it was cancelled or a rank was lost.
bool group_sum(struct yalm_group *group, const struct half_conversion *halves, float *x, size_t n);

// Rank 0's whole (n, rows) from all ranks' parts (n, their share_of_rows(rows)).
void group_gather(struct yalm_group *group, const float *part, float *whole, int n, int rows);

enum { GROUP_AT_ONCE = 64 }; // turns at most

struct group_turn {
    int32_t session, token;
    int64_t position;
};

// What must be the same on all ranks.
struct group_model {
    char version[128];
    uint64_t checksum, file_bytes;
    uint64_t fp16; // and what becomes so
};
struct group_model group_model_of(const yalm_model_info *info);

// Rank 0's, once all have their shares: the others, who wait for commands, from then on hear one often, or know that rank 0
// is lost.
void group_begin_pulse(struct yalm_group *group);
void group_end_pulse(struct yalm_group *group);

// Rank 0, which holds the lock.
yalm_status group_tell(struct yalm_group *group, struct command *command, const void *body, size_t body_bytes,
                       yalm_error *error);
// Waits for what every other rank answers: YALM_OK, or the first failure, with the rank's name.
yalm_status group_answers(struct yalm_group *group, yalm_error *error);

// The other ranks. *body is to be freed. Waits for ever where no pulse has been heard yet.
yalm_status group_hear(struct yalm_group *group, bool has_pulse, struct command *command, void **body, yalm_error *error);
yalm_status group_answer(struct yalm_group *group, const yalm_error *mine, yalm_error *error);

// Where ranks wait for each other without the group's knowledge, and for long: rank 0 asks all others whether they are there,
// and they wait for its question. False: one is not, or has failed: the group is lost. True: go on waiting; or rank 0 waits
// no longer, and what it says next is kept for group_hear().
bool group_call_roll(struct yalm_group *group);
// The answer of another rank that has heard COMMAND_ROLL; mine: why it cannot go on, or YALM_OK.
bool group_answer_roll(struct yalm_group *group, const yalm_error *mine);

// The lost rank's line, as an error.
yalm_status group_failure(const struct yalm_group *group, yalm_error *error);
