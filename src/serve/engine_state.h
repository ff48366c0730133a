// The engine, as its files know it.
#pragma once
#include <pthread.h>

#include "serve/engine.h"
#include "serve/slot.h"

struct engine {
    const yalm_model *model;
    struct engine_options options;
    struct slot *slots;        // (n_slots)
    struct slot_state *states; // (n_slots), as of the last step
    struct prefixes *prefixes;
    int n_open;
    int turn; // the slot whose prompt is read next, or the first one after it that reads
    char machine[800];
    double looked;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;      // of all below, and of the slots' tasks
    pthread_cond_t wake, idle; // there is work for the thread; there is no request, or a slot has been returned
    bool draining, closing;
    struct request *requests; // all that are not over, the oldest first
    int n_requests;
    struct task *queue; // waiting, the oldest first
    struct engine_counts counts;
};

// step.c. Moves the tasks of these slots on: those that write by a token, and one of those that read by a piece.
void engine_step(struct engine *engine, struct slot **busy, int n_busy);
