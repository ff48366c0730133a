// The engine: one thread that owns the sessions and moves all running tasks on in turns.
//
// Each session is a *slot*. In a step every slot that writes gets one token, and one slot that reads gets one piece of its
// prompt. So a long prompt holds nobody up for longer than a piece takes. Tasks that find no free slot wait; requests take
// turns there too.
#pragma once
#include "serve/task.h"

struct engine;

enum { MAX_SLOTS = 256 };

struct engine_options {
    yalm_session_options session;
    int n_slots;          // sessions, at most MAX_SLOTS
    int n_queue;          // requests that may wait besides
    int piece;            // tokens of a prompt that a step reads
    uint64_t cache_bytes; // memory for what sequences have read, beyond the sessions
    bool speculate;
    const yalm_model *draft; // NULL: none
};

// Counts since the start, and what is going on now.
struct engine_counts {
    uint64_t requests, refused, left, failed; // accepted; for lack of room; clients that went; ended by an error
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    double read_seconds, write_seconds; // spent on pieces of prompts, and on single tokens
    int running, waiting;               // tasks
    uint64_t kept_bytes;                // of cache_bytes
};

struct slot_state {
    int64_t n_tokens;             // that the session holds
    bool busy, reading;           // both, too, while it is a caller's of engine_take_slot()
    size_t n_prompt, n_generated; // of its task
};

// Opens the sessions and starts the thread. NULL on failure.
struct engine *engine_open(const yalm_model *model, const struct engine_options *options, yalm_error *error);
// Ends what is running, with an error for its clients; from then on nothing is accepted.
void engine_stop(struct engine *engine);
// What sequences have read comes from a file of a folder, before anything is submitted, or goes there, once the engine has been
// stopped.
yalm_status engine_load(struct engine *engine, const char *folder, yalm_error *error);
yalm_status engine_save(struct engine *engine, const char *folder, yalm_error *error);
// Closes the sessions, too; once nobody can call any of these any more. NULL is welcome.
void engine_close(struct engine *engine);
// Waits until nothing runs or waits, at most `seconds`. True where that came to be.
bool engine_drain(struct engine *engine, double seconds);

// Hands the request's tasks over; the engine holds the request until they are over. False where too many wait.
bool engine_submit(struct engine *engine, struct request *request);

int engine_context(const struct engine *engine); // tokens that a sequence may have
int engine_n_slots(const struct engine *engine);
yalm_session *engine_session(const struct engine *engine); // the first, for a model that generates nothing
bool engine_keeps(const struct engine *engine);            // whether what sequences have read is kept beyond the sessions
const char *engine_machine(const struct engine *engine);   // "cpu: 2 threads, avx2"
// A slot's session, which is the caller's until it is returned; NULL while it is at work, or another caller's. `wait` waits for
// that one.
yalm_session *engine_take_slot(struct engine *engine, int slot, bool wait);
void engine_return_slot(struct engine *engine, int slot);
struct engine_counts engine_count(struct engine *engine);
void engine_look(struct engine *engine, struct slot_state *slots); // (n_slots)
